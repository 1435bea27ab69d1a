"""Processes of an experiment of two commands, A ::: B. Called by profiling.verbs.ab.

The hook times their steps (profiling/attach/hook), and what it writes is read here.
"""

import re
import shlex
import statistics
import time
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

from cli.files import empty_folder
from cli.interrupts import stop
from cli.process import environment_for_others
from profiling.analysis.difference import iterations
from profiling.analysis.difference.command_labels import command_labels
from profiling.analysis.difference.comparison_records import (
    COMMAND,
    SCHEMA_VERSION,
    Experiment,
    Factor,
    ProcessRun,
    SeenWork,
)
from profiling.analysis.runs.folder import newest_capture, read_config
from profiling.launch import reports
from profiling.launch.any_program.ended import end_words, remove_hooked, why_no_steps
from profiling.launch.any_program.start import HookSettings, refusal, with_hook
from profiling.launch.command import nsys_options, whole_command
from profiling.launch.experiment.captures import CAPTURED_STEPS, FREE_STEPS, OTHERS
from profiling.launch.experiment.plan import FEWEST_TIMED, LOG_INTERVAL, check_steps
from profiling.launch.experiment.processes import Conditions, say
from profiling.launch.process import Ended, stream
from profiling.shared.json_records import JsonObject, read_json
from profiling.shared.run_files import FACTS
from profiling.shared.secrets import hide_secrets, secret_names, without_secret_values
from profiling.tools import nsight, nsys_tool

SEPARATOR = ":::"
SIDES = ("A", "B")
ALONE = "the command"  # as it is called where there is one
WARM_UP = 20  # compiling is in the first steps of most programs
USE = "give two commands with ::: between them, as in: ab -- A ::: B"
VARIABLE = re.compile(r"[A-Za-z_]\w*=")
TEMPORARY = "nsys.partial"
LONGEST = 200  # characters of a program's last line in our own
TAIL_BYTES = 65536  # of a log, in which that line is looked for
Sides = tuple[list[str], list[str]]  # the words of A and those of B, as typed
Places = tuple[Path | None, Path | None]  # the folders that A and B run in; None: this one
HERE: Places = (None, None)


class NotStarted(ValueError):
    """Raised for a command that cannot be started; `status` is its exit code, as a shell has it."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Command:
    """A command as typed, with the variables before its first word, as a shell has them."""

    variables: dict[str, str]
    words: list[str]

    @property
    def environ(self) -> dict[str, str]:
        return environment_for_others() | self.variables


def plan_commands(typed: list[str], steps: int | None, warm_up: int) -> Experiment:
    """Plan the experiment of the words A ::: B. Raises ValueError for what is not two commands."""
    check_steps(steps)
    a, b = sides_of(typed)
    for side, words in zip(SIDES, (a, b), strict=True):
        command = command_of(words)
        if not command.words:
            raise ValueError(f"{side} is empty: {USE}" if not words else no_program(side, words))
        if refused := refusal(command.words[0], command.environ):
            raise NotStarted(*refused)
    kept = [without_secret_values(words) for words in (a, b)]  # results.json has them
    labels = list(command_labels(*kept))
    return Experiment(
        schema_version=SCHEMA_VERSION,
        factor=Factor(COMMAND, [*map(shlex.join, kept)], labels),
        words=[],
        steps=steps,
        warm_up=warm_up,
        log_interval=LOG_INTERVAL,
        runs=[],
    )


def sides_of(typed: list[str]) -> Sides:
    count = typed.count(SEPARATOR)
    if count != 1:
        found = "there is no ::: between two commands" if not count else f"{count + 1} sides"
        raise ValueError(f"{found}: {USE}")
    middle = typed.index(SEPARATOR)
    return typed[:middle], typed[middle + 1 :]


def no_program(side: str, words: list[str]) -> str:
    return f"{side} sets variables for no command: {shlex.join(words)}"


def command_of(words: list[str]) -> Command:
    first = next((i for i, word in enumerate(words) if not VARIABLE.match(word)), len(words))
    return Command(dict(word.split("=", 1) for word in words[:first]), words[first:])


def run_folder(folder: Path, number: int, value: int) -> Path:
    return folder / "runs" / f"{number + 1:02d}-{SIDES[value]}"


def capture_folder(folder: Path, value: int) -> Path:
    return folder / "captures" / SIDES[value]


def time_command(
    sides: Sides, places: Places, experiment: Experiment, folder: Path, number: int, value: int
) -> tuple[ProcessRun, Conditions]:
    """Run one process to its end, or for the steps that were asked for.

    Raises ValueError if it fails, or if too few of its steps were timed.
    """
    alone = len(experiment.factor.values) == 1
    side, run_dir = ALONE if alone else SIDES[value], run_folder(folder, number, value)
    steps, warm_up = experiment.steps, experiment.warm_up
    kept = shlex.split(experiment.factor.values[value])
    settings = HookSettings(
        str(run_dir.resolve()),
        kept,
        kind="none",
        stop_after=None if steps is None else warm_up + steps,
        every_step=True,
    )
    command = command_of(sides[value])
    place = places[value]
    wall_s = run_hooked(command.words, command.environ, settings, run_dir, side, place)
    ms = step_times(run_dir, side)
    timed = [one for one in ms[warm_up:] if one is not None]
    made, needed = max(0, len(ms) - warm_up), steps or FEWEST_TIMED
    if made < needed or len(timed) < FEWEST_TIMED:  # a step that was not timed is None
        cure = "train longer, or give a smaller --warm-up" + " or --steps" * bool(steps)
        raise ValueError(
            f"{side} made {made} steps behind the warm-up of {warm_up}, of which {len(timed)} were "
            f"timed; at least {needed} are needed: {cure}"
        )
    if any(run_dir.glob("process-*")):
        say(f"{side} trained in several processes one after the other; the first is timed")
    rows = [timed[i : i + LOG_INTERVAL] for i in range(0, len(timed), LOG_INTERVAL)]
    rows = [row for row in rows if len(row) == LOG_INTERVAL]
    process = ProcessRun(
        number=number,
        label=experiment.factor.labels[value],
        command=kept,
        folder=str(run_dir.relative_to(folder)),
        wall_s=wall_s,
        tokens_per_iteration=None,
        iterations=[warm_up + LOG_INTERVAL * (i + 1) - 1 for i in range(len(rows))],
        step_ms=[statistics.median(row) for row in rows],
        mean_ms=[statistics.fmean(row) for row in rows],
    )
    return process, conditions_of(run_dir, experiment.factor.values[value])


def run_hooked(
    words: list[str],
    environ: dict[str, str],
    settings: HookSettings,
    run_dir: Path,
    side: str,
    place: Path | None = None,
) -> float:
    """Run a command with the hook in a folder, its output in a log beside `run_dir`; seconds that
    it took.

    Raises ValueError if it fails, and what cli.interrupts raises after Ctrl-C or SIGTERM.
    """
    remove_hooked(run_dir)
    run_dir.mkdir(parents=True)
    log = run_dir.with_name(run_dir.name + ".log")
    started = time.perf_counter()
    try:
        with open(log, "wb") as file:
            ended = stream(words, with_hook(environ, settings), file, place)
    except ValueError:  # it did not start
        log.unlink()
        run_dir.rmdir()
        with suppress(OSError):  # not the first process
            run_dir.parent.rmdir()
        raise
    if ended.stopped_by:
        stop(ended.stopped_by)
    if ended.status:
        raise ValueError(f"{side} {end_words(ended.status)}{last_line(log)}; see {log}")
    return time.perf_counter() - started


def last_line(log: Path) -> str:
    """The last line with text of a log, shortened and without secrets, after a colon; "": none."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    text = next((line.strip() for line in reversed(lines) if line.strip()), "")
    shown = "".join(filter(str.isprintable, hide_secrets(text)))[:LONGEST]
    return f": {shown}" if shown else ""


def step_times(run_dir: Path, side: str) -> list[float | None]:
    """The time of each step of the program, or of its rank 0, in ms."""
    if ms := iterations.step_times(run_dir):
        return ms
    raise ValueError(f"{side}: {why_no_steps(run_dir)}")


def conditions_of(run_dir: Path, line: str) -> Conditions:
    in_force = read_config(run_dir).get("in_force")
    return Conditions(
        config={COMMAND: line},
        in_force=in_force if isinstance(in_force, dict) else {},
        environment=read_json(run_dir / "environment.json", JsonObject),
        seen=read_json(run_dir / FACTS / "rank0.json", SeenWork),
    )


def capture_command(
    sides: Sides, places: Places, experiment: Experiment, folder: Path, value: int
) -> Path:
    """Path of a capture of one command, by nsys if it and a CUDA GPU are there, else by
    torch.profiler. It is made unless there is one already. Raises ValueError if it fails."""
    side, run_dir = SIDES[value], capture_folder(folder, value)
    if made := newest_capture(run_dir):
        return made
    kept, warm_up = shlex.split(experiment.factor.values[value]), experiment.warm_up
    command = command_of(sides[value])
    devices = {facts.get("device") for facts in experiment.in_force.values()}
    with_nsys = not OTHERS & devices and bool(nsight.installed_programs("nsys"))
    settings = HookSettings(
        str(run_dir.resolve()),
        kept,
        kind="nsys" if with_nsys else "torch",
        start=warm_up,
        steps=CAPTURED_STEPS,
        stop_after=None if experiment.steps is None else warm_up + CAPTURED_STEPS + FREE_STEPS,
    )
    tool = "nsys" if with_nsys else "torch.profiler"
    say(f"capture of {experiment.factor.labels[value]}: {tool}")
    if with_nsys:
        run_under_nsys(command, settings, run_dir, side, places[value])
    else:
        run_hooked(command.words, command.environ, settings, run_dir, side, places[value])
    made = newest_capture(run_dir)
    if made is None:
        raise ValueError(f"{side} has no {CAPTURED_STEPS} steps behind the warm-up of {warm_up}")
    return made


def run_under_nsys(
    command: Command, settings: HookSettings, run_dir: Path, side: str, place: Path | None = None
) -> None:
    nsys = nsys_tool.find(None)
    options, _ = nsys_options(nsys, "light", 1, None, False, [])
    partial = run_dir.resolve().with_name(f"{run_dir.name}-{TEMPORARY}")
    empty_folder(partial)
    words = whole_command(nsys, options, partial, command.words, None, None)
    environ = command.environ
    for name in secret_names(environ):  # a report of nsys holds the environment
        del environ[name]
    run_hooked(words, environ, settings, run_dir, side, place)
    with open(run_dir.with_name(run_dir.name + ".log"), "a") as log, redirect_stdout(log):
        reports.finish(nsys, partial, run_dir / "profile", {"nsys": 1}, Ended(0, "", None))
