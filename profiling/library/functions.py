"""The five functions that notebooks and other programs import from `profiling`.

Each does what the verb of its name does, by that verb's own code, so both say the same. What the
verb refuses in one line is a ValueError with this line.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from functools import partial
from pathlib import Path
from typing import Literal

from cli.errors import file_message, one_line
from cli.lock import Lock
from profiling.analysis.difference import comparison
from profiling.analysis.open_report import Capture
from profiling.analysis.runs.folder import RunFolder, newest_capture, read_run
from profiling.analysis.statistics import EQUAL_WITHIN_PERCENT
from profiling.launch.any_program.start import refusal
from profiling.launch.experiment.processes import refuse_other_folder, save
from profiling.library.shown import (
    CaptureReport,
    ComparisonReport,
    ExperimentReport,
    in_notebook,
    page_of_capture,
    page_of_ranks,
)
from profiling.report.comparison.document import comparison_document, experiment_document
from profiling.report.ranks import document as of_ranks
from profiling.report.single.screen import first_screen
from profiling.report.single.verdict_line import verdict_line
from profiling.shared.secrets import without_secret_values
from profiling.verbs import ab as ab_verb
from profiling.verbs import compare as compare_verb
from profiling.verbs import report as report_verb
from profiling.verbs import run as run_verb
from profiling.verbs.run_program import FOLDER

Place = str | os.PathLike[str]  # of a file or a folder
Command = str | Sequence[str]  # a line as a shell reads it, or its words


@contextmanager
def as_python() -> Iterator[None]:
    """Raise ValueError with the line that a verb prints, for its mistakes and files out of reach.

    In a notebook, where stderr looks like an error, the verb's notes go to stdout.
    """
    notes = redirect_stderr(sys.stdout) if in_notebook() else nullcontext()
    try:
        with notes:
            yield
    except ValueError as error:
        raise ValueError(one_line(error)) from None
    except OSError as error:
        raise ValueError(one_line(file_message(error))) from None


@as_python()
def open_capture(
    path: Place,
    *,
    step: str | None = None,
    phases: Sequence[str] = (),
    device: int | None = None,
    process: int | None = None,
    ranks: bool = False,
) -> CaptureReport:
    """Open and analyse a capture, as `report` does.

    `path` is an nsys report (.sqlite, .sqlite.gz, .nsys-rep), a torch.profiler trace (.json,
    .json.gz) or a run's folder: its newest capture, or those of all ranks if it has them.
    `step` and `phases` are the names of the ranges that are steps and phases, `device` the number
    of the GPU and `process` the PID to report on; each is detected if it is not given.
    `ranks` reads all processes of one file as ranks. Raises ValueError for what cannot be
    read.
    """
    words = switch("--ranks", ranks) + names_of_ranges(step, phases)
    words += option("--device", device) + option("--process", process)
    opened = report_verb.open_given(report_verb.parse([*words, "--", str(path)]))
    if isinstance(opened, Capture):
        return CaptureReport(
            opened.report,
            verdict_line(opened.report),
            first_screen(opened.report),
            partial(page_of_capture, opened),
        )
    return CaptureReport(
        opened.report,
        of_ranks.verdict_line(opened.report),
        of_ranks.first_screen(of_ranks.ranks_document(opened.report)),
        partial(page_of_ranks, opened),
    )


@as_python()
def open_run(folder: Place) -> RunFolder:
    """Read a run's folder: configuration, environment, every logged metric as columns (numpy).

    `.columns["train/loss"]` has iteration, value and elapsed_s (seconds); `.step_ms` are the
    medians of logged rows in milliseconds, without captured ones. Raises ValueError for a folder
    that is no run, or has not logged a row yet.
    """
    return read_run(Path(folder))


@as_python()
def compare(
    before: Place,
    after: Place,
    *,
    force: bool = False,
    equal_within_percent: float = EQUAL_WITHIN_PERCENT,
    step: str | None = None,
    phases: Sequence[str] = (),
) -> ComparisonReport:
    """Compare two captures or two run folders, as `compare` does; `before` is the baseline.

    A ratio within `equal_within_percent` of 1 counts as equal. `step` and `phases` are as in
    open_capture. Raises ValueError for what cannot be read, and for two sides that are not
    comparable (another GPU, model or dtype) unless `force` is set.
    """
    words = switch("--force", force) + option("--equal-within", equal_within_percent)
    words += names_of_ranges(step, phases)
    flags = compare_verb.parse([*words, "--", str(before), str(after)])
    record = comparison.compare(*compare_verb.both_sides(flags), flags.force, flags.equal_within)
    compare_verb.refuse_unlike(record)
    document = comparison_document(record)
    return ComparisonReport(record, record.sentence, document, lambda _: document)


@as_python()
def run(
    command: Command,
    *,
    out: Place = FOLDER,
    kind: Literal["nsys", "torch"] | None = None,
    start: int | None = None,
    steps: int | None = None,
) -> CaptureReport:
    """Run a training program to its end, capture a window of its steps, and report that.

    It is `run -- COMMAND`, and prints what that prints. The files go to the folder `out`; an
    earlier run in it moves to previous-N. `kind` is what records the window: by default nsys where
    it is installed and a GPU is here, else torch.profiler. `steps` (20) are recorded from step
    `start` on, by default once step times are steady. Raises ValueError if the program cannot be
    started, fails, or leaves no capture.
    """
    words = words_of(command)
    flags = option("--out", out) + option("--kind", kind)
    flags += option("--start", start) + option("--steps", steps)
    if words and (refused := refusal(words[0])):
        raise ValueError(refused[1])
    shown = shlex.join(without_secret_values(words))  # a notebook keeps an error
    if status := run_verb.main([*flags, "--", *words]):
        raise ValueError(f"{shown}: ended with exit code {status}")
    if newest_capture(Path(out)) is None:
        raise ValueError(f"{shown}: nothing was captured; the lines above say why")
    return open_capture(out)


@as_python()
def ab(
    a: Command,
    b: Command,
    *,
    repeats: int = 5,
    steps: int | None = None,
    warm_up: int | None = None,
    capture: bool = False,
    out: Place | None = None,
) -> ExperimentReport:
    """Run two training commands in turns, A B B A ..., and test whether their step times differ.

    It is `ab -- A ::: B`, without the report at its end. `repeats` processes of each (at least 2)
    are ended after `warm_up` (20) steps that are not timed and `steps` that are; without `steps`
    they run to their own end. `capture` explains the difference by a capture of each. The files go
    to `out` (default: a new folder in out-ab), where an experiment that was stopped continues.
    Raises ValueError for a mistake or a failed process.
    """
    words = [f"--repeats={repeats}", *switch("--capture", capture)]
    words += option("--steps", steps) + option("--warm-up", warm_up)
    words += ["--", *words_of(a), ":::", *words_of(b)]
    flags, _ = ab_verb.parse(words)
    planned = ab_verb.plan(flags, [])
    folder = Path(out) if out is not None else ab_verb.fresh_folder(planned)
    refuse_other_folder(folder, f"out={folder}")
    with Lock(folder, f"out={folder}"):
        record = ab_verb.conduct(flags, planned, folder)
        save(record, folder)
    document = experiment_document(record)
    return ExperimentReport(record, record.comparisons[0].sentence, document, lambda _: document)


def words_of(command: Command) -> list[str]:
    return shlex.split(command) if isinstance(command, str) else [*command]


def names_of_ranges(step: str | None, phases: Sequence[str]) -> list[str]:
    names = [phases] if isinstance(phases, str) else phases
    return option("--step", step) + option("--phases", ",".join(names) or None)


def option(name: str, value: object) -> list[str]:
    """The word of a verb's flag with its value, or none for None."""
    return [] if value is None else [f"{name}={value}"]


def switch(name: str, on: bool) -> list[str]:
    return [name] if on else []
