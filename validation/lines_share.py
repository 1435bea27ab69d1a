"""Share of kernel time with a line of the program's own code, and what recording stacks costs.

    python -m validation lines_share out=out-lines-share
    python -m validation lines_share out=out-lines-share nanogpt=../nanoGPT limit_s=300
    python -m validation lines_share out=out-lines-share small=true programs=eager,timm

Our trainer eager, compiled and with its own kernels, nanoGPT, the Trainer of transformers and a
model of timm, each captured by torch.profiler with stacks and without, in processes that take
turns. The steps around each window are those without a profiler. A program has a row: how much of
its kernels' time has a line, how much is in CUDA graphs and so has none, the three lines with the
most ms per step, and the medians of its steps without a profiler, with it, and with stacks.
OUT/runs.jsonl has each process: a command that was stopped goes on where it is typed again.
`limit_s` ends it between processes.

Where nsys is installed, one program is recorded with its backtraces of CUDA calls, of C and of
Python, and OUT/nsys.log has the tables of the export that hold any, with their columns and first
rows. `small=true` tries those programs that run on a CPU, where operators stand for kernels.

Needs CUDA, transformers and timm. A program whose packages are missing is left out.
"""

import os
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch

from benchmarks.measuring import PROJECT, Keys, key, say
from profiling.analysis.open_report import open_report
from profiling.shared.json_records import append_lines, read_lines
from profiling.tools import nsys_tool
from validation.frameworks import install_command
from validation.made_nanogpt import make_nanogpt
from validation.started_programs import (
    chosen_names,
    python_path,
    run_each,
    run_logged,
    runnable,
)

GOAL_PERCENT = 95.0
EACH_S, LONGEST_S = 15.0, 150.0  # a process is expected to take, and takes at most
WINDOW = 10  # steps
OF_OTHERS = PROJECT / "validation" / "any_programs"
RUN = ("-m", "profiling", "run", "--kind", "torch", "--start", "40", "--steps", str(WINDOW))
TRAINING = (
    "max_iters=80 eval_interval=80 eval_iters=1 log_interval=10 wandb.mode=disabled "
    f"data_source=docs/guide.md profile=torch profile.start=40 profile.steps={WINDOW}"
).split()
PROVENANCE = {"INDUCTOR_PROVENANCE": "1"}  # and TORCH_TRACE: lines of compiled kernels
SMALL_NANOGPT = ["--device=cpu", "--dtype=float32", "--n_layer=2", "--n_embd=48", "--batch_size=4"]
BACKTRACES = ("--trace=cuda", "--sample=process-tree", "--cudabacktrace=kernel:0")
OF_PYTHON = "--python-backtrace=cuda"
OF_BACKTRACES = re.compile(r"CALLCHAIN|PYTHON|BACKTRACE", re.IGNORECASE)  # names of tables
MOST_ROWS = 8  # of a table in the log
COLUMNS = (
    "program",
    "with a line",
    "in a CUDA graph",
    "lines with the most, ms per step",
    "step without a profiler, ms",
    "torch.profiler",
    "with stacks",
)


@dataclass(frozen=True)
class Program:
    """A program: keys of our trainer, or a script of others."""

    keys: tuple[str, ...] = ()
    script: tuple[str, ...] = ()
    packages: str = ""
    on_cpu: bool = True


PROGRAMS = {
    "eager": Program(("compile=false", "kernels=compiled")),
    "compiled": Program(("compile=true", "kernels=compiled", "cuda_graphs=false"), on_cpu=False),
    "fused": Program(("kernels=fused", "cuda_graphs=false"), on_cpu=False),
    "nanogpt": Program(
        script=("train.py", "config/train_shakespeare_char.py", "--compile=False")
        + ("--max_iters=120", "--eval_interval=1000", "--eval_iters=2", "--log_interval=20")
    ),
    "hf_trainer": Program(
        script=(str(OF_OTHERS / "hugging_face.py"), "trainer_gpt2"), packages="transformers"
    ),
    "timm": Program(script=(str(OF_OTHERS / "vision.py"),), packages="timm"),
}


@dataclass
class LinesConfig(Keys):
    out: str = key("out-lines-share", "folder of the captures and of runs.jsonl")
    programs: str = key("all", "or names, by comma")
    rounds: int = key(2, "processes of each kind and program, in turns", least=1)
    nanogpt: str = key("", "a checkout of nanoGPT")
    nsys: str = key("", "this nsys; else the one that is found")
    limit_s: float = key(0, "start no process that would end later than this; 0: no limit", least=0)
    small: bool = key(False, "try the programs on the CPU")


@dataclass(frozen=True)
class Run:
    """A line of runs.jsonl: one process with a window."""

    program: str
    stack: bool
    device: str
    free_ms: float | None  # median of the steps around the window
    captured_ms: float | None  # and in it
    percent: float | None  # of the kernels' time that has a line; None: without stacks
    lines: list[str]  # the first three, with ms per step
    replayed_percent: float | None = None  # by CUDA graphs, so without a line


def main(config: LinesConfig) -> None:
    out = Path(config.out).resolve() / ("small" if config.small else "")
    out.mkdir(parents=True, exist_ok=True)
    names, file = chosen(config), out / "runs.jsonl"
    runs = read_lines(file, Run) if file.exists() else []
    failed = record_all(config, out, names, runs, file)
    print_table(names, runs)
    if not config.small and "nsys" not in failed:
        failed += look_at_nsys(config, out)
    if failed:
        sys.exit(f"lines_share: failed: {', '.join(failed)}; logs are in {out}")


def chosen(config: LinesConfig) -> list[str]:
    """The programs that can run here. Raises ValueError for a name that there is not."""
    names = chosen_names(config.programs, PROGRAMS)
    if not config.small and not torch.cuda.is_available():
        raise ValueError("lines_share: needs a CUDA GPU; small=true tries it on the CPU")
    return runnable(names, lambda name: missing_requirement(name, config))


def missing_requirement(name: str, config: LinesConfig) -> str:
    """Words for what the program needs and there is not; no text where there is all."""
    program = PROGRAMS[name]
    if command := install_command(program.packages):
        return command
    if name == "nanogpt" and not config.nanogpt:
        return "give nanogpt=FOLDER"
    return "it needs a GPU" if config.small and not program.on_cpu else ""


def record_all(
    config: LinesConfig, out: Path, names: list[str], runs: list[Run], file: Path
) -> list[str]:
    """Make the runs that there are not yet, add them; return the names of what failed."""

    def record_one(name: str, stack: bool) -> str:
        run = record(name, stack, config, out)
        append_lines(file, [run])
        runs.append(run)
        return "with stacks" if stack else "without"

    left = []
    for number in range(config.rounds):
        for name in names:
            kinds = (False, True) if number % 2 == 0 else (True, False)
            made = {
                kind: sum(r.program == name and r.stack == kind for r in runs) for kind in kinds
            }
            left += [(name, kind) for kind in kinds if made[kind] <= number]
    programs = [(name, partial(record_one, name, stack)) for name, stack in left]
    return run_each(programs, config.limit_s, EACH_S)


def record(name: str, stack: bool, config: LinesConfig, out: Path) -> Run:
    """Run the program once with a window. Raises ValueError where it fails."""
    program, kind = PROGRAMS[name], "stack" if stack else "torch"
    folder, log = out / name / kind, out / f"{name}-{kind}.log"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environ, place = dict(os.environ) | {"PYTHONPATH": python_path(os.environ)}, PROJECT
    if config.small:
        environ["CUDA_VISIBLE_DEVICES"] = ""
    if program.keys:
        file = f"configs/shakespeare_char{'_cpu' * config.small}.yaml"
        words = ["train.py", file, *program.keys, *TRAINING, f"out_dir={folder}"]
        words += ["profile.stack=true"] * stack
        if stack and "compile=true" in program.keys:
            environ |= PROVENANCE | {"TORCH_TRACE": str(folder / "profile")}
            words.append(f"compile_cache={out / 'compiled'}")  # what is cached tells no lines
    else:
        more = ["--stack"] * stack
        script = list(program.script)
        if name == "nanogpt":
            place = out / "nanoGPT"
            make_nanogpt(Path(config.nanogpt), place, "shakespeare_char", characters=65)
            script += SMALL_NANOGPT if config.small else []
        words = [*RUN, *more, "--out", str(folder), "--", sys.executable, *script]
    run_logged([sys.executable, *words], log, environ, LONGEST_S, place)
    return read_run(name, stack, folder)


def read_run(name: str, stack: bool, folder: Path) -> Run:
    """The run with what its capture says. Raises ValueError without one."""
    captures = sorted((folder / "profile").glob("*.trace.json.gz"))
    if not captures:
        raise ValueError(f"no capture in {folder}")
    opened = open_report(captures[0])
    steps, lines = opened.manifest and opened.manifest.step_ms, opened.report.lines
    free_ms = (
        [ms for side in (steps.before, steps.after) if side for ms in side.laps] if steps else []
    )
    captured_ms = steps.captured.median if steps and steps.captured else None
    first = [f"{row.place} {row.ms:.3g}" for row in lines.lines[:3]] if lines else []
    return Run(
        name,
        stack,
        torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        median(free_ms) if free_ms else None,
        captured_ms,
        lines.percent if lines else None,
        first,
        100 * lines.replayed_ns / lines.total_ns if lines and lines.total_ns else None,
    )


def print_table(names: list[str], runs: list[Run]) -> None:
    """Print a row for each program, and which are below the goal."""
    print(f"torch {torch.__version__}, {runs[-1].device if runs else 'nothing ran'}\n")
    print(f"| {' | '.join(COLUMNS)} |\n|---|---:|---:|---|---:|---:|---:|")
    below = []
    for name in names:
        mine = [run for run in runs if run.program == name]
        told = [run for run in mine if run.percent is not None]
        if not told:
            continue
        percent = told[0].percent or 0.0
        below += [name] * (percent < GOAL_PERCENT)
        free_ms = middle([run.free_ms for run in mine])
        times = [free_ms, *(middle([r.captured_ms for r in mine if r.stack == k]) for k in (0, 1))]
        replayed = told[0].replayed_percent
        cells = [name, f"{percent:.1f} %", "–" if replayed is None else f"{replayed:.1f} %"]
        cells.append("; ".join(told[0].lines))
        cells += [with_ratio(ms, free_ms if n else None) for n, ms in enumerate(times)]
        print(f"| {' | '.join(cells)} |")
    print(f"\nbelow {GOAL_PERCENT:g} %: {', '.join(below) or 'none'}")


def middle(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def with_ratio(ms: float | None, free_ms: float | None) -> str:
    if ms is None:
        return "–"
    return f"{ms:.3f}" + (f" ({100 * (ms / free_ms - 1):+.0f} %)" if free_ms else "")


def look_at_nsys(config: LinesConfig, out: Path) -> list[str]:
    """Record a program with nsys's backtraces, and write what its export has of them to a log.

    Returns ["nsys"] if that fails.
    """
    log = out / "nsys.log"
    if log.exists():
        return []
    try:
        nsys = nsys_tool.find(config.nsys or None)
    except ValueError as error:
        say(f"nsys is left out: {error}")
        return []
    report = out / "backtraces.nsys-rep"
    options = [*BACKTRACES, *([OF_PYTHON] if nsys.takes("python-backtrace") else [])]
    command = [nsys.path, "profile", *options, "--force-overwrite=true", "-o", str(report)]
    program = [sys.executable, str(OF_OTHERS / "loops.py"), "plain"]
    sqlite, said = report.with_suffix(".sqlite"), out / "nsys-run.log"
    export = nsys_tool.export_command(nsys.path, report, sqlite)
    try:
        run_logged([*command, *program], said, os.environ, LONGEST_S)
        run_logged(export, out / "nsys-export.log", os.environ, LONGEST_S)
    except ValueError as error:
        say(f"nsys: {error}")
        return ["nsys"]
    text = f"nsys {nsys.version}, {' '.join(options)}\n\n{backtrace_tables(sqlite)}"
    log.write_text(text, encoding="utf-8")
    print(f"\n{text.partition('columns')[0].rstrip()}\nmore in {log}")
    return []


def backtrace_tables(export: Path) -> str:
    """All tables with their counts, then columns and first rows of those that have backtraces."""
    with closing(sqlite3.connect(export)) as database:
        found = database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        )
        names = [name for (name,) in found]
        texts = {}
        if "StringIds" in names:
            texts = dict(database.execute("SELECT id, value FROM StringIds").fetchall())
        counts = {n: database.execute(f'SELECT COUNT(*) FROM "{n}"').fetchone()[0] for n in names}
        parts = ["tables: " + ", ".join(f"{name} {count}" for name, count in counts.items())]
        for name in [*filter(OF_BACKTRACES.search, names), "CUPTI_ACTIVITY_KIND_RUNTIME"]:
            if name in names:
                rows = database.execute(f'SELECT * FROM "{name}" LIMIT {MOST_ROWS}')
                columns = [column[0] for column in rows.description]
                parts.append(f"{name}, columns {', '.join(columns)}")
                parts += [row_with_texts(columns, row, texts) for row in rows]
    return "\n".join(parts) + "\n"


def row_with_texts(columns: list[str], row: tuple[object, ...], texts: dict[int, str]) -> str:
    """A row; in a column that may refer to a text, the number's text stands behind it."""
    cells = []
    for column, value in zip(columns, row, strict=True):
        text = texts.get(value) if isinstance(value, int) else None
        refers = re.search(r"symbol|module|name|file|function|source", column, re.IGNORECASE)
        cells.append(f"{column}={value!r}" + (f" {text!r}" if refers and text is not None else ""))
    return "  " + ", ".join(cells)
