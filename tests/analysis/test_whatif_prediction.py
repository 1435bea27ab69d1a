"""Predictions of a few calls: steps, intervals, signs, and what cannot be told."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.whatif.changes import (
    GRAPHS,
    NO,
    Change,
    pauses_ms,
    scaled,
    short_pauses,
    together,
)
from profiling.analysis.whatif.prediction import Scene, predict
from profiling.analysis.whatif.whatif import doubted
from profiling.analysis.whatif.work import ALLOCATION, WAITING
from tests.helpers.whatif import US, Call, Op, made_work

LAUNCHES = [Call(5, 5, [Op(2, 6)]) for _ in range(3)]  # 30 us of the host
PAUSES = [Call(400, 5, [Op(2, 6)], stall=True) for _ in range(3)]
GPU_BOUND = [Call(5, 5, [Op(100, 6)], events=0)] * 30
HOST_BOUND = [Call(95.5, 4.5, [Op(10, 6)], events=0)] * 30


def scene(calls: list[Call], given_ms: float | None = None) -> Scene:
    return Scene(made_work([calls[0], *calls, calls[0]], (0, len(calls) + 2)), given_ms)


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
    waiting = replace(scene([*LAUNCHES, *PAUSES, batch]), paced_ms=11.3)
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


def test_pauses_may_take_longer_or_less_long():
    """Short ones are the host's, as times between launches are. Long ones are the program's own,
    and no profiler makes them longer, but another process has others."""
    for pause_us, low_us, high_us in ((1_000, 667, 1_500), (5_000, 5_000 / 1.2, 6_000)):
        pause = Call(pause_us, 0, [Op(10, 6)], stall=True, events=0)
        paused = scene([Call(1, 0, [Op(10, 6)], events=0), pause])
        found = predict(paused, Change("half", scaled("gemm", 0.5)), None)
        assert 1e3 * found.low_ms == pytest.approx(low_us, rel=0.01)
        assert 1e3 * found.high_ms == pytest.approx(high_us, rel=0.01)


def test_a_known_step_and_a_busy_gpu_leave_no_doubt_of_the_stalls():
    """The first holds them, behind the second they do not show."""
    launches = [Call(5, 5, [Op(2, 6)], events=0)] * 3
    stall = Call(5_000, 5, [Op(2, 6)], stall=True, events=0)
    unknown = predict(scene([*launches, stall]), NO["sync"], None)
    assert (unknown.answer, unknown.high_ms) == ("nothing", pytest.approx(1.2 * 5.04, rel=0.01))
    known = predict(scene([*launches, stall], unknown.step_ms), NO["sync"], None)
    assert known.low_ms > unknown.low_ms and known.high_ms < unknown.high_ms
    long = Call(5, 5, [Op(9_000, 6)], events=0)
    hidden = predict(scene([*launches, long, stall]), NO["sync"], None)
    assert (hidden.low_ms, hidden.high_ms) == pytest.approx((0.93 * 9, 1.12 * 9), rel=0.01)


def test_what_is_taken_away_is_known_to_some_per_cent():
    """A step that is made of its fault may be twice as long without it, or as short as the GPU's
    time."""
    stalled = scene([*LAUNCHES, Call(100_000, 5, [Op(2, 6)], stall=True)])
    found = predict(stalled, NO["cpu"], None)
    assert found.high_ms == pytest.approx(found.step_ms + 0.03 * (stalled.free.ms - found.step_ms))
    assert found.low_ms == pytest.approx(
        0.93 * stalled.plain.changed_by(NO["cpu"].apply).gpu_alone_ms
    )


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
    paced = replace(scene(calls), paced_ms=14.0)
    graphs = predict(paced, GRAPHS, None)
    assert graphs.answer == "nothing" and graphs.leaves[-1].startswith("the wait for the loader's")
    assert predict(scene(calls), GRAPHS, None).answer == "shorter"
    data = predict(paced, NO["data"], None)
    assert data.answer == "shorter" and data.step_ms == pytest.approx(3.2 + 1 + 0.005)


def test_a_step_that_workers_pace_takes_as_long_without_a_profiler():
    """The host waits for the workers less by what the profiler adds to it."""
    launches = [Call(95.5, 9, [Op(10, 6)]) for _ in range(30)]  # of a host that is slowed down
    calls = [*launches, Call(10_000, 5, [Op(10, 6)], data=10_000, events=0)]
    alone, paced = scene(calls), replace(scene(calls), paced_ms=13.15)
    assert alone.slowdown == 2 and alone.free.ms < 12
    assert (paced.free.ms, paced.free.source) == (13.15, "estimated")
    nothing = predict(paced, GRAPHS, None)
    assert (nothing.answer, nothing.step_ms) == ("nothing", 13.15)
    assert nothing.low_ms <= 13.15 <= nothing.high_ms
    assert predict(paced, NO["data"], None).step_ms == predict(alone, NO["data"], None).step_ms
    assert replace(paced, given_ms=12.5).free.ms == 12.5


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
