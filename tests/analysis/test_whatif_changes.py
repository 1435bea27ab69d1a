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
    scaled,
    together,
    without_times,
)
from profiling.analysis.whatif.replay import steady_ms
from profiling.analysis.whatif.work import ALLOCATION, TRANSFER, WAITING, Work
from profiling.timeline.trace import COPY
from tests.helpers.whatif import US, Call, Op, made_work

HOME = {"kind": COPY, "family": -1, "to_host": True}
BATCH = {"kind": COPY, "family": -1, "from_host": True, "bytes": 1 << 20}
LAUNCHES = [Call(5, 5, [Op(2, 6)]) for _ in range(3)]  # 30 us of the host


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

    def asked(between: int, took: float = 2, pause: float = 30, called: float = 0) -> list[Call]:
        item = Call(pause, 5, [Op(1, 6, bytes=4, **HOME)], TRANSFER, stall=pause > 200)
        waits = [Call(called, 0, kind=WAITING, stall=called > 200)] if called else []
        asks = [*(Call(20, 5, [Op(took, 6)]) for _ in range(between)), item, *waits]
        return [work, *5 * asks, *LAUNCHES]

    left = 4 * 10 + 20 + 5 + (30 - 10)  # what makes the first value may be the step's own work
    for calls, host_us in (
        (asked(1), left),
        (asked(2), left + 20 + 5),
        (asked(3), 4 * 10 + 5 * (3 * 25 + 20)),  # too many launches: each stays
        (asked(1, took=20), 4 * 10 + 5 * (25 + 20)),  # a long kernel is the step's own work
        (asked(0, pause=500), 4 * 10 + 5 * 490),  # a pause is the program's
        (asked(1, called=500), left),  # but from a question to its wait, as of a callback
        (asked(1, called=2_500), left + 5 * 2_490),  # which takes no longer than that
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


def test_the_thermometer_reads_launches_of_kernels_alone():
    names = ("cudaLaunchKernel", "cudaGraphLaunch", "cudaMemsetAsync")
    calls = [Call(5, 9, [Op(2, 6)])] * 20
    others = [Call(5, 90, [Op(2, 6)], name=name) for name in (1, 2) for _ in range(40)]
    held = [Call(5, 90, [Op(2, 6)], awaited=0)] * 40
    work = made_work([*calls, *others, *held], names=names)
    assert cost.launch_us(work) == 9 and cost.host_slowdown(9) == 2
    assert cost.launch_us(made_work(calls[1:])) is None and cost.host_slowdown(None) == 1
    assert cost.host_slowdown(3) == 1
