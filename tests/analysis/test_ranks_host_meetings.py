"""Hosts that meet: what one of them waits there for the last is no work of its own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fleet.simulation import Fleet
from profiling.analysis.columns import union
from profiling.analysis.ranks.host_meetings import without_meetings
from profiling.analysis.ranks.own_host import OwnHost, Pauses, pauses_in_steps
from profiling.analysis.ranks.summary import RanksAnalysis
from tests.helpers.fleet import analyse_files, write_fleet

MS = 1_000_000
STEP, LAUNCHES = 3, 7  # the place where the hosts meet


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> RanksAnalysis:
    """Two ranks on clocks that differ."""
    folder: Path = tmp_path_factory.mktemp("pair")
    return analyse_files(write_fleet(Fleet(ranks=2, buckets=1), folder))


def pause(end_ns: int, ms: float, step: int = STEP, launches: int = LAUNCHES) -> Pauses:
    start_ns = end_ns - int(ms * MS)
    return Pauses(*(np.array([n]) for n in (start_ns, end_ns, step, launches, end_ns - start_ns)))


def own_ms(pair: RanksAnalysis, first: Pauses, second: Pauses) -> list[float]:
    """Time of each host in the step of the meeting, of 50 ms with all waits; the pauses' ends are
    given on a common clock."""
    ranks = []
    for rank, pauses, offset_ns in zip(
        pair.ranks, (first, second), pair.clocks.offset_ns.tolist(), strict=True
    ):
        there = replace(
            pauses, start_ns=pauses.start_ns + offset_ns, end_ns=pauses.end_ns + offset_ns
        )
        host = OwnHost(np.full(rank.steps, 50.0 * MS), 0.0, there)
        ranks.append(replace(rank, own_host=host))
    hosts = [rank.own_host for rank in without_meetings(ranks, pair.clocks)]
    assert all(host is not None and host.step_ns[0] == 50 * MS for host in hosts)
    return [float(host.step_ns[STEP]) / MS for host in hosts if host is not None]


def test_a_host_waits_for_the_last_to_come(pair: RanksAnalysis) -> None:
    assert np.ptp(pair.clocks.offset_ns) > 1000 * MS
    met = own_ms(pair, pause(100 * MS, 40.0), pause(100 * MS + MS // 4, 1.0))
    assert met == pytest.approx([50 - 39, 50])


def test_a_known_wait_in_a_pause_is_not_taken_off_twice(pair: RanksAnalysis) -> None:
    partly = replace(pause(100 * MS, 40.0), own_ns=np.array([5 * MS]))
    assert own_ms(pair, partly, pause(100 * MS, 1.0)) == pytest.approx([50 - 5, 50])


@pytest.mark.parametrize(
    "other",
    [
        pause(102 * MS, 1.0),
        pause(100 * MS, 1.0, step=STEP + 1),
        pause(100 * MS, 1.0, launches=LAUNCHES + 1),
    ],
    ids=["goes on later", "in another step", "at another place"],
)
def test_pauses_that_are_no_meeting_stay_the_host_s_own(pair: RanksAnalysis, other: Pauses) -> None:
    assert own_ms(pair, pause(100 * MS, 40.0), other) == [50, 50]


def test_hosts_that_pause_for_as_long_have_the_same_work(pair: RanksAnalysis) -> None:
    assert own_ms(pair, pause(100 * MS, 40.0), pause(100 * MS, 40.0)) == [50, 50]


def test_a_pause_lies_in_the_step_in_which_it_ends_behind_that_step_s_launches() -> None:
    quiet = union(np.array([0, 80, 190, 290]), np.array([10, 130, 195, 320]))
    waits = union(np.array([120]), np.array([125]))
    edges_ns, launch_ns = np.array([50, 100, 200, 300]), np.array([60, 105, 110, 130, 196])
    pauses = pauses_in_steps(quiet, waits, edges_ns, launch_ns)
    assert pauses.start_ns.tolist() == [80, 190], "the others end before or behind the steps"
    assert (pauses.step.tolist(), pauses.launches.tolist()) == ([1, 1], [2, 3])
    assert pauses.own_ns.tolist() == [45, 5]
