"""Replay of a Work: numbers by hand, and runs of operations equal operations one by one."""

import numpy as np
import pytest

from profiling.analysis.whatif.replay import ROUNDS, replayed_ends, steady_ms
from profiling.analysis.whatif.work import OTHER, WAITING, Work
from tests.helpers.whatif import US, Call, Op, loop, made_work


def step_us(work: Work) -> float:
    return 1e3 * steady_ms(work)


def ends_us(work: Work) -> list[float]:
    return (replayed_ends(work) / US).tolist()


def test_an_operation_begins_behind_its_call_and_behind_its_stream():
    late = made_work([Call(10, 5, [Op(2, host_lag=6)]), Call(10, 5, [Op(2, host_lag=6)])])
    assert ends_us(late) == [18, 33]
    queued = made_work([Call(0, 5, [Op(50, 6)]), Call(1, 5, [Op(50, 6, stream_lag=1)])])
    assert ends_us(queued) == [56, 107]


def test_a_call_that_waits_returns_a_lag_behind_the_end():
    calls = [Call(0, 5, [Op(50, 6)]), Call(1, 2, kind=WAITING, awaited=0, wait_lag=4)]
    assert ends_us(made_work([*calls, Call(10, 5, [Op(1, 6)])])) == [56, 56 + 4 + 10 + 6 + 1]


def test_an_operation_waits_for_another_stream():
    copy = Op(30, 6, stream=1)
    kernel = Op(10, 6, other=0, other_lag=2)
    assert ends_us(made_work([Call(0, 5, [copy]), Call(0, 5, [kernel])])) == [36, 48]


def test_round_and_round_a_step_takes_what_limits_it():
    """The host needs 8 us for each launch, the GPU a kernel and 1 us."""
    for kernel_us, taken_us in ((3, 8 * 4), (20, 21 * 4)):
        calls = [Call(3, 5, [Op(kernel_us, 6, stream_lag=1)]) for _ in range(4)]
        assert step_us(made_work(calls)) == pytest.approx(taken_us)
    two_steps = made_work([Call(3, 5, [Op(20, 6, stream_lag=1)]) for _ in range(4)], (0, 2, 4))
    assert step_us(two_steps) == pytest.approx(42)


def test_what_is_waited_for_a_round_later():
    """A call that waits for the kernel behind it waits for that of the round before."""
    calls = [Call(1, 2, kind=WAITING, awaited=0, wait_lag=4), Call(1, 5, [Op(50, 6)])]
    # 50 for the kernel, 4 until the wait returns, 1 and 6 until the next begins
    assert step_us(made_work(calls)) == pytest.approx(61)


def random_work(chance: np.random.Generator, forward: bool) -> Work:
    streams, calls, ops = int(chance.integers(1, 4)), [], 0
    for _ in range(int(chance.integers(1, 30))):
        made = []
        for _ in range(int(chance.integers(0, 4))):
            other = int(chance.integers(0, ops)) if ops and chance.random() < 0.2 else -1
            lags = chance.integers(-3, 9, 3).tolist()
            made.append(Op(int(chance.integers(0, 40)), *lags[:1], int(chance.integers(streams))))
            made[-1].stream_lag, made[-1].other, made[-1].other_lag = abs(lags[1]), other, lags[2]
            ops += 1
        awaited = int(chance.integers(0, ops)) if ops and chance.random() < 0.3 else -1
        calls.append(Call(*chance.integers(0, 20, 2).tolist(), made, OTHER, awaited, 3.0))
    if not ops:
        calls.append(Call(1, 1, [Op(5)]))
        ops = 1
    if forward:  # some wait for what comes later: a round before
        for call in calls:
            if chance.random() < 0.2:
                call.awaited = int(chance.integers(0, ops))
            for op in call.ops:
                op.other = int(chance.integers(0, ops)) if chance.random() < 0.1 else op.other
    return made_work(calls)


def test_runs_equal_one_by_one():
    for seed in range(500):
        work = random_work(np.random.default_rng(seed), forward=False)
        begin_ns = work.host.start_ns[0] - work.host.think_ns[0]
        assert begin_ns == 0
        np.testing.assert_allclose(replayed_ends(work), loop(work)[0][0], rtol=0, atol=1e-3)


def test_rounds_equal_one_by_one():
    for seed in range(500):
        work = random_work(np.random.default_rng(seed), forward=True)
        _, gpu, host = loop(work, ROUNDS)
        expected = max(gpu[-1] - gpu[-2], host[-1] - host[-2])
        assert steady_ms(work) == pytest.approx(expected / 1e6, abs=1e-9), seed
