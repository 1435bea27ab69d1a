"""Starts a program with the hook, for the verb run, and reports on stderr what it recorded."""

import shlex
import sys
import traceback
from argparse import Namespace
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

from cli.errors import one_line
from cli.files import empty_folder
from cli.plain import without_controls
from cli.process import environment_for_others
from cli.program import as_called
from profiling.launch import command, reports
from profiling.launch.any_program import folder as run_folder
from profiling.launch.any_program import seen
from profiling.launch.any_program.ended import end_words
from profiling.launch.any_program.sampling import sampling
from profiling.launch.any_program.start import (
    NOT_EXECUTABLE,
    HookSettings,
    refusal,
    run_to_end,
    with_hook,
    with_our_stdout,
)
from profiling.launch.doctor import disk, has_gpu
from profiling.launch.process import Ended
from profiling.shared.run_files import METRICS, TRIGGER
from profiling.shared.secrets import secret_names, without_secret_values
from profiling.timeline.opening import ENDINGS
from profiling.tools import nsight, nsys_tool
from profiling.tools.nsys_tool import Nsys
from profiling.verbs.progress import progress_line

FOLDER = Path("out-run")
STEPS = 20
PARTIAL = "nsys.partial"  # nsys writes there


def run_program(flags: Namespace, words: list[str]) -> int:
    """Run the command to its end and report it; return its exit code.

    Raises ValueError for a mistake, before anything starts.
    """
    kind, why = chosen_kind(flags)
    check_kind(flags, kind)
    if refused := refusal(words[0]):
        code, message = refused
        say(message)
        return code
    folder: Path = flags.out or FOLDER
    kept, window = without_secret_values(words), (flags.start, flags.steps or STEPS)
    settings = HookSettings(
        str(folder.absolute()), kept, kind, *window, flags.step, stack=flags.stack
    )
    environ, started = environment_for_others(), words
    nsys = None
    if kind == "nsys":
        nsys = nsys_tool.find(flags.nsys)
        environ, started = under_nsys(nsys, flags, folder.absolute() / PARTIAL, environ, words)
    if flags.dry_run:
        environ = with_hook(environ, settings)
        variables = [f"{name}={environ[name]}" for name in ("PYTHONPATH", "PROFILING_ATTACH")]
        print(shlex.join(["env", *variables, *started]))
        return 0

    with run_folder.own_folder(folder) as previous:
        if previous:
            say(f"the earlier run in {folder} is now in {previous.name}")
        if (space := disk(folder)).severity == "error":
            say(f"warning: only {space.finding}: a capture may not fit")
        say(f"{plan(settings, flags.whole, why)}; files go to {folder}")
        if nsys:
            empty_folder(folder / PARTIAL)
        try:
            with sampling() as samples:
                environ = with_hook(environ, replace(settings, samples=samples))
                ended = run_to_end(started, environ, nsys is not None, folder / TRIGGER)
        except OSError as error:
            say(f"{words[0]}: {error.strerror}; name the program that runs it")
            ended = Ended(NOT_EXECUTABLE, "", None)
        else:
            print(file=sys.stderr, flush=True)  # the program may have ended within a line
            with redirect_stdout(sys.stderr):
                report(folder, settings, nsys, ended, flags.whole)
    if previous and not previous.exists():
        say(f"nothing was recorded: the earlier run is back in {folder}")
    return ended.status


def chosen_kind(flags: Namespace) -> tuple[str, str]:
    """(the kind of the window, why it is this one)."""
    if flags.kind:
        return flags.kind, ""
    if flags.stack:
        return "torch", ""
    if flags.whole or flags.nsys or flags.nsys_options or flags.preset:
        return "nsys", ""
    if not has_gpu():
        return "torch", ", because no GPU is here"
    if not nsight.installed_programs("nsys"):
        return "torch", ", because nsys is not installed"
    return "nsys", ", because it is installed and a GPU is here"


def check_kind(flags: Namespace, kind: str) -> None:
    """Raise ValueError for flags that have no effect with this kind."""
    of_nsys = {
        "--whole": flags.whole,
        "--nsys": flags.nsys,
        "--nsys-options": flags.nsys_options,
        "--preset": flags.preset,
    }
    of_window = {"--start": flags.start, "--steps": flags.steps}
    for name, given in of_nsys.items():
        if given and kind != "nsys":
            raise ValueError(f"{name}: only with --kind nsys")
    if flags.stack and kind not in ("torch", "nsys"):
        raise ValueError("--stack: only with --kind torch or nsys, which record Python's functions")
    for name, given in of_window.items():
        if given and kind == "none":
            raise ValueError(f"{name}: --kind none records no window")


def plan(settings: HookSettings, whole: bool, why: str) -> str:
    """Words for what is recorded, by what, and why by that."""
    by = {"torch": "torch.profiler", "memory": "the memory's history", "nsys": "nsys"}
    if settings.kind == "none":
        what = "step times and phases are recorded"
    elif whole:
        what = "all of it is recorded by nsys"
    else:
        what = f"{settings.steps} steps are recorded by {by[settings.kind]}{why}"
    return what


def under_nsys(
    nsys: Nsys, flags: Namespace, folder: Path, environ: dict[str, str], words: list[str]
) -> tuple[dict[str, str], list[str]]:
    """(environment without secrets, command line of nsys round the program's words)."""
    options, notes = command.nsys_options(
        nsys,
        flags.preset or "light",
        1,
        flags.metric_set,
        False,
        flags.nsys_options,
        whole=flags.whole,
        stack=flags.stack,
    )
    removed = secret_names(environ)
    for note in [*notes, *command.environment_notes(nsys, removed)]:
        say(note)
    kept = {name: value for name, value in environ.items() if name not in removed}
    words = with_our_stdout(words)
    return kept, command.whole_command(nsys, options, folder, words, None, None)


def report(
    folder: Path, settings: HookSettings, nsys: Nsys | None, ended: Ended, whole: bool
) -> None:
    """Print what was seen, and the report of the newest capture or of all ranks."""
    try:
        if nsys:
            without_gpu = seen.used_no_gpu(folder)
            reports.finish(
                nsys,
                folder / PARTIAL,
                folder / "profile",
                {"nsys": 1},
                ended,
                reports.NO_GPU_IN_PROGRAM if without_gpu else reports.NO_WINDOW_OF_PROGRAM,
                shown=progress_line,
            )
        captures = [path for path in (folder / "profile").glob("*") if path.is_file()]
        if captures:
            run_folder.describe_command(folder, settings.command)
        messages = seen.lines(folder, settings)
        unseen = [f"{seen.NO_STEP}; {seen.OTHERS}"]
        if whole and messages in ([seen.NEVER], unseen):
            messages = ["no steps are known of this program: the report is about all of it"]
        elif messages == unseen and ended.status:
            messages = [f"no step was seen: the program {end_words(ended.status)} before one"]
        if not captures and (phases := seen.phases_line(folder)):
            messages.append(phases)
        snapshots = sorted(path for path in captures if path.name.endswith(".memory.pickle"))
        for line in messages:
            say(line)
        if any(path.name.endswith(ENDINGS) for path in captures):
            show(folder, nsys)
        elif snapshots:
            show_memory(folder, snapshots)
        elif (folder / METRICS).is_file():
            show_next(folder, "dashboard {}", "compare {} OTHER")
    except (ValueError, OSError) as error:
        print(f"\nno report: {one_line(error)}")
    except Exception:  # a fault of ours does not become the program's exit code
        print(f"\nno report: {traceback.format_exc()}")


def show(folder: Path, nsys: Nsys | None) -> None:
    """Print what comes next, and one screen about the newest capture or about all ranks.

    The verdict on a single capture becomes the run's.
    """
    from profiling.report.single.verdict_line import verdict_line
    from profiling.verbs.report import report_on

    if nsys is None:  # else its report has come with what comes next
        show_next(folder, "report {} --html report.html", "compare {} OTHER")
    report = report_on([str(folder)])
    captures = [path for path in (folder / "profile").iterdir() if path.name.endswith(ENDINGS)]
    if report and len(captures) == 1:  # not of several ranks
        run_folder.keep_verdict(folder, verdict_line(report))


def show_memory(folder: Path, snapshots: list[Path]) -> None:
    """Print what comes next, and the sentence about the memory's peak."""
    from profiling.analysis.memory.analysis import memory_report

    show_next(folder, "report {} --html memory.html")
    print(without_controls(memory_report(snapshots).sentence))


def show_next(folder: Path, *verbs: str) -> None:
    """Print the commands with these verbs, in which {} stands for the run's folder."""
    prefix, named = as_called("python -m profiling"), shlex.quote(str(folder))
    commands = [f"{prefix} {verb.format(named)}" for verb in verbs]
    print("next    " + "\n        ".join(commands) + "\n")


def say(line: str) -> None:
    print(f"profiling run: {one_line(line)}", file=sys.stderr, flush=True)
