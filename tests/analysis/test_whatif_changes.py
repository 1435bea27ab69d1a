"""Changes and the profiler's cost on works of a few calls, with numbers by hand."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.columns import union
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.analysis.whatif import cost
from profiling.analysis.whatif.changes import (
    GRAPHS,
    NO,
    Change,
    pauses_ms,
    scaled,
    short_pauses,
    together,
    without_times,
)
from profiling.analysis.whatif.prediction import Scene, predict
from profiling.analysis.whatif.replay import steady_ms
from profiling.analysis.whatif.whatif import doubted
from profiling.analysis.whatif.work import ALLOCATION, TRANSFER, WAITING, Work
from profiling.timeline.trace import COPY
from tests.helpers.whatif import US, Call, Op, made_work

HOME = {"kind": COPY, "family": -1, "to_host": True}
BATCH = {"kind": COPY, "family": -1, "from_host": True, "bytes": 1 << 20}
LAUNCHES = [Call(5, 5, [Op(2, 6)]) for _ in range(3)]  # 30 us of the host
PAUSES = [Call(400, 5, [Op(2, 6)], stall=True) for _ in range(3)]


def step_us(work: Work, change: Change | None = None) -> float:
    work = change.apply(work) if change else work
    return 1e3 * steady_ms(work)


def changed_us(calls: list[Call], change: Change) -> tuple[float, float]:
    """The step of these calls without the change and with it."""
    work = made_work(calls)
    return step_us(work), step_us(work, change)


def test_without_data():
    """The loader's time and its calls go, the batch is handed over and copied all the same."""
    waits = Call(2, 8, kind=WAITING, in_data=True)
    batch = Call(2, 4, [Op(20, 6, **BATCH)], TRANSFER, in_data=True)
    calls = [Call(5_005, 5, [Op(2, 6)], data=5_000), waits, batch, *LAUNCHES]
    assert changed_us(calls, NO["data"]) == pytest.approx((5_056, 1_048))
    calls[0] = Call(505, 5, [Op(2, 6)], data=500)  # what workers take to hand it over, too
    assert changed_us(calls, NO["data"]) == pytest.approx((556, 548))


def test_without_cpu():
    """A pause is as long as the median of the others; what was fetched for it goes."""
    fetch = Call(5, 100, [Op(90, 6, bytes=1 << 20, **HOME)], TRANSFER, awaited=3, wait_lag=4)
    stalled = Call(3_000, 5, [Op(2, 6)], stall=True)
    assert changed_us([*LAUNCHES, stalled], NO["cpu"]) == pytest.approx((3_035, 40))
    assert changed_us([*LAUNCHES, fetch, stalled], NO["cpu"]) == pytest.approx((3_140, 45))
    scalar = Call(5, 5, [Op(1, 6, bytes=4, **HOME)], TRANSFER)
    assert changed_us([*LAUNCHES, scalar, stalled], NO["cpu"]) == pytest.approx((3_045, 50))


def test_without_copies_a_run_of_small_ones_is_one_thing():
    """Two numbers that are copied one after the other go, with the host's time between; one alone
    stays."""
    number = Call(5, 5, [Op(1, 6, kind=COPY, family=-1, from_host=True, bytes=8)], TRANSFER)
    assert changed_us([*LAUNCHES, number], NO["copies"]) == pytest.approx((40, 40))
    run = [number, replace(number, think=100), replace(number, think=100)]
    assert changed_us([*LAUNCHES, *run], NO["copies"]) == pytest.approx((250, 35))
    last_and_first = [number, *LAUNCHES, number]  # the next step begins behind the last one
    assert changed_us(last_and_first, NO["copies"]) == pytest.approx((50, 35))


def test_short_pauses_leave_host_work_untold():
    """Three pauses of 400 us may be anyone's: from a third of the step on they leave it open, for
    host work with something else, too."""
    paused = scene([*LAUNCHES, *PAUSES, Call(90, 5, [Op(2, 6)])])
    assert pauses_ms(paused.cycle, short_pauses(paused.cycle)) == pytest.approx(1.2)
    for change in (NO["cpu"], together([NO["cpu"], NO["sync"]])):
        nothing = predict(paused, change, None)
        assert nothing.answer == "nothing"
        assert doubted(nothing, change, paused, 4.0) is nothing
        unknown = doubted(nothing, change, paused, 1.5)
        assert unknown.answer == "cannot tell" and "80 % of the step" in str(unknown.reason)
    nothing = predict(paused, NO["sync"], None)
    assert doubted(nothing, NO["sync"], paused, 1.5) is nothing


def test_short_pauses_that_hold_nothing_up_leave_nothing_open():
    """The GPU works on through them, or the loader's workers set the pace."""
    batch = Call(10_000, 5, [Op(10, 6)], data=10_000, events=0)
    waiting = replace(scene([*LAUNCHES, *PAUSES, batch]), waits_for_workers=True)
    for hidden in (scene([Call(5, 5, [Op(3_000, 6)]), *PAUSES]), waiting):
        nothing = predict(hidden, NO["cpu"], None)
        assert nothing.answer == "nothing"
        assert doubted(nothing, NO["cpu"], hidden, 3.0) is nothing


def test_pauses_leave_batches_untold_where_nothing_shows_their_making():
    """A loader without a range, of batches that are on the GPU, is a pause like any other."""
    pause = Call(5_000, 5, [Op(2, 6)], stall=True)
    seen = scene([*LAUNCHES, pause])
    blind = replace(scene([*LAUNCHES, pause]), shows_loading=False)
    hidden = replace(scene([Call(5, 5, [Op(9_000, 6)]), pause]), shows_loading=False)
    for change in (NO["data"], together([NO["data"], NO["sync"]])):
        found = [
            doubted(predict(of, change, None), change, of, 5.1) for of in (blind, seen, hidden)
        ]
        assert [each.answer for each in found] == ["cannot tell", "nothing", "nothing"]
        assert "98 % of the step, and nothing shows" in str(found[0].reason)
    both = together([NO["data"], NO["cpu"]])
    assert doubted(predict(blind, both, None), both, blind, 5.1).answer == "shorter"


def test_batches_that_nothing_marks_leave_host_work_untold():
    """A pause before a copy to the GPU may be the program's own, unless nothing waits for it."""
    batch = Call(5_000, 5, [Op(2, 6)], data=5_000, events=0)
    marked = scene([*LAUNCHES, batch])
    guessed = replace(marked, guesses_loading=True)
    hidden = replace(scene([Call(5, 5, [Op(9_000, 6)]), batch]), guesses_loading=True)
    change = NO["cpu"]
    found = [
        doubted(predict(of, change, None), change, of, 5.1) for of in (guessed, marked, hidden)
    ]
    assert [each.answer for each in found] == ["cannot tell", "nothing", "nothing"]
    assert "98 % of the step, and may be other work" in str(found[0].reason)


def test_pauses_leave_allocations_untold_where_nothing_shows_that_memory_is_unmapped():
    pause = Call(5_000, 5, [Op(2, 6)], stall=True)
    seen = scene([*LAUNCHES, pause])
    blind = replace(scene([*LAUNCHES, pause]), shows_mapping=False)
    found = [
        doubted(predict(of, NO["allocation"], None), NO["allocation"], of, 5.1)
        for of in (blind, seen)
    ]
    assert [each.answer for each in found] == ["cannot tell", "nothing"]
    assert "98 % of the step, and the profiler records no call" in str(found[0].reason)


def test_without_cpu_the_framework_and_the_batch_stay():
    """A pause of up to 2 ms may be an optimizer's own, if nothing came home before it; what makes
    a batch is no pause."""
    optimizer = Call(1_900, 5, [Op(2, 6)], stall=True)
    assert changed_us([*LAUNCHES, optimizer], NO["cpu"]) == pytest.approx((1_935, 1_935))
    home = Call(5, 5, [Op(1, 6, bytes=4096, **HOME)], TRANSFER)
    assert changed_us([*LAUNCHES, home, optimizer], NO["cpu"]) == pytest.approx((1_945, 50))
    loads = Call(9_000, 5, [Op(2, 6)], data=6_000, stall=True)
    assert changed_us([*LAUNCHES, loads], NO["cpu"]) == pytest.approx((9_035, 6_040))
    both = together([NO["data"], NO["cpu"]])
    assert changed_us([*LAUNCHES, loads], both) == pytest.approx((9_035, 1_040))


def test_without_sync():
    """Waits go with 10 us of asking, small results stay on the GPU, the queue may still be full."""
    kernel = Call(5, 5, [Op(100, 6, stream_lag=1)])
    item = Call(15, 5, [Op(1, 6, bytes=4, **HOME)], TRANSFER)
    waits = Call(3, 3, kind=WAITING, awaited=1, wait_lag=4)
    before, after = changed_us([kernel, item, waits, *LAUNCHES], NO["sync"])
    # the host waits for 5 + 6 + 100 + 1, wakes 4 later, and launches for 30
    assert before == pytest.approx(5 + 6 + 100 + 1 + 4 + 30)
    assert after == pytest.approx(100 + 1 + 3 * 2)  # the GPU is never out of work
    blocked = Call(5, 5, [Op(100, 6, stream_lag=1)], awaited=0, wait_lag=4)
    assert changed_us([blocked, *LAUNCHES], NO["sync"])[1] == pytest.approx(100 + 1 + 3 * 2)
    full = Call(5, 5, [Op(2, 6)], awaited=0, wait_lag=4)
    slow = [Call(5, 5, [Op(100, 6)]), full]
    assert changed_us(slow, NO["sync"])[1] == pytest.approx(changed_us(slow, NO["sync"])[0])


def test_without_sync_a_loop_of_questions_goes_with_what_it_asks():
    """Short kernels between questions, and the host's time there, go where that is often."""
    work = Call(5, 5, [Op(2, 6)])

    def asked(between: int, took: float = 2, pause: float = 30) -> list[Call]:
        item = Call(pause, 5, [Op(1, 6, bytes=4, **HOME)], TRANSFER)
        asks = [*(Call(20, 5, [Op(took, 6)]) for _ in range(between)), item]
        return [work, *5 * asks, *LAUNCHES]

    left = 4 * 10 + 20 + 5 + (30 - 10)  # what makes the first value may be the step's own work
    for calls, host_us in (
        (asked(1), left),
        (asked(2), left + 20 + 5),
        (asked(3), 4 * 10 + 5 * (3 * 25 + 20)),  # too many launches: each stays
        (asked(1, took=20), 4 * 10 + 5 * (25 + 20)),  # a long kernel is the step's own work
        (asked(0, pause=2_500), 4 * 10 + 5 * 2_490),  # a long pause is the program's
        (asked(1)[:7], 10 + 3 * (25 + 20)),  # too few questions
    ):
        assert changed_us(calls, NO["sync"])[1] == pytest.approx(host_us)


def test_without_allocation():
    calls = [*LAUNCHES, Call(25, 200, kind=ALLOCATION)]
    assert changed_us(calls, NO["allocation"]) == pytest.approx((255, 45))


def test_without_copies():
    """A batch and the wait for it go, a scalar stays."""
    batch = Call(5, 3, [Op(200, 6, **BATCH)], TRANSFER, awaited=3, wait_lag=4)
    assert changed_us([*LAUNCHES, batch], NO["copies"]) == pytest.approx((30 + 5 + 210, 35))
    scalar = Call(5, 3, [Op(2, 6, bytes=4, **HOME)], TRANSFER)
    assert changed_us([*LAUNCHES, scalar], NO["copies"]) == pytest.approx((38, 38))


def test_without_copies_nothing_is_done_with_what_they_brought():
    """The pause behind a large copy home goes, in the next step too; behind a scalar it stays."""
    home = Call(5, 3, [Op(200, 6, bytes=1 << 20, **HOME)], TRANSFER, awaited=3, wait_lag=4)
    waits, pause = Call(5, 5, kind=WAITING), Call(500, 5, [Op(2, 6)], stall=True)
    for calls in ([*LAUNCHES, home, waits, pause], [pause, *LAUNCHES, home, waits]):
        assert step_us(made_work(calls), NO["copies"]) == pytest.approx(30 + 5 + 10 + 10, abs=1)
    small = Call(5, 3, [Op(2, 6, bytes=24_000, **HOME)], TRANSFER)  # that it brings home with it
    found = step_us(made_work([*LAUNCHES, home, waits, small, waits, pause]), NO["copies"])
    assert found == pytest.approx(30 + 10 + 20 + 10, abs=1)
    scalar = replace(home, ops=[Op(200, 6, bytes=4, **HOME)])
    assert step_us(made_work([*LAUNCHES, scalar, pause]), NO["copies"]) > 700
    assert step_us(made_work([*LAUNCHES, home, LAUNCHES[0], small, pause]), NO["copies"]) > 500


def test_with_graphs():
    """Kernels follow each other within 0.3 us, and long pauses stay."""
    kernels = [Call(5, 5, [Op(4, 6, stream_lag=1)]) for _ in range(4)]
    assert changed_us(kernels, GRAPHS) == pytest.approx((40, 4 * 4.3))
    stalled = Call(3_000, 5, [Op(2, 6)], stall=True)
    assert changed_us([*kernels, stalled], GRAPHS)[1] == pytest.approx(3_000, abs=10)
    optimizer = Call(1_900, 5, [Op(2, 6)], stall=True)
    assert changed_us([*kernels, optimizer], GRAPHS)[1] == pytest.approx(4 * 4.3 + 2)


def test_scaled_families():
    gemm, add = FAMILIES.index("gemm"), FAMILIES.index("elementwise")
    calls = [Call(1, 5, [Op(100, 6, family=family)]) for family in (gemm, add)]
    change = Change("", scaled("gemm", 0.5))
    assert changed_us(calls, change) == pytest.approx((200, 150))
    host_bound = [Call(50, 50, [Op(10, 6, family=gemm)])] * 3
    assert changed_us(host_bound, change) == pytest.approx((300, 300))  # hidden: no gain
    copied = [Call(1, 5, [Op(100, 6, **BATCH)])]
    assert changed_us(copied, Change("", scaled("copy", 0.5))) == pytest.approx((100, 50))


def test_without_an_operator():
    """Calls inside it, what they launch, and the host's time there go."""
    calls = [Call(10, 5, [Op(50, 6)]) for _ in range(4)]
    work = made_work(calls)
    # calls run in 10..15, 25..30, 40..45, 55..60 us
    times = union(np.array([20 * US]), np.array([50 * US]))
    left = without_times(times)(work)
    assert (left.host.think_ns / US).tolist() == [10, 5, 0, 5]
    assert (left.host.took_ns / US).tolist() == [5, 0, 0, 5]
    assert (left.gpu.took_ns / US).tolist() == [50, 0, 0, 50]
    assert step_us(left) == pytest.approx(100)


def test_twice_is_once():
    calls = [Call(5_005, 5, [Op(2, 6)], data=5_000), Call(25, 200, kind=ALLOCATION), *LAUNCHES]
    for change in (*NO.values(), GRAPHS):
        twice = together([change, change])
        assert twice.words == change.words
        assert changed_us(calls, twice) == changed_us(calls, change)


def test_noted_events_cost_1_5_us_each_and_no_more_than_70_percent():
    calls = [Call(20, 10, [Op(1, 6)], events=4), Call(2, 1, events=9)]
    work = cost.without_events(made_work(calls))
    assert (work.host.think_ns / US).tolist() == pytest.approx([16, 0.6])
    assert (work.host.took_ns / US).tolist() == pytest.approx([8, 0.3])
    assert (work.gpu.host_lag_ns / US).tolist() == pytest.approx([5.25])


def test_stalls_and_data_are_not_slower():
    calls = [Call(20, 10), Call(1_000, 10, stall=True), Call(300, 10, data=290)]
    work = cost.scale_host(made_work(calls), 0.5)
    assert (work.host.think_ns / US).tolist() == [10, 1_000, 300]
    assert (work.host.took_ns / US).tolist() == [5, 10, 10]
    longer = cost.scale_host(made_work([*calls, Call(5_000, 10, stall=True)]), 0.5, 2.0)
    assert (longer.host.think_ns / US).tolist() == [10, 2_000, 300, 5_000]


def test_short_pauses_may_take_longer_or_less_long():
    """The framework's own are the host's, as times between launches are; long ones are known."""
    for pause_us, low_us, high_us in ((1_000, 667, 1_500), (5_000, 4_650, 5_600)):
        pause = Call(pause_us, 0, [Op(10, 6)], stall=True, events=0)
        paused = scene([Call(1, 0, [Op(10, 6)], events=0), pause])
        found = predict(paused, Change("half", scaled("gemm", 0.5)), None)
        assert 1e3 * found.low_ms == pytest.approx(low_us, rel=0.01)
        assert 1e3 * found.high_ms == pytest.approx(high_us, rel=0.01)


def test_the_thermometer_reads_launches_of_kernels_alone():
    names = ("cudaLaunchKernel", "cudaGraphLaunch", "cudaMemsetAsync")
    calls = [Call(5, 9, [Op(2, 6)])] * 20
    others = [Call(5, 90, [Op(2, 6)], name=name) for name in (1, 2) for _ in range(40)]
    held = [Call(5, 90, [Op(2, 6)], awaited=0)] * 40
    work = made_work([*calls, *others, *held], names=names)
    assert cost.launch_us(work) == 9 and cost.host_slowdown(9) == 2
    assert cost.launch_us(made_work(calls[1:])) is None and cost.host_slowdown(None) == 1
    assert cost.host_slowdown(3) == 1


def scene(calls: list[Call], given_ms: float | None = None) -> Scene:
    return Scene(made_work([calls[0], *calls, calls[0]], (0, len(calls) + 2)), given_ms)


GPU_BOUND = [Call(5, 5, [Op(100, 6)], events=0)] * 30
HOST_BOUND = [Call(95.5, 4.5, [Op(10, 6)], events=0)] * 30


def test_the_sign_is_that_of_all_worlds():
    half = Change("half", scaled("gemm", 0.5))
    found = predict(scene(GPU_BOUND), half, None)
    assert found.answer == "shorter" and found.limited_by == "gpu"
    assert found.step_ms == pytest.approx(1.6) and found.ratio == pytest.approx(0.5)
    assert (found.low_ms, found.high_ms) == pytest.approx((1.6 * 0.93, 1.6 * 1.12))
    # the host's 100 us are within 1.5 times of the GPU's 75
    near = [Call(95.5, 4.5, [Op(75, 6)], events=0)] * 30
    unsure = predict(scene(near), half, None)
    assert unsure.answer == "cannot tell" and "how fast the host is" in (unsure.reason or "")
    longer = predict(scene(GPU_BOUND), Change("longer", scaled("gemm", 2)), None)
    assert longer.answer == "longer" and longer.ratio == pytest.approx(2)


def test_what_is_hidden_or_absent_changes_nothing():
    for given_ms in (None, 3.0):
        found = predict(scene(HOST_BOUND, given_ms), NO["data"], None)
        assert (
            found.answer == "nothing"
            and found.step_ms == found.ratio * scene(HOST_BOUND, given_ms).free.ms
        )
        assert (found.ratio, found.ratio_low, found.ratio_high) == (1, 1, 1)
    hidden = predict(scene(HOST_BOUND), Change("half", scaled("gemm", 0.5)), None)
    assert hidden.answer == "nothing" and hidden.limited_by == "host"


def test_workers_that_set_the_pace_leave_nothing_to_gain_but_batches():
    calls = [*HOST_BOUND, Call(10_000, 5, [Op(10, 6)], data=10_000, stall=True, events=0)]
    paced = replace(scene(calls), waits_for_workers=True)
    graphs = predict(paced, GRAPHS, None)
    assert graphs.answer == "nothing" and graphs.leaves[-1].startswith("the wait for the loader's")
    assert predict(scene(calls), GRAPHS, None).answer == "shorter"
    data = predict(paced, NO["data"], None)
    assert data.answer == "shorter" and data.step_ms == pytest.approx(3.2 + 1 + 0.005)


def test_half_of_a_gain_must_be_more_than_one_per_cent():
    def predict_scaled(factor: float):
        return predict(scene(GPU_BOUND), Change("", scaled("gemm", factor)), None)

    assert [predict_scaled(factor).answer for factor in (0.97, 0.985, 0.995, 1.03, 1.015)] == [
        "shorter", "cannot tell", "nothing", "longer", "cannot tell"
    ]  # fmt: skip
    assert predict_scaled(0.985).reason == "at most 2 % shorter, too little to be sure of"


def test_where_stalls_are_most_of_a_known_step_they_are_what_differs():
    """10 ms of 13 make the batch; the known step is 10 % longer, and so are they."""
    calls = [*HOST_BOUND, Call(10_000, 5, [Op(10, 6)], data=10_000, stall=True, events=0)]
    plain, known = scene(calls), scene(calls, scene(calls).free.ms * 1.1)
    excess_ms = known.free.ms - plain.free.ms
    assert known.host_factor is None and excess_ms > 1
    halved = predict(known, Change("", lambda work: replace(
        work, host=replace(work.host, think_ns=np.minimum(work.host.think_ns, 5_000 * US))
    )), None)  # fmt: skip
    alone = plain.plain.step_ms() - 5
    assert halved.step_ms == pytest.approx(alone + excess_ms / 2)


def test_a_known_step_sets_how_fast_the_host_is():
    """The step is 0.8 times the replayed one: without 50 us of an allocation, which take as long on
    any host, the others take less than 0.8 times as long."""
    calls = [*HOST_BOUND, Call(500, 50, kind=ALLOCATION, events=0)]
    plain = scene(calls).free.ms
    known = scene(calls, 0.8 * plain)
    assert known.plain.step_ms(known.own_host) == pytest.approx(0.8 * plain, rel=0.01)
    assert known.own_host == pytest.approx((0.8 * plain - 0.05) / (plain - 0.05), rel=0.02)
    assert known.doubt == 1.3 and known.free.source == "given"
    found = predict(known, NO["allocation"], None)
    assert found.step_ms == pytest.approx(0.8 * plain - 0.05 - 0.01 * known.own_host, rel=0.01)
    graphs = predict(known, GRAPHS, None)
    assert graphs.step_ms == pytest.approx(predict(scene(calls), GRAPHS, None).step_ms)
    far = scene(calls, 0.3 * plain)
    assert far.host_factor is None and far.doubt == 1.5


def test_how_fast_the_host_is_takes_few_replays():
    """The GPU limits the step below 0.75, where it does not depend on the host."""
    calls = [Call(95.5, 4.5, [Op(75, 6)], events=0)] * 30
    plain = scene(calls).plain
    assert plain.step_ms(0.65) == plain.step_ms(0.7) < plain.step_ms(0.8)
    for factor in (0.76, 0.9, 1.0, 1.4):
        known = scene(calls, plain.step_ms(factor))
        assert known.host_factor is not None
        assert plain.step_ms(known.own_host) == pytest.approx(known.given_ms, rel=0.005)
        assert len(known.plain.replayed) <= 7  # with that of the GPU alone


def test_at_the_ends_of_the_host_s_factor_the_gpu_may_be_faster_or_slower():
    """The GPU limits the step below 0.75, and is part of it where the host waits."""
    calls = [Call(95.5, 4.5, [Op(75, 6)], events=0)] * 30
    plain = scene(calls).plain
    for part, factor in ((0.94, 0.65), (0.92, None)):
        assert scene(calls, part * plain.step_ms(0.65)).host_factor == factor
    assert scene(calls, 1.01 * plain.step_ms(1.5)).host_factor is None
    waits = [Call(20, 5, [Op(75, 6)]), Call(30, 5, kind=WAITING, awaited=1)]
    slowest = scene(waits).plain.step_ms(1.5)
    assert [scene(waits, part * slowest).host_factor for part in (1.02, 1.13)] == [1.5, None]


def test_a_pause_of_the_host_is_not_the_gpu():
    stalled = scene([*GPU_BOUND, Call(30_000, 5, [Op(10, 6)], stall=True, events=0)])
    found = predict(stalled, Change("half", scaled("gemm", 0.5)), None)
    assert found.gpu_ms == pytest.approx(found.step_ms, rel=0.02) and found.limited_by == "host"
    assert predict(stalled, NO["cpu"], None).limited_by == "gpu"
