"""Faults of one rank among several: their rank, and the judgement of the answer."""

from dataclasses import replace

import pytest

from data.batches import Batches
from training.step import layout
from training.step.graphs import GraphedStep
from training.step.step import Step
from validation import planted, planted_ranks
from validation.planted_ranks import RanksDiagnosis, row
from validation.plants.ranks import LATE, OF_RANKS, refuse_rows

PATCHED = [(owner, method) for owner in (Step, GraphedStep) for method in ("forward", "update")] + [
    (Batches, "draw")
]


@pytest.fixture
def methods(monkeypatch):
    """The methods as they are now; they are so again when the test has ended."""
    for owner, method in PATCHED:
        monkeypatch.setattr(owner, method, getattr(owner, method))
    monkeypatch.setattr(layout, "rows_travel", layout.rows_travel)
    before = [getattr(owner, method) for owner, method in PATCHED]
    return lambda: sum(
        getattr(owner, method) is not was
        for (owner, method), was in zip(PATCHED, before, strict=True)
    )


@pytest.mark.parametrize("name", OF_RANKS)
def test_only_the_late_rank_has_the_fault(methods, monkeypatch, name):
    plant = OF_RANKS[name]
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", str(1 - LATE))
    plant.put()
    on_the_other = methods()
    monkeypatch.setenv("RANK", str(LATE))
    plant.put()
    changed = methods()
    if plant.late_rank is not None:
        assert on_the_other == 0 and changed > 0
    else:
        assert on_the_other == changed  # all have it, or none
    assert plant.environ or name == "no_fault" or changed > 0


def test_no_rank_gets_a_larger_share_where_rows_travel(config):
    """Ranks would wait for ever: each sends as many rows."""
    keys = dict(block_size=1024, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="^batch_size=12: .* give batch_size=25 or more$"):
        refuse_rows(config(batch_size=12, **keys), 2, 50257)
    assert refuse_rows(config(batch_size=25, **keys), 2, 50257) is False


@pytest.mark.parametrize(
    ("main", "config"),
    [
        (planted.main, planted.PlantedConfig(plants="tiny_micro_batches", reread=True)),
        (planted_ranks.main, planted_ranks.PlantedRanksConfig(plants="no_fault", reread=True)),
    ],
)
def test_nothing_to_read_again_is_refused(tmp_path, capsys, main, config):
    (tmp_path / config.plants / "nsys" / "profile").mkdir(parents=True)
    (tmp_path / "results.json").write_text("of before")
    with pytest.raises(ValueError, match=f"^out={tmp_path}: has no captures; leave reread=true"):
        main(replace(config, out=str(tmp_path)))
    assert capsys.readouterr().out == ""
    assert (tmp_path / "results.json").read_text() == "of before"


def test_a_capture_that_failed_is_in_the_exit_code(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(planted_ranks, "check_machine", lambda out: None)
    monkeypatch.setattr(planted_ranks, "record", lambda *_: "torch ended with 1; the end of ...")
    config = planted_ranks.PlantedRanksConfig(plants="no_fault", out=str(tmp_path))
    with pytest.raises(SystemExit, match="^planted_ranks: failed: no_fault, no_fault by nsys, "):
        planted_ranks.main(config)
    said = capsys.readouterr()
    assert "0 of 2 right" in said.out and "no_fault: torch ended with 1" in said.err
    assert (tmp_path / "results.json").exists()


def diagnosis(**more) -> RanksDiagnosis:
    known = dict(
        plant="extra_products", planted="gpu_compute", late_rank=1, tool="nsys",
        verdict="straggler", rank=1, because="gpu_compute", costs_ms=4.0, true_ms=4.3, evidence=[],
    )  # fmt: skip
    return RanksDiagnosis(**known | more)


def test_right_is_rank_and_cause_and_close_is_the_cost():
    assert diagnosis().is_right and diagnosis().is_close
    assert not diagnosis(rank=0).is_right and not diagnosis(because="cpu").is_right
    assert diagnosis(costs_ms=6.0).is_close is False
    assert diagnosis(costs_ms=6.0, between_ms=(4.2, 7.0)).is_close
    balanced = diagnosis(
        late_rank=None, planted="balanced", verdict="balanced", rank=None, because=None
    )
    assert balanced.is_right and balanced.is_close is None
    missing = diagnosis(verdict=None, rank=None, because=None, costs_ms=None)
    assert not missing.is_right and missing.is_close is None
    assert row(diagnosis()) == (
        "| extra_products | 1 | gpu_compute | nsys | rank 1, gpu_compute | 4.00 | 4.30 | yes |"
    )
