"""Late ranks with more work, which has to be there in nearly each step to be the rank's own."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.fleet.simulation import Fault, Fleet
from profiling.analysis.ranks.cause import lateness_by_work
from profiling.analysis.ranks.costs import EQUAL_GPUS
from tests.helpers.fleet import analyse_files, write_fleet

TWICE = Fleet(ranks=4, steps=12, fault=Fault("more_kernels", times=2.0))
TWICE_EVERY_THIRD = replace(TWICE, fault=Fault("more_kernels", times=2.0, every=3))


def test_more_work_in_each_step_is_the_rank_s_own(tmp_path: Path) -> None:
    lateness = lateness_by_work(analyse_files(write_fleet(TWICE, tmp_path)).costs, [1])
    assert lateness is not None and lateness.part == "compute"


def test_a_slightly_slower_gpu_has_no_more_work_in_each_step(tmp_path: Path) -> None:
    """A GPU that computes longer than the others in each step, with more work in every third."""
    costs = analyse_files(write_fleet(TWICE_EVERY_THIRD, tmp_path)).costs
    computes_ns = [rank.parts_ns["compute"] for rank in costs.ranks]
    slower_ns = computes_ns[1] + 0.5 * EQUAL_GPUS * costs.step_ms * 1e6
    assert np.all(slower_ns > np.median(computes_ns, axis=0))
    late = costs.ranks[1]
    slower = replace(late, parts_ns=late.parts_ns | {"compute": slower_ns})
    ranks = [costs.ranks[0], slower, *costs.ranks[2:]]
    assert lateness_by_work(replace(costs, ranks=ranks), [1]) is None
