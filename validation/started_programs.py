"""Starts programs one after the other, each into a log, and says how far a command is."""

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measuring import PROJECT, say


def python_path(environ: Mapping[str, str]) -> str:
    """PYTHONPATH with which a program finds this project's modules first, then those as before."""
    return os.pathsep.join([str(PROJECT), *filter(None, [environ.get("PYTHONPATH")])])


def chosen_names(names: str, known: Iterable[str]) -> list[str]:
    """Names given by comma, or `all` that are known. Raises ValueError for another."""
    known = list(known)
    chosen = known if names == "all" else names.split(",")
    if unknown := [name for name in chosen if name not in known]:
        raise ValueError(f"programs={unknown[0]}: not one of {', '.join(known)}")
    return chosen


def runnable(names: Iterable[str], missing: Callable[[str], str]) -> list[str]:
    """The programs that lack nothing; says of the others what that is."""
    lacking = {name: missing(name) for name in names}
    for name, why in lacking.items():
        if why:
            say(f"{name} is left out: {why}")
    return [name for name, why in lacking.items() if not why]


@contextmanager
def report_errors(name: str, failed: list[str]) -> Iterator[None]:
    """Say an error of the block, and add the program's name to those that failed."""
    try:
        yield
    except (ValueError, OSError) as error:
        say(f"{name}: {error}")
        failed.append(name)


def run_each(
    programs: Sequence[tuple[str, Callable[[], str]]], limit_s: float, each_s: float
) -> list[str]:
    """Call what runs each program, which returns how it ended; return the names of what failed.

    None is started that would take longer than `limit_s` in all if it took `each_s`; 0: no limit.
    A program that has failed is not started again.
    """
    failed, start = list[str](), time.perf_counter()
    for number, (name, run) in enumerate(programs, 1):
        before_s = time.perf_counter() - start
        if 0 < limit_s < before_s + each_s:
            say(f"{len(programs) - number + 1} programs are left; the same command goes on")
            break
        if name in failed:
            continue
        try:
            ended = run()
        except ValueError as error:
            failed.append(name)
            ended = str(error)
        took_s = time.perf_counter() - start - before_s
        say(f"{number} of {len(programs)}: {name}, {took_s:.0f} s: {ended}")
    return failed


def run_logged(
    command: Sequence[str],
    log: Path,
    environ: Mapping[str, str],
    longest_s: float,
    place: Path = PROJECT,
) -> None:
    """Run a command into its log. Raises ValueError with its last words if it fails."""
    with open(log, "wb") as file:
        try:
            done = subprocess.run(
                command, cwd=place, env=environ, stdout=file, stderr=file, timeout=longest_s
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"was not at its end after {longest_s:g} s; see {log}") from None
    if done.returncode:
        last = " ".join(log.read_text(encoding="utf-8", errors="replace").split())[-300:]
        raise ValueError(f"ended with {done.returncode}: {last}")
