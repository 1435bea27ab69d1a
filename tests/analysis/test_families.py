"""Families of kernels: names as profilers wrote them, and all names of the real captures."""

import numpy as np
import pytest

from profiling.analysis.gpu_work.families import (
    FAMILIES,
    KERNELS,
    attention_backend,
    families_of,
    family_of,
)
from profiling.report.palette import colours
from tests.helpers.captures import own, report_of
from tests.helpers.kernel_names import NAMES

FAMILY = {name: family for family, names in NAMES.items() for name in names}


@pytest.mark.parametrize("name", FAMILY)
def test_a_name_belongs_to_its_family(name):
    assert family_of(name) == FAMILY[name]


def test_every_family_has_names_here_and_no_name_has_two():
    assert set(NAMES) == set(FAMILIES) == {family for family, *_ in KERNELS} | {"other"}
    assert len(FAMILY) == sum(len(names) for names in NAMES.values())


def test_every_family_has_a_colour_of_its_own_in_both_themes():
    for theme in ("light", "dark"):
        known = colours(theme)
        assert len({known[family] for family in FAMILIES}) == len(FAMILIES)


@own
def test_less_than_a_hundredth_of_the_kernel_time_of_a_real_capture_is_unknown(capture):
    of = {row.family: row.percent for row in report_of(capture).families}
    assert of.get("other", 0) < 1
    assert sum(of.values()) == pytest.approx(100)


@own
def test_the_attention_that_ran_in_a_real_capture(capture):
    assert report_of(capture).attention_backend == capture.split("_")[0]


def test_which_attention_ran():
    assert attention_backend([]) is None
    assert attention_backend(["nvjet_a", "void softmax_warp_forward<float>"]) == "slow"
    assert attention_backend(["void pytorch_flash::flash_fwd_kernel<>", "softmax"]) == "flash"
    assert attention_backend(["nvjet_a"]) == "unknown"


LOOKUP, SORT = "indexSelectLargeIndex<float>", "cub::DeviceRadixSortOnesweepKernel<long>"
SCATTER, GRADIENT = "_scatter_gather_elementwise_kernel", "compute_grad_weight<float, long>"


@pytest.mark.parametrize(
    ("ran", "expected"),
    [
        ((LOOKUP, SORT, SCATTER), ["indexing", "indexing", "indexing"]),
        (
            (LOOKUP, SORT, SCATTER, GRADIENT),
            ["embedding", "embedding", "indexing", "embedding"],
        ),
    ],
)
def test_lookups_and_sorts_are_of_an_embedding_where_one_is_trained(ran, expected):
    found = families_of([*ran, "unused"], np.arange(len(ran)))
    assert [FAMILIES[family] for family in found[:-1]] == expected and found[-1] == -1
