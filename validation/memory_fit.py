"""Peaks as `report --fit` predicts them, and as they are when they are tried.

    python -m validation memory_fit out=out-memory-fit
    python -m validation memory_fit out=out-memory-fit at_once=4 limit_s=300
    python -m validation memory_fit small=true

Each program runs three steps in a process of its own, with PyTorch's memory history recorded from
the first allocation on. `report SNAPSHOT [SNAPSHOT] --fit --predict CHANGE` of one or two of them
predicts another one, which is tried likewise. Prints a row for each prediction: the expected peak
and its bounds, `torch.cuda.max_memory_allocated` as tried, the error in percent; and whether the
peak in the JSON of `report` is that number to the byte, for every program. The goal is an error of
3 % at most. docs/usage.md says what is assumed.

There are 14 configurations of the trainer (batch, context, layers, width, attention, type, compile,
checkpointing, optimizer) and two programs of others, transformers and torchvision, one of them with
moments in bfloat16; about 4 minutes on an H100. What was measured is in OUT/measured as soon as it
is there: a command that was stopped goes on where it is typed again, and tries again what failed,
one at a time. `limit_s` starts no program later than that. The table is in OUT/table.md, too, all
figures in OUT/predicted.jsonl; the snapshots are in OUT/snapshots, compressed.

Needs one GPU of 80 GB (PyTorch's allocator for a CPU has no history): `pip install transformers
torchvision` for the programs of others, which are left out where these are missing. `small=true`
runs all programs on a CPU in small sizes, to try the command: it has no peaks.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from benchmarks.measuring import Keys, key, say
from cli.files import write_text
from profiling.analysis.memory.memory_records import MemoryReport, Predicted
from profiling.shared.json_records import read_json, to_json
from profiling.shared.units import binary_bytes
from profiling.verbs import report
from validation.diagnoses import end_where_failed
from validation.frameworks import is_installed
from validation.packed_snapshots import pack, unpacked
from validation.recorded_memory import Tried
from validation.started_programs import run_logged

EAGER = (
    "compile=false cuda_graphs=false kernels=compiled dropout=0 dtype=bfloat16 "
    "n_layer=12 n_head=12 n_embd=768 attention=flash gradient_accumulation_steps=1"
)
TINY = "n_layer=2 n_head=2 n_embd=32 dtype=float32 attention=slow compile=false"  # small=true
GOAL_PERCENT = 3.0
SNAPSHOTS = "snapshots"  # folder in `out`
LONGEST_S = 150.0


@dataclass(frozen=True)
class Run:
    """A program that is run."""

    kind: str  # of recorded_memory.KINDS
    batch: int
    context: int  # tokens; of pictures the pixels of a side
    keys: str = ""  # what differs from EAGER

    @property
    def name(self) -> str:
        words = [self.kind, f"b{self.batch}", f"c{self.context}", *self.keys.split()]
        return "-".join(word.replace("=", "_") for word in words)


@dataclass(frozen=True)
class Trial:
    """A prediction from the snapshots of one or two programs, and the program that it is about."""

    change: str  # as --predict takes it
    tried: Run
    snapshots: tuple[Run, ...]


@dataclass(frozen=True)
class Row:
    """A prediction and what came out; a line of predicted.jsonl."""

    program: str
    snapshots: list[str]
    predicted: Predicted
    tried: Tried

    @property
    def error_percent(self) -> float | None:
        if self.predicted.peak_bytes is None or self.tried.peak_bytes is None:
            return None
        return 100 * (self.predicted.peak_bytes / self.tried.peak_bytes - 1)


def trainer(batch: int, context: int = 1024, keys: str = "") -> Run:
    return Run("trainer", batch, context, keys)


def trials() -> list[Trial]:
    flash = trainer(4), trainer(8)
    slow = trainer(4, 512, "attention=slow"), trainer(8, 512, "attention=slow")
    short = trainer(8, 256, "attention=slow"), slow[1]
    full, compiled = "activation_checkpointing=full", "compile=true"
    wide = "n_layer=6 n_embd=1536"
    floats, dropout, muon = "dtype=float32 attention=efficient", "dropout=0.1", "optimizer=muon"
    hugging = [Run("transformers", batch, 512) for batch in (4, 8, 16)]
    pictures = [Run("torchvision", batch, 224) for batch in (32, 64, 128)]
    return [
        Trial("batch=16", trainer(16), flash),
        Trial("batch=32", trainer(32), flash),
        Trial("batch=24", trainer(24), flash[1:]),
        Trial("batch=8,checkpointing", trainer(8, keys=full), flash[1:]),
        Trial("batch=32,checkpointing", trainer(32, keys=full), flash),
        Trial("context=2048", trainer(8, 2048), (trainer(8, 512), flash[1])),
        Trial("layers=24", trainer(8, keys="n_layer=24"), flash[1:]),
        Trial("batch=24", trainer(24, 512, "attention=slow"), slow),
        Trial("context=1024", trainer(8, 1024, "attention=slow"), short),
        Trial("batch=24", trainer(24, keys=compiled), (trainer(8, keys=compiled),)),
        Trial("batch=12", trainer(12, keys=floats), (trainer(4, keys=floats),)),
        Trial("batch=16", trainer(16, keys=dropout), (trainer(8, keys=dropout),)),
        Trial("batch=12", trainer(12, keys=wide), (trainer(4, keys=wide),)),
        Trial("batch=16", trainer(16, keys=muon), (trainer(8, keys=muon),)),
        Trial("batch=16", hugging[2], tuple(hugging[:2])),
        Trial("moments", Run("transformers", 8, 512, "moments=bfloat16"), (hugging[1],)),
        Trial("batch=128", pictures[2], tuple(pictures[:2])),
    ]


@dataclass
class FitConfig(Keys):
    out: str = key("out-memory-fit", "folder of snapshots and results")
    at_once: int = key(3, "programs at a time on the GPU", least=1)
    limit_s: float = key(0, "start no program later than this; 0: no limit", least=0)
    small: bool = key(False, "try the command on a CPU, in small sizes and without peaks")


def main(config: FitConfig) -> None:
    out = Path(config.out).resolve() / ("small" if config.small else "")
    for name in ("measured", SNAPSHOTS, "runs", "logs"):
        (out / name).mkdir(parents=True, exist_ok=True)
    chosen = [trial for trial in trials() if trial.tried.kind == "trainer" or has(trial.tried.kind)]
    failed = run_all(config, out, list(runs_of(chosen)))
    rows = [row for trial in chosen if (row := row_of(trial, out))]
    (out / "predicted.jsonl").write_text("".join(to_json(row, indent=None) for row in rows))
    table = "\n".join([*table_of(rows), "", *exactness(out, list(runs_of(chosen)))])
    write_text(out / "table.md", table + "\n")
    print(table)
    end_where_failed("memory_fit", failed, out / "logs")


def has(package: str) -> bool:
    """Whether a package is there; says so on stderr if it is not."""
    if not is_installed(package):
        print(f"left out: pip install {package}", file=sys.stderr)
        return False
    return True


def runs_of(chosen: Sequence[Trial]) -> Iterator[Run]:
    """The programs to run, each once: those first from which something is predicted."""
    snapshots = [run for trial in chosen for run in trial.snapshots]
    yield from dict.fromkeys([*snapshots, *(trial.tried for trial in chosen)])


def measured_at(out: Path, run: Run) -> Path:
    return out / "measured" / f"{run.name}.json"


def snapshot_at(out: Path, run: Run) -> Path:
    return out / SNAPSHOTS / f"{run.name}.pickle.xz"


def run_all(config: FitConfig, out: Path, runs: Sequence[Run]) -> list[str]:
    """Run what was not, and return the names of what failed twice: beside others, and alone."""
    begin_s = time.monotonic()
    left = [run for run in runs if not measured_at(out, run).exists()]

    def run_in_time(run: Run) -> bool:
        """Run a program unless it is too late; whether it failed."""
        late = 0 < config.limit_s < time.monotonic() - begin_s
        return not late and not run_one(run, config.small, out)

    with ThreadPoolExecutor(config.at_once) as pool:
        again = [run for run, bad in zip(left, pool.map(run_in_time, left), strict=True) if bad]
    return [run.name for run in again if run_in_time(run)]


def run_one(run: Run, small: bool, out: Path) -> bool:
    """Run a program; whether it was measured."""
    begin_s = time.monotonic()
    keys = merged(EAGER, run.keys, TINY if small else "")
    own = keys if run.kind == "trainer" else run.keys.split()
    batch, context = (2, 32) if small else (run.batch, run.context)
    snapshot, measured = (out / "runs" / f"{run.name}.{kind}" for kind in ("pickle", "json"))
    command = [sys.executable, "-m", "validation.recorded_memory", run.kind, str(batch)]
    command += [str(context), str(snapshot), str(measured), *own]
    environ = os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if small else {})
    try:
        run_logged(command, out / "logs" / f"{run.name}.log", environ, LONGEST_S)
        failed = False
    except ValueError:
        failed = True
    if not failed:
        if snapshot.exists():  # there is none on a CPU
            pack(snapshot, out / SNAPSHOTS)
        measured.rename(measured_at(out, run))
    took_s = time.monotonic() - begin_s
    say(f"{run.name}: {'failed, ' if failed else ''}{took_s:.0f} s")
    return not failed


def merged(*keys: str) -> list[str]:
    """The words of all, each key with its last value."""
    values = dict(word.split("=", 1) for word in " ".join(keys).split())
    return [f"{name}={value}" for name, value in values.items()]


def row_of(trial: Trial, out: Path) -> Row | None:
    """The prediction and what came out; None if one of the programs has no peak."""
    runs = [trial.tried, *trial.snapshots]
    if not all(measured_at(out, run).exists() and snapshot_at(out, run).exists() for run in runs):
        return None
    flags = ["--fit", "--predict", trial.change]
    flags += ["--batch", ",".join(str(run.batch) for run in trial.snapshots)]
    flags += ["--context", ",".join(str(run.context) for run in trial.snapshots)]
    fit = reported(out, trial.snapshots, flags).fit
    assert fit
    tried = read_json(measured_at(out, trial.tried), Tried)
    return Row(trial.tried.name, [run.name for run in trial.snapshots], fit.predicted[0], tried)


def reported(out: Path, runs: Sequence[Run], flags: Sequence[str] = ()) -> MemoryReport:
    """The JSON of `report` on the snapshots of these programs."""
    file = out / "report.json"
    with unpacked([snapshot_at(out, run) for run in runs]) as paths, redirect_stdout(StringIO()):
        report.main([*map(str, paths), *flags, "--json", str(file)])
    return read_json(file, MemoryReport)


def table_of(rows: Sequence[Row]) -> Iterator[str]:
    yield "| tried | from | change | predicted | between | tried | error | inside |"
    yield "|---|---|---|---:|---:|---:|---:|---|"
    for row in rows:
        guess, peak, error = row.predicted, row.tried.peak_bytes, row.error_percent
        cells = [row.program, " and ".join(row.snapshots), guess.change]
        least, most, between, inside = guess.least_bytes, guess.most_bytes, "–", "–"
        if least is not None and most is not None:
            between = f"{binary_bytes(least)} to {binary_bytes(most)}"
            inside = "yes" if least <= (peak or 0) <= most else "no"
        cells += [binary_bytes(guess.peak_bytes), between]
        cells += [binary_bytes(peak), guess.assumes if error is None else f"{error:+.2f} %"]
        cells.append(inside)
        yield f"| {' | '.join(cells)} |"
    errors = [abs(row.error_percent) for row in rows if row.error_percent is not None]
    within = sum(error <= GOAL_PERCENT for error in errors)
    largest = f", the largest error is {max(errors):.2f} %" if errors else ""
    yield f"\n{within} of {len(rows)} predictions are within {GOAL_PERCENT:g} %{largest}."


def exactness(out: Path, runs: Sequence[Run]) -> Iterator[str]:
    """A line for each program whose peak in the JSON is not the tried one, and their number."""
    measured = [run for run in runs if measured_at(out, run).exists()]
    recorded = [run for run in measured if snapshot_at(out, run).exists()]
    equal = 0
    for run in recorded:
        moment = reported(out, [run]).peak
        found = moment.allocated_bytes if moment else None
        tried = read_json(measured_at(out, run), Tried).peak_bytes
        equal += found == tried
        if found != tried:
            yield f"{run.name}: {found} bytes in the JSON, {tried} tried"
    counts = f"{len(measured)} of {len(runs)} programs were run"
    yield f"{counts}; {equal} of {len(recorded)} peaks in the JSON are the tried ones to the byte."
