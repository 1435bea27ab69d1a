"""Waits of ranks for each other: the arithmetic, what is timed, and when a line is printed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from configs.command_line import compose_one
from profiling.verbs.run import parse
from tests.helpers.clock import GivenClock
from training.metrics.rank_waits import (
    MOST_ITERATIONS,
    MOST_RANKS,
    Waits,
    exchange_readings,
    waits_of,
)
from training.metrics.run_verdict import Steps, run_verdict
from training.metrics.slow_ranks import LONG_ITERATIONS, LONG_S, SlowRanks
from training.ranks.distributed import Ranks
from training.ranks.next_commands import capture_of_ranks
from training.step.clock import HostClock, Laps

TRANSFER_MS = 2.0
TWO = Ranks(0, 2, torch.device("cpu"))
SECONDS = {"start_up": 1.0, "compile": 0.0, "training": 80.0, "evaluation": 1.0, "checkpoint": 0.0}


def waits(*work_ms, iterations=10) -> Waits:
    """Waits of ranks that compute so long before each all-reduce: a number, or one for each
    iteration."""
    work = np.stack([np.broadcast_to(ms, iterations) for ms in work_ms]).astype(float)
    sync_ms = work.max(axis=0) - work + TRANSFER_MS
    return waits_of(work + sync_ms, sync_ms)


@pytest.mark.parametrize(
    "work_ms, stragglers, cost_ms, mean_wait_ms",
    [
        ([8, 12], (1,), 4, 2),
        ([8, 8, 8, 12.5], (3,), 4.5, 4.5 * 3 / 4),
        ([12, 12.1, 8, 8], (0, 1), 4.1, (0.1 + 4.1 * 2) / 4),  # a slow host
        ([8, 8, 8, 5], (), 0, 3 / 4),  # one that is fast costs nobody anything
        ([8, 8, 8], (), 0, 0),
        ([[8, 12] * 5, [12, 8] * 5], (), 0, 2),  # now this one, now that one
        ([[8, 12] * 5, 8, 8], (0,), 2, 4 / 3),  # in half of the iterations
    ],
)
def test_stragglers_and_what_they_cost(work_ms, stragglers, cost_ms, mean_wait_ms):
    found = waits(*work_ms)
    assert found.stragglers == stragglers
    assert found.straggler_ms == pytest.approx(cost_ms)
    assert found.wait_ms.mean() == pytest.approx(mean_wait_ms)
    assert found.sync_ms == pytest.approx(TRANSFER_MS)
    assert found.own_ms + found.wait_ms + found.sync_ms == pytest.approx(found.step_ms)


@pytest.mark.parametrize("others", [(8, 8), ([8, 10] * 5, [10, 8] * 5), ([8, 14] * 5, 8)])
def test_without_its_straggler_a_step_is_shorter_by_what_it_costs(others):
    """The others may be late in turns, even later than the straggler."""
    slow, even = waits(*others, 12.5), waits(*others, 8)
    assert slow.stragglers == (2,)
    assert slow.step_ms - even.step_ms == pytest.approx(slow.straggler_ms)


def test_a_row_names_the_slowest_and_the_fastest_and_each_of_a_few():
    row = waits(8, 12, 9).metrics()
    assert row == pytest.approx(
        {
            "time/wait_ms": 7 / 3,
            "time/straggler_ms": 3.0,
            "time/sync_ms": TRANSFER_MS,
            "time/slowest_rank": 1,
            "time/slowest_rank_ms": 12.0,
            "time/fastest_rank": 0,
            "time/fastest_rank_ms": 8.0,
            "time/wait_ms/rank0": 4.0,
            "time/wait_ms/rank1": 0.0,
            "time/wait_ms/rank2": 3.0,
        }
    )
    many = waits(*[8.0] * 511, 9.0).metrics()
    assert many["time/slowest_rank"] == 511 and many["time/straggler_ms"] == pytest.approx(1.0)
    assert MOST_RANKS < 512 and not [name for name in many if "wait_ms/rank" in name]


def test_the_waits_of_two_rows_are_those_of_all_their_iterations():
    jitter = np.random.default_rng(0).uniform(8, 12, (3, 30))
    both = waits(*jitter[:, :10]) + waits(*jitter[:, 10:], iterations=20)
    whole = waits(*jitter, iterations=30)
    assert both.iterations == 30 and both.step_ms == pytest.approx(whole.step_ms)
    assert both.wait_ms == pytest.approx(whole.wait_ms)
    assert both.own_ms == pytest.approx(whole.own_ms)
    assert both.alone_ms == pytest.approx(whole.alone_ms)
    assert both.sync_ms == pytest.approx(whole.sync_ms)


def test_synchronisation_is_timed_in_ordinary_iterations():
    # a start; begin and end of the synchronisation, then the end of the iteration, in seconds
    laps_s = [(1, 3, 4), (5, 8, 10), (11, 12, 20), (21, 25, 30)]
    clock = GivenClock([0, 0, *(moment for lap in laps_s for moment in lap)], synchronises=True)
    clock.start()
    for label in (None, None, "captured", None):
        with clock.synchronisation():
            pass
        clock.lap(label)
    laps = clock.read()
    assert laps.ms == [4e3, 6e3, 10e3]
    # nothing of the first: behind a start ranks wait for what one of them did aside
    assert laps.synchronised_ms == [(6e3, 3e3), (10e3, 4e3)]
    assert clock.read().synchronised_ms == []


def test_what_is_waited_for_in_a_log_is_part_of_the_next_iteration():
    moments_s = [
        *(0, 0, 1, 2, 4),  # a start, synchronisation, end of an iteration
        *(5, 25, 26, 27, 30),  # a log in which 20 s are waited, synchronisation, end
        *(31, 41, 50, 51, 52, 60),  # a log; an evaluation and a start; synchronisation, end
        *(61, 63, 70),  # synchronisation, end
    ]
    clock = GivenClock(moments_s, synchronises=True)

    def synchronise() -> None:
        with clock.synchronisation():
            pass

    clock.start()
    for happens in (
        *(synchronise, clock.lap),
        *(synchronise, synchronise, clock.lap),
        *(synchronise, clock.start, synchronise, clock.lap),
        *(synchronise, clock.lap),
    ):
        happens()
    assert clock.read().synchronised_ms == [(26e3, 21e3), (10e3, 2e3)]


def test_one_rank_alone_marks_no_synchronisation_and_writes_no_wait():
    clock = GivenClock([0, 1, 2, 3], synchronises=False)
    clock.lap()
    with clock.synchronisation():
        pass
    clock.lap()
    laps = clock.read()
    assert laps.ms == [1e3, 1e3] and laps.synchronised_ms == []
    alone = Ranks(0, 1, torch.device("cpu"))
    means, waits = exchange_readings(LOSS, laps, alone)
    assert means == {"train/loss": 2.0} and waits is None
    slow_ranks = SlowRanks(alone, "out", alert=pytest.fail)
    assert slow_ranks.read(waits) == slow_ranks.summary() == {}


class DeviceBehind(HostClock):
    """Clock of a device that works in order, and comes to a mark when done with all before it."""

    def __init__(self) -> None:
        self.now_s = self.busy_until_s = 0.0
        super().__init__(0, synchronises=True)

    def launch(self, seconds: float) -> None:
        self.busy_until_s = self.mark() + seconds

    def mark(self) -> float:
        return max(self.now_s, self.busy_until_s)


@pytest.mark.parametrize("work_s, idle_s", [(30, 0), (20, 0), (12, 8)])
def test_a_wait_of_the_host_counts_as_far_as_its_device_idles(work_s, idle_s):
    """The host stands for 20 s where a row is written, behind the launch of an iteration."""
    clock = DeviceBehind()
    clock.launch(work_s)
    clock.lap()
    with clock.synchronisation():
        clock.now_s += 20
    clock.launch(5)
    clock.lap()
    laps = clock.read()
    assert laps.ms == [work_s * 1e3, (idle_s + 5) * 1e3]
    assert laps.synchronised_ms == [((idle_s + 5) * 1e3, idle_s * 1e3)]


TIMES = 2 * MOST_ITERATIONS


class Exchange(Ranks):
    """Rank 0 of three; each of the others comes a millisecond later than the one before it, and
    reads a loss that is larger by 3."""

    def gather(self, value):
        assert value.shape == (1 + TIMES,) and value.dtype == torch.float64
        later = torch.tensor([3.0] + [0.0, -1.0] * MOST_ITERATIONS)
        return [value + rank * later for rank in range(self.world_size)]


LOSS = {"train/loss": torch.tensor(2.0)}


def test_ranks_exchange_no_more_than_the_last_iterations_of_a_long_row():
    laps = Laps([], [], synchronised_ms=[(1e6, 9.0)] * 5 + [(20.0, 6.0)] * MOST_ITERATIONS)
    means, found = exchange_readings(LOSS, laps, Exchange(0, 3, torch.device("cpu")))
    assert means == {"train/loss": 5.0}
    assert found.iterations == MOST_ITERATIONS and found.step_ms == 20.0
    assert found.wait_ms.tolist() == [2.0, 1.0, 0.0] and found.own_ms.tolist() == [14, 15, 16]


@pytest.fixture
def lines_after(caplog):
    """lines_after(rows): the lines after these rows, each of which is a second of training.

    Each line is an alert, too, without the command, which names the folder.
    """

    def of(rows):
        alerts = []
        watch = SlowRanks(TWO, "out", alerts.append)
        for row in rows:
            watch.watch(replace(row, iterations=round(1e3 / row.step_ms)))
        lines = [record.getMessage() for record in caplog.records]
        assert [alert.text for alert in alerts] == [line.split("; to see")[0] for line in lines]
        return lines

    return of


SLOW, EVEN, OTHER = waits(8, 12), waits(8, 8), waits(12, 8)
LONG = round(LONG_S) + 1


def test_a_rank_that_is_slower_for_long_is_said_once(lines_after):
    (line,) = lines_after([SLOW] * 5 * LONG)
    assert line == (
        "the others wait 4.00 of each 14.00 ms step for rank 1: rank 1 works 12.00 ms, rank 0 "
        "8.00; to see why: start it with profile=torch profile.ranks=[0,1], then python -m "
        "profiling compare out/profile/window-1-rank0.trace.json.gz "
        "out/profile/window-1-rank1.trace.json.gz"
    )


def test_a_rank_that_catches_up_and_falls_back_is_said_again(lines_after):
    assert len(lines_after([SLOW] * LONG + [EVEN] * 2 * LONG + [SLOW] * 2 * LONG)) == 2


def test_another_slow_rank_is_said_too(lines_after):
    first, second = lines_after([SLOW] * 2 * LONG + [OTHER] * 3 * LONG)
    assert "step for rank 1: " in first and "step for rank 0: " in second


@pytest.mark.parametrize(
    "rows",
    [
        [SLOW] * (LONG // 2),  # not for long
        [waits(8, 8.3)] * 3 * LONG,  # by less than 5 % of the step
        [SLOW, OTHER] * 3 * LONG,  # each as often
        [EVEN] * 3 * LONG,
    ],
)
def test_what_is_not_said(lines_after, rows):
    assert lines_after(rows) == []


def test_a_few_iterations_are_not_long_however_slow_they_are(caplog):
    watch = SlowRanks(TWO, "out", lambda alert: None)
    for _ in range(LONG_ITERATIONS):
        assert not caplog.records
        watch.watch(waits(8e3, 12e3, iterations=1))
    assert len(caplog.records) == 1


def test_many_slow_ranks_are_counted(lines_after):
    (line,) = lines_after([waits(*[12.0] * 6, *[8.0] * 6)] * LONG)
    assert "step for ranks 0, 1, 2, 3 and 2 more: rank 0 works 12.00 ms, rank 6 8.00" in line


def test_a_capture_of_all_ranks_is_one_command_on_one_host(run, monkeypatch):
    cuda = Ranks(0, 8, torch.device("cuda", 0))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    out_dir = str(run(max_iters=30, eval_interval=30))  # a window fits into it
    program, typed = capture_of_ranks(out_dir, cuda, 3, 1).split(" run ")
    flags, words, _ = parse(typed.split())
    assert program == "python -m profiling"
    assert flags.nproc_per_node == 8 and flags.ranks == "all"
    config = compose_one([*words, "profile=nsys"])
    assert config.out_dir == f"{out_dir}-ranks" and config.init_from == "scratch"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")  # of eight: another host has the others
    there = capture_of_ranks(out_dir, cuda, 3, 1)
    assert there == "start it with profile=torch profile.ranks=[1,3]"


@pytest.mark.parametrize(
    "of_ranks, known, cause, evidence",
    [
        (SLOW, {}, "rank", "; the others wait 4.00 of each 14.00 ms step for rank 1: "),
        (SLOW, {"on_cpu": True}, "rank", "; the others wait 4.00 of each"),
        (SLOW, {"waiting_for_data_s": 60.0}, "rank", "; the others wait 4.00 of each"),
        (SLOW, {"waiting_for_data_s": 60.0, "host_ms": 14.0}, "data", "; the others wait 4.00"),
        (waits(8, 9), {}, "gpu", "; the others wait 1.00 of each 11.00 ms step for rank 1"),
        (waits(8, 8.1), {}, "gpu", ""),
        (waits([8, 12] * 5, [12, 8] * 5), {}, "gpu", "; ranks wait 2.00 of each 14.00 ms step"),
        (None, {}, "gpu", ""),
    ],
)
def test_the_end_says_whether_a_slow_rank_held_the_run_back(of_ranks, known, cause, evidence):
    unknown = dict(waiting_for_data_s=0.4, on_cpu=False, gpu_busy_percent=None, cpu_percent=None)
    found = run_verdict(
        SECONDS, Steps(**{**unknown, "step_ms": 14.0, "host_ms": 1.0, **known}, waits=of_ranks)
    )
    assert found.cause == cause and evidence in found.sentence
    assert found.sentence.startswith("Held back by a slow rank: ") == (cause == "rank")
    assert ("wait" in found.sentence.replace("waited", "")) == bool(evidence)
