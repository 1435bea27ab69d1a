"""Faults of one rank among several: their rank, and the judgement of the answer."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from data.batches import Batches
from training.step import layout
from training.step.graphs import GraphedStep
from training.step.step import Step
from validation import planted, planted_ranks, turns
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
    failed = iter([("no_fault", "torch ended with 1; the end of ...")])
    monkeypatch.setattr(planted_ranks, "record_each", lambda *_: (each for each in failed))
    config = planted_ranks.PlantedRanksConfig(plants="no_fault", out=str(tmp_path))
    with pytest.raises(SystemExit, match="^planted_ranks: failed: no_fault, no_fault by nsys, "):
        planted_ranks.main(config)
    said = capsys.readouterr()
    assert "0 of 2 right" in said.out and "no_fault: torch ended with 1" in said.err
    assert (tmp_path / "results.json").exists()


class Started:
    """Stands in for a training: what happens to it is in `happened`, behind its folder's name."""

    happened: list[str] = []
    statuses: dict[str, int] = {}

    def __init__(self, command, out_dir, environ, ranks):
        self.words, self.out_dir, self.environ = command, out_dir, environ
        self.process = SimpleNamespace(wait=lambda: self.note("ended"))
        out_dir.parent.mkdir(parents=True, exist_ok=True)
        self.note("starts")

    def note(self, what: str) -> None:
        self.happened.append(f"{self.out_dir.parent.name}/{self.out_dir.name} {what}")

    def wait_for(self, what: str) -> None:
        self.note(f"is {what}")

    def allow(self, what: str) -> None:
        self.out_dir.mkdir(exist_ok=True)
        self.note(f"may {what}")

    def finish(self) -> int:
        self.note("finished")
        return self.statuses.get(self.out_dir.name, 0)


@pytest.fixture
def started(monkeypatch):
    trainings = []
    monkeypatch.setattr(Started, "happened", [])
    monkeypatch.setattr(
        turns, "start", lambda *words: trainings.append(Started(*words)) or trainings[-1]
    )
    return trainings


def recorded(tmp_path, **keys) -> list[tuple[str, str | None]]:
    config = planted_ranks.PlantedRanksConfig(ranks=4, **keys)
    names, plants = list[tuple[str, str | None]](), ["no_fault", "ranks_link"]
    for name, problem in planted_ranks.record_each(plants, config, tmp_path):
        Started.happened.append(f"{name} is read")
        names.append((name, problem))
    return names


def test_the_next_plant_starts_up_while_the_captures_of_one_are_exported_and_read(
    started, tmp_path
):
    assert recorded(tmp_path) == [("no_fault", None), ("ranks_link", None)]
    happened = Started.happened
    assert happened[:3] == [
        "without/no_fault starts", "no_fault/torch starts", "no_fault/nsys starts"
    ]  # fmt: skip
    assert happened[3:6] == [f"{line.split()[0]} is ready" for line in happened[:3]]
    first, second, third = (line.split()[0] for line in happened[:3])
    assert happened[6:17] == [
        f"{first} may warm up", f"{first} may train", f"{first} is ended",
        f"{second} may warm up", f"{first} ended", f"{second} may train", f"{second} is ended",
        f"{third} may warm up", f"{second} ended", f"{third} may train", f"{third} is ended",
    ]  # fmt: skip
    order = [
        f"{third} is ended", "ranks_link/torch starts", "ranks_link/nsys starts",
        f"{third} finished", "no_fault is read", "ranks_link/torch is ready",
        "ranks_link/nsys may train", "ranks_link/nsys finished", "ranks_link is read",
    ]  # fmt: skip
    assert [line for line in happened if line in order] == order
    assert len(started) == 5, "the training without a fault is that of both plants"


def test_a_plant_is_trained_on_all_ranks_by_both_tools(started, tmp_path):
    recorded(tmp_path)
    without, by_torch, by_nsys, *_, link = started
    for training in (without, by_torch):
        assert (
            "--nproc-per-node=4" in training.words and "validation.planted_train" in training.words
        )
    assert "profile.ranks=[0,1,2,3]" in by_torch.words and "profile=torch" in by_torch.words
    flags = by_nsys.words[by_nsys.words.index("--nproc-per-node") :]
    assert flags[:4] == ["--nproc-per-node", "4", "--ranks", "all"]
    assert "profile.start=60" in by_nsys.words and "profile=torch" not in without.words
    assert link.environ["PLANT"] == "ranks_link" and link.environ["NCCL_P2P_DISABLE"] == "1"
    assert without.environ == {"PLANT": "no_fault"}


def test_what_failed_is_told_with_its_plant(started, tmp_path, monkeypatch):
    monkeypatch.setattr(Started, "statuses", {"nsys": 3})
    assert [problem.split(";")[0] for _, problem in recorded(tmp_path)] == ["nsys ended with 3"] * 2


def test_no_plant_starts_that_would_end_behind_the_limit(started, tmp_path, monkeypatch, capsys):
    clock = iter(range(0, 1000, 100))  # a plant takes 100 s
    monkeypatch.setattr(planted_ranks.time, "monotonic", lambda: next(clock))
    assert recorded(tmp_path, limit_s=300.0) == [("no_fault", None)]
    assert "left out, as limit_s=300 says: ranks_link" in capsys.readouterr().err
    assert Started.happened[-2:] == ["no_fault/nsys finished", "no_fault is read"]


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
