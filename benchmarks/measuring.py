"""Parts that the measurements share: checked keys, taking turns, and timed processes."""

import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import IO, TypeVar

from cli.keys import check_values

T = TypeVar("T")
K = TypeVar("K")

PROJECT = Path(__file__).resolve().parent.parent
BYTES_OF_MAXRSS = 1 if sys.platform == "darwin" else 1024  # getrusage's unit
WATCHED_EVERY_S = 0.1


def key(
    default: T, help: str, *, least: float = -math.inf, needed: str = "", file: bool = False
) -> T:
    """Field of `Keys`, at least `least`. `needed` says what the user has to name where it is empty.

    `file`: the value, if it is given, is the path of an existing file.
    """
    rules = {"help": help, "least": least, "needed": needed, "file": file}
    return field(default=default, metadata=rules)


@dataclass
class Keys:
    """Base of the keys of a measurement. Raises ValueError for what `key` does not allow."""

    def __post_init__(self) -> None:
        check_values(self)
        for each in fields(self):
            name, value, rules = each.name, getattr(self, each.name), each.metadata
            if rules["needed"] and not value:
                raise ValueError(f"{name}: name {rules['needed']}")
            if rules["file"] and value and not Path(value).is_file():
                raise ValueError(f"{name}={value}: no such file")


def measure_in_turns(
    measures: Mapping[K, Callable[[], T]],
    rounds: int,
    each: Callable[[int, K, T], None] = lambda number, name, result: None,
) -> dict[K, list[T]]:
    """Results of each measure, called `rounds` times in the order a, b, b, a, a, b, ...

    A drift of the clock or a busy neighbour then affects all alike. `each` gets the number of the
    round, the name and the result as soon as it is there.
    """
    results: dict[K, list[T]] = {name: [] for name in measures}
    order = list(measures)
    for number in range(1, rounds + 1):
        for name in order:
            results[name].append(measures[name]())
            each(number, name, results[name][-1])
        order.reverse()
    return results


def numbers(name: str, value: str, least: int = 0) -> list[int]:
    """Numbers in a comma-separated value, sorted. Raises ValueError below `least`."""
    words = value.split(",")
    if not all(word.strip().isdecimal() and int(word) >= least for word in words):
        raise ValueError(f"{name}={value}: not numbers by comma, such as 1,2,4")
    return sorted({int(word) for word in words})


def launcher(ranks: int) -> list[str]:
    """Arguments of python that start `ranks` ranks on this host."""
    if ranks == 1:
        return []
    return ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]


def free_port() -> int:
    """A port of this host that nobody listens on; several programs may be started at once."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@dataclass(frozen=True)
class Process:
    """Exit status, times and peak memory of a process that has ended."""

    status: int
    wall_s: float
    cpu_s: float
    peak_bytes: int


def run_process(
    command: Sequence[str],
    output: IO[bytes] | int,
    environ: Mapping[str, str] | None = None,
    watch: Callable[[int], None] | None = None,
) -> Process:
    """Run a command in the project to its end; `output` gets its stdout and stderr.

    `watch` is called with its process id again and again.
    """
    start = time.perf_counter()
    with subprocess.Popen(
        command, cwd=PROJECT, env=environ, stdout=output, stderr=subprocess.STDOUT
    ) as child:
        while not (ended := os.wait4(child.pid, os.WNOHANG if watch else 0))[0]:
            if watch:
                watch(child.pid)
            time.sleep(WATCHED_EVERY_S)
        wall_s = time.perf_counter() - start
        _, status, used = ended
        child.returncode = os.waitstatus_to_exitcode(status)
    cpu_s, peak_bytes = used.ru_utime + used.ru_stime, used.ru_maxrss * BYTES_OF_MAXRSS
    return Process(child.returncode, wall_s, cpu_s, peak_bytes)


def with_bytecode(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables without the one that keeps Python from writing bytecode.

    Where PyTorch has none, importing it takes twice as long, in each process.
    """
    return {name: text for name, text in environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run_successfully(command: Sequence[str], watch: Callable[[int], None] | None = None) -> Process:
    """Run a command as `run_process` does. Raises ValueError with its last words if it fails."""
    environ = with_bytecode(os.environ)
    with tempfile.TemporaryFile() as printed:
        run = run_process(command, printed, environ, watch)
        if run.status:
            printed.seek(0)
            last = " ".join(printed.read().decode(errors="replace").split())[-300:]
            raise ValueError(f"{command[0]} ended with {run.status}: {last}")
    return run


def spread(values: Sequence[float], places: int) -> str:
    """Median, with the least and the most in brackets."""
    middle, least, most = (f"{f(values):.{places}f}" for f in (median, min, max))
    return f"{middle} ({least}, {most})"


def say(line: str) -> None:
    """Print a line to stderr at once."""
    print(line, file=sys.stderr, flush=True)


def print_markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a Markdown table behind an empty line."""
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
