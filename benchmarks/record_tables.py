"""Results of `records`: OUT/records.json with each process, and the tables of OUT/records.md.

What was not measured is None, and "not known" or "not reached" in the tables.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import quantiles
from typing import Literal

import msgspec

from benchmarks.measuring import spread
from cli.files import write_text
from profiling.analysis.bench.bench_records import Evaluation
from profiling.shared.json_records import JsonObject, read_json, to_json

RECORD, TABLES = "records.json", "records.md"
OURS, THEIRS = "ours", "nanoGPT"
Part = Literal["prepare", "char", "124m"]
ASIDE = ("usable_cores", "compute_threads")  # of the environment


@dataclass(frozen=True)
class Trial:
    """A process of the series."""

    part: Part
    side: str
    round: int = 0
    seed: int | None = None  # nanoGPT's train.py has one seed, which no key changes
    batch: int | None = None  # sequences of a step of 124m

    @property
    def name(self) -> str:
        parts = [self.part, *([self.batch] if self.batch else []), self.side, self.round + 1]
        return "-".join(map(str, parts))


@dataclass(frozen=True)
class Run:
    """A process that has ended."""

    trial: Trial
    command: list[str]  # arguments of python
    began: str  # UTC
    wall_s: float
    reached_s: float | None  # from its start to the line of the first loss below the record's
    reached_at: int | None  # iteration of that line
    best_val_loss: float | None
    last_val_loss: float | None
    step_ms: float  # median of rows_ms
    rows_ms: list[float]  # ms per step, the mean from line to line, behind the warm-up
    evaluations: list[Evaluation]
    mfu: float | None = None  # 0 to 1
    power_w: float | None = None  # of the GPU behind the warm-up
    energy_per_token_j: float | None = None  # by that power
    own_energy_per_token_j: float | None = None  # as the run's summary.json has it


class Gpu(msgspec.Struct):
    name: str


class Git(msgspec.Struct):
    commit: str
    dirty: bool


class Machine(msgspec.Struct):
    """The fields of an environment that the tables name."""

    python: str
    packages: dict[str, str | None]
    git: Git | None
    cuda: str | None
    driver: str | None
    gpus: list[Gpu]
    cpu_cores: int | None


@dataclass(frozen=True)
class Record:
    """Content of records.json."""

    asked: JsonObject  # keys that decide what the processes do
    environment: JsonObject  # machine, versions and commit
    text_sha256: str | None  # of the text of `char`
    theirs_commit: str | None  # None: no checkout, or no git repository
    theirs_sha256: dict[str, str]  # of nanoGPT's sources
    runs: list[Run] = field(default_factory=list)


def continue_record(out: Path, fresh: Record) -> Record:
    """The record in the folder `out`, or `fresh` if there is none.

    Raises ValueError if it has other keys, another machine, or other sources.
    """
    if not (out / RECORD).exists():
        return fresh
    earlier = read_json(out / RECORD, Record)
    texts = {earlier.text_sha256, fresh.text_sha256} - {None}  # None: `char` was not asked for
    changed = [
        *differing(earlier.asked, fresh.asked),
        *differing(earlier.environment, fresh.environment),
        *(["text"] if len(texts) > 1 else []),
        *(["sources of nanoGPT"] if earlier.theirs_sha256 != fresh.theirs_sha256 else []),
    ]
    if changed:
        other = ", ".join(changed)
        raise ValueError(f"out={out}: has a record with other {other}; name another folder")
    return replace(earlier, text_sha256=texts.pop() if texts else None)


def differing(before: JsonObject, now: JsonObject) -> list[str]:
    """Names of the values that differ, but for those that may change in a series."""
    names = sorted(before.keys() | now.keys())
    return [name for name in names if name not in ASIDE and before.get(name) != now.get(name)]


def save(record: Record, out: Path) -> None:
    write_text(out / RECORD, to_json(record, indent=1))
    write_text(out / TABLES, tables(record))


def tables(record: Record) -> str:
    """The record as Markdown: machine, a table for each part, and the commands."""
    char = [run for run in record.runs if run.trial.part == "char"]
    steps = [run for run in record.runs if run.trial.part == "124m"]
    commands = [f"{run.trial.name}: python {shlex.join(run.command)}" for run in record.runs]
    lines = [
        *("# Records", "", *facts(record), ""),
        *(char_tables(char, record.asked["loss"]) if char else []),
        *(step_tables(steps) if steps else []),
        *("## Commands", "", "nanoGPT's run in its checkout. Output: OUT/logs/NAME.log.", ""),
        *("```", *commands, "```"),
    ]
    return "\n".join(lines) + "\n"


def facts(record: Record) -> list[str]:
    machine = msgspec.convert(record.environment, Machine)
    packages = ", ".join(f"{name} {value}" for name, value in machine.packages.items() if value)
    began = sorted(run.began for run in record.runs)
    changed = ", with changed files" if machine.git and machine.git.dirty else ""
    sources = ", ".join(f"{name} {value}" for name, value in record.theirs_sha256.items())
    return [
        f"- Date: processes started from {began[0]} to {began[-1]}" if began else "- Date: none",
        f"- GPU: {', '.join(gpu.name for gpu in machine.gpus) or 'none'}; "
        f"driver {known(machine.driver)}; CUDA {known(machine.cuda)}; "
        f"{known(machine.cpu_cores)} CPU cores",
        f"- Python {machine.python}; {packages}",
        f"- Commit: {known(machine.git and machine.git.commit)}{changed}",
        f"- SHA-256 of the text: {known(record.text_sha256)}",
        f"- nanoGPT: commit {known(record.theirs_commit)}; SHA-256: {sources or 'not run'}",
    ]


def known(value: object) -> str:
    return "not known" if value is None else str(value)


def number(value: float | None, places: int, otherwise: str = "not known") -> str:
    return otherwise if value is None else f"{value:.{places}f}"


def grouped(runs: Sequence[Run]) -> dict[tuple[str, int | None], list[Run]]:
    """Runs by side and batch."""
    groups: dict[tuple[str, int | None], list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.trial.batch or 0, run.trial.side != OURS)):
        groups.setdefault((run.trial.side, run.trial.batch), []).append(run)
    return groups


def spread_of(values: Sequence[float | None], places: int, otherwise: str = "not known") -> str:
    """Median, least and most of the values that there are."""
    there = [value for value in values if value is not None]
    return spread(there, places) if there else otherwise


def char_tables(runs: list[Run], loss: object) -> list[str]:
    below = f"below {loss}, s"
    rows = ["## Time to a validation loss", "", "Medians, with the least and the most.", ""]
    rows += [f"| | reached | {below} | whole process, s | last loss | best loss | ms per step |"]
    rows += ["|---|---:|---:|---:|---:|---:|---:|"]
    for (side, _), group in grouped(runs).items():
        reached = [run.reached_s for run in group]
        cells = [
            f"{sum(each is not None for each in reached)} of {len(group)}",
            spread_of(reached, 2, "not reached"),
            spread_of([run.wall_s for run in group], 2),
            spread_of([run.last_val_loss for run in group], 4),
            spread_of([run.best_val_loss for run in group], 4),
            spread_of([run.step_ms for run in group], 2),
        ]
        rows += [f"| {side} | {' | '.join(cells)} |"]
    rows += ["", f"| process | seed | {below} | at iteration | whole process, s | last loss |"]
    rows[-1] += " best loss | ms per step |"
    rows += ["|---|---:|---:|---:|---:|---:|---:|---:|"]
    for run in runs:
        cells = [
            *(run.trial.name, str(run.trial.seed or "its own")),
            number(run.reached_s, 2, "not reached"),
            number(run.reached_at, 0, "not reached"),
            *(number(run.wall_s, 2), number(run.last_val_loss, 4)),
            *(number(run.best_val_loss, 4), number(run.step_ms, 2)),
        ]
        rows += [f"| {' | '.join(cells)} |"]
    return [*rows, ""]


def step_tables(runs: list[Run]) -> list[str]:
    rows = ["## GPT-2 124M", "", "Medians, with the least and the most.", ""]
    rows += ["| | batch | processes | ms per step | MFU, % | mJ per token | W |"]
    rows += ["|---|---:|---:|---:|---:|---:|---:|"]
    for (side, batch), group in grouped(runs).items():
        cells = [
            *(side, str(batch), str(len(group)), spread_of([run.step_ms for run in group], 2)),
            spread_of([times(run.mfu, 100) for run in group], 1),
            spread_of([times(run.energy_per_token_j, 1e3) for run in group], 3),
            spread_of([run.power_w for run in group], 0),
        ]
        rows += [f"| {' | '.join(cells)} |"]
    rows += ["", "| process | seed | ms per step (quartiles) | MFU, % | mJ per token |"]
    rows[-1] += " mJ by summary.json | whole process, s |"
    rows += ["|---|---:|---:|---:|---:|---:|---:|"]
    for run in runs:
        low, _, high = quantiles(run.rows_ms, n=4) if len(run.rows_ms) > 1 else (run.step_ms,) * 3
        cells = [
            *(run.trial.name, str(run.trial.seed or "its own")),
            f"{run.step_ms:.2f} ({low:.2f}, {high:.2f})",
            *(number(times(run.mfu, 100), 1), number(times(run.energy_per_token_j, 1e3), 3)),
            number(times(run.own_energy_per_token_j, 1e3), 3),
            number(run.wall_s, 2),
        ]
        rows += [f"| {' | '.join(cells)} |"]
    return [*rows, ""]


def times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
