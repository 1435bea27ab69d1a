"""Damaged captures: a share of what `python -m tests.soak damaged_captures` tries."""

import warnings

import pytest

from tests.soak.damage import alter_export
from tests.soak.damaged_captures import KINDS, export, opened, trial

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SEEDS, SEEDS_OF_TABLES = 50, 100  # without a table few exports are refused
SOME, NONE = {"read", "refused"}, {"refused"}
OUTCOMES = {  # kind -> what comes of its files; of the others it depends
    "bytes of an export": SOME,
    "cells of an export": SOME,
    "tables of an export": SOME,
    "bytes of a trace": SOME,
    "values of a trace": SOME,
    "beginning of a trace": NONE,
    "beginning of a packed export": NONE,
    "beginning of a packed trace": NONE,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_captures_are_read_or_refused(tmp_path, kind):
    seeds = SEEDS_OF_TABLES if kind == "tables of an export" else SEEDS
    trials = [trial(kind, seed, tmp_path) for seed in range(seeds)]
    assert [(each.seed, each.failure) for each in trials if each.failure] == []
    outcomes = {each.outcome for each in trials}
    assert "refused" in outcomes and outcomes == OUTCOMES.get(kind, outcomes)


def test_nothing_but_errors_is_raised_under_strict_warnings(tmp_path):
    """Uses that numpy deprecates are to become errors; either way the file is refused."""
    path = tmp_path / "x.sqlite"
    query = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'text' WHERE rowid = 2"
    path.write_bytes(alter_export(export(), lambda database: database.execute(query)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert opened(path) is None
