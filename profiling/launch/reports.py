"""Reports of nsys after a run: moved to their place and exported, or why there are none."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from pathlib import Path

from cli.program import as_called
from profiling.launch.process import Ended
from profiling.timeline.scrub import scrub
from profiling.tools import nsight, nsys_tool
from profiling.tools.nsys_tool import Nsys

EXPORTS_AT_ONCE = 8  # each may need some GB of memory
Shown = Callable[[str], AbstractContextManager[object]]  # shows words while its block runs
# (what nsys, CUPTI or the driver prints, why there is no report, how to go on)
CAUSES = (
    (
        r"ERR_NVGPUCTRPERM|Insufficient privilege",
        "the driver reserves GPU metrics for the administrator (RmProfilingAdminOnly)",
        "run as root (a container: with --cap-add=SYS_ADMIN), or load the driver with "
        "NVreg_RestrictProfilingToAdminUsers=0, or do without: --preset light",
    ),
    (
        r"MULTIPLE_SUBSCRIBERS|already (being )?(profiled|in use)|[Aa]nother (\w+ )?"
        r"(profiler|tool|session|instance)|HARDWARE_BUSY|Resource unavailable",
        "another profiler is attached (a process can have only one)",
        "end the other profiler: nsys, ncu, torch.profiler, or dcgm (`dcgmi profile --pause`)",
    ),
    (
        r"Illegal --gpu-metrics|None of the installed GPUs are supported",
        "nsys cannot sample metrics of this GPU, or this user may not",
        "see `python -m profiling doctor`, or do without: --preset light",
    ),
    (
        r"unrecogni[sz]ed option|Illegal --|cannot be specified more than once",
        "nsys rejected an option, named above",
        "see `nsys profile --help`; --dry-run prints the command",
    ),
)
NO_WINDOW = (
    "no window was opened: training ended before profile.start, or step times never became stable",
    "set profile.start=N well below max_iters; the lines of the trainer above show what it did",
)
NO_WINDOW_OF_PROGRAM = (
    "nothing was recorded: no step of the program opened the window",
    "--start N chooses its first step; --whole records from the start to the end, without steps",
)
NO_GPU_IN_PROGRAM = (
    "nothing was recorded: the program uses no GPU through torch, and a window of nsys needs one",
    "--kind torch records operators of a CPU; --whole records all that nsys sees, without steps",
)


def finish(
    nsys: Nsys,
    folder: Path,
    target: Path,
    expected: dict[str, int],
    ended: Ended,
    unopened: tuple[str, str] = NO_WINDOW,
    shown: Shown = nullcontext,
) -> bool:
    """Move the reports from `folder` to `target`, export them, and print what to do next.

    `expected` maps a report's name to its number of windows; with several, nsys appends a number to
    the name of each report. `ended` says how training ended, `unopened` why no window opened and
    how to go on, and `shown` shows what takes long. Returns whether all reports and .sqlite exist.
    """
    made = [move(path, target) for path in sorted(folder.glob("*.nsys-rep"))]
    left = [move(path, target) for path in sorted(folder.glob("*.qdstrm"))]
    shutil.rmtree(folder, ignore_errors=True)
    complete = not made or export_reports(nsys, made, shown)
    for name, windows in expected.items():
        count_made = len(paths_named(made, name))
        complete &= count_made >= windows
        if 0 < count_made < windows:
            print(
                f"\n{count_made} of {windows} windows have a report: training ended before the rest"
            )
        if count_made:
            continue
        unread = paths_named(left, name)
        why, cure = (
            explain_qdstrm(nsys, unread[0], ended.output) if unread else explain(ended, unopened)
        )
        print(as_called(f"\nno report {target / name}.nsys-rep: {why}\n  {cure}"))
    return complete


def paths_named(paths: list[Path], name: str) -> list[Path]:
    """The paths called `name`, and those of its further windows: NAME.1, NAME.2."""
    return [path for path in paths if re.fullmatch(rf"{re.escape(name)}(\W\w+)?", path.stem)]


def move(path: Path, target: Path) -> Path:
    """Move a file into `target` and return its new path.

    A file that has the name already is kept as NAME.previous-N, and so is its .sqlite.
    """
    target.mkdir(parents=True, exist_ok=True)
    new = target / path.name
    if new.exists():
        names = (f"{path.stem}.previous-{number}" for number in count(1))
        kept = next(name for name in names if not (target / f"{name}{path.suffix}").exists())
        for old in (new, new.with_suffix(".sqlite")):
            if old.exists():
                os.replace(old, target / f"{kept}{old.suffix}")
    os.replace(path, new)
    return new


def export_reports(nsys: Nsys, reports: Sequence[Path], shown: Shown) -> bool:
    """Export reports, some at once, and print where they are; False if an export failed."""
    names = ", ".join(report.name for report in reports)
    with shown(f"nsys exports {names}"), ThreadPoolExecutor(EXPORTS_AT_ONCE) as threads:
        problems = list(threads.map(partial(export, nsys), reports))
    for report, problem in zip(reports, problems, strict=True):
        print_exported(nsys, report, problem)
    return not any(problems)


def export(nsys: Nsys, report: Path) -> str | None:
    """Export the report beside itself; return how that failed, or None."""
    temporary = report.with_name(f"{report.stem}.partial.sqlite")
    command = nsys_tool.export_command(nsys.path, report, temporary)
    environ, _ = nsight.without_secrets()
    done = subprocess.run(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode or not temporary.exists():
        temporary.unlink(missing_ok=True)
        return f"{shlex.join(command)} failed: {done.stdout.strip()[-300:]}"
    scrub(temporary)
    os.replace(temporary, report.with_suffix(".sqlite"))
    return None


def print_exported(nsys: Nsys, report: Path, problem: str | None) -> None:
    """Print where the report and its export are, or the `problem`, and how to go on."""
    sqlite = report.with_suffix(".sqlite")
    print(f"\nreport  {report} ({report.stat().st_size / 1e6:.1f} MB)")
    if problem is None:
        print(f"sqlite  {sqlite} ({sqlite.stat().st_size / 1e6:.1f} MB)")
        print(
            "        scrubbed; the report itself contains the environment of your shell: do not "
            "share it"
        )
    else:
        print(f"sqlite  none: {problem}")
    print("next    " + "\n        ".join(next_steps(nsys, report, sqlite, problem is None)))


def next_steps(nsys: Nsys, report: Path, sqlite: Path, exported: bool) -> list[str]:
    """Commands to go on with; if there is a .sqlite, our own come first, which need no nsys."""
    stats = [nsys.path, "stats", "--report=nvtx_gpu_proj_sum,cuda_gpu_kern_sum", str(report)]
    commands = [shlex.join(stats), shlex.join(["nsys-ui", str(report)])]
    if not exported:
        return commands
    verb, capture = as_called("python -m profiling"), shlex.quote(str(sqlite))
    page = shlex.quote(str(sqlite.with_suffix(".html")))
    ours = [f"{verb} report {capture} --html {page}", f"{verb} compare {capture} OTHER.sqlite"]
    return ours + commands


def explain_qdstrm(nsys: Nsys, qdstrm: Path, output: str) -> tuple[str, str]:
    """(why, how to go on) for a capture that stayed a .qdstrm; `output` is the run's."""
    program = nsys_tool.importer(nsys.path)
    again = shlex.join([str(program or "QdstrmImporter"), "--input-file", str(qdstrm)])
    if problem := nsys_tool.importer_problem(nsys.path):
        return f"only {qdstrm}: {problem}", f"then run: {again}"
    if program is None or "dependencies were not found" in output:
        return (
            f"only {qdstrm}: nsys found no working QdstrmImporter (often libdw.so.1, libelf.so.1)",
            "apt-get install libdw1 libelf1, or import it with a complete Nsight Systems of "
            f"version {nsys.version} or newer: {again}",
        )
    return (
        f"only {qdstrm}: the importer failed; its message is above",
        f"try again, perhaps with a newer Nsight Systems: {again}",
    )


def explain(ended: Ended, unopened: tuple[str, str]) -> tuple[str, str]:
    """(why, how to go on) for a run that left no capture."""
    for pattern, why, cure in CAUSES:
        if re.search(pattern, ended.output):
            return why, cure
    if unopened == NO_WINDOW and ended.status:
        return "training ended before a window was opened", "its last lines are above"
    return unopened
