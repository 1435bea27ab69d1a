"""py-spy, which reads the Python stack of a process from outside: where it is, what it writes.

It counts time from its own start, and writes a stack where it is another than before. So the hook
shows it stairs at known times, and a stack that stays is a sample for each period.
"""

import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

import msgspec

from profiling.shared.python_samples import PythonSamples

HOOK = "_profiling_attach"  # folder of the hook, whose functions are none of the program's
STAIR = "climb"  # its function that calls itself
LEAST_STAIRS = 2  # seen by py-spy, which comes late where no core is free
MOST_S = 3600  # of a window; the program may outlive `run`
START_S = 3.0  # at most until it has begun, or says why not; some 0.1 on a machine with time
ANSWER_S = 5.0
NOT_PERMITTED = (
    "py-spy may not read the program; allow it by root's rights, in a container by --cap-add "
    "SYS_PTRACE"
)


@dataclass(frozen=True)
class Wanted:
    """Message of the hook at the end of a window."""

    thread: int  # the one that trains, as Python numbers it
    pid: int
    tid: int  # the thread as the system numbers it
    stairs_ns: list[int]  # since 1970: when each call inside the others began, and the last ended
    folders: list[str]  # that Python imports from, each with a slash behind


class Args(msgspec.Struct):
    filename: str
    line: int | None = None


class Event(msgspec.Struct):
    """The begin or the end of a function, in a thread."""

    name: str
    ph: str
    tid: int
    ts: int  # microseconds
    args: Args


def find() -> str | None:
    """The path of py-spy, beside this Python or on PATH; None where it is of no use."""
    if sys.platform != "linux":
        return None  # elsewhere it reads no program without root's rights
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


class PySpy:
    """py-spy on one process, until `stop`."""

    def __init__(self, path: str, pid: int, rate_hz: float, folder: Path):
        self.written, self.said = folder / f"{pid}.json", folder / f"{pid}.txt"
        self.period_ns = 1e9 / rate_hz
        words = [path, "record", "--pid", str(pid), "--nonblocking", "--idle"]
        words += ["--rate", str(round(rate_hz)), "--duration", str(MOST_S)]
        words += ["--format", "chrometrace", "--output", str(self.written)]
        with open(self.said, "wb") as said:
            self.process = subprocess.Popen(  # Ctrl-C is the program's
                words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )

    def wait_for_begin(self) -> None:
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s and self.process.poll() is None and not self.begun():
            time.sleep(0.01)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def begun(self) -> bool:
        return "Sampling" in self.said.read_text(errors="replace")

    def samples(self, wanted: Wanted) -> PythonSamples:
        """The samples of the thread. Raises ValueError saying why there are none."""
        try:
            events = msgspec.json.decode(self.written.read_bytes(), type=list[Event])
        except (OSError, msgspec.MsgspecError) as error:
            said = self.said.read_text(errors="replace")
            if "ermission" in said:
                raise ValueError(NOT_PERMITTED) from None
            lines = [line for line in said.splitlines() if "Error" in line]
            raise ValueError(f"py-spy: {lines[0] if lines else error}") from None
        states = list(stacks([event for event in events if event.tid == wanted.thread]))
        return in_clock_of(wanted, states, self.period_ns)


def stacks(events: list[Event]) -> Iterator[tuple[int, list[Event]]]:
    """(microseconds, the functions that are open from then on, the outermost first)."""
    opened: list[Event] = []
    for time_us, changes in groupby(events, lambda event: event.ts):
        for event in changes:
            if event.ph == "B":
                opened.append(event)
            elif opened:
                opened.pop()
        yield time_us, list(opened)


def in_clock_of(
    wanted: Wanted, states: list[tuple[int, list[Event]]], period_ns: float
) -> PythonSamples:
    """The samples before the stairs, in the clock of the program. Raises ValueError without."""
    offsets_ns, first_us = [], None
    steps = list(pairwise(wanted.stairs_ns))
    for time_us, stack in states:
        height = sum(event.name == STAIR and HOOK in event.args.filename for event in stack)
        if 0 < height <= len(steps):
            first_us = time_us if first_us is None else first_us
            offsets_ns.append(sum(steps[height - 1]) // 2 - 1000 * time_us)
    if first_us is None or len(offsets_ns) < LEAST_STAIRS:
        raise ValueError(f"py-spy read {len(states)} stacks, and too few at known times")
    samples, offset_ns = PythonSamples(wanted.pid, wanted.tid), statistics.median_low(offsets_ns)
    root = common_root(stack for _, stack in states)
    kinds: dict[tuple[int, ...], int] = {}
    functions = Functions()
    for (time_us, stack), (next_us, _) in pairwise(states):
        if time_us >= first_us:
            break
        if not stack or place(stack[0]) != root:
            continue  # it changed while py-spy read it, so that its outer functions are missing
        count = max(1, int(1000 * (next_us - time_us) / period_ns))
        numbers = tuple(functions.number(event, count) for event in stack if is_own(event))
        kind = kinds.setdefault(numbers, len(kinds))
        for at in range(count):
            samples.times_ns.append(1000 * time_us + int(at * period_ns) + offset_ns)
            samples.stack.append(kind)
    samples.names.extend(functions.names(wanted.folders))
    samples.stacks.extend(map(list, kinds))
    return samples


def common_root(stacks: Iterable[list[Event]]) -> tuple[str, str] | None:
    """The function that is the outermost of most stacks, as that of a thread is of all."""
    roots = Counter(place(stack[0]) for stack in stacks if stack)
    return roots.most_common(1)[0][0] if roots else None


def place(event: Event) -> tuple[str, str]:
    return event.args.filename, event.name


def is_own(event: Event) -> bool:
    return f"/{HOOK}/" not in event.args.filename


class Functions:
    """Functions of a program, and the lines in which they were seen."""

    def __init__(self) -> None:
        self.lines: dict[tuple[str, str], Counter[int]] = {}
        self.numbers: dict[tuple[str, str], int] = {}

    def number(self, event: Event, count: int) -> int:
        """The number of the event's function, which was seen so many times."""
        key = place(event)
        self.lines.setdefault(key, Counter())[event.args.line or 0] += count
        return self.numbers.setdefault(key, len(self.numbers))

    def names(self, folders: list[str]) -> Iterator[str]:
        """Names as of torch.profiler, but with the line that was seen most; none of `folders`."""
        for (file, function), lines in self.lines.items():
            inside = [file.removeprefix(each) for each in folders if file.startswith(each)]
            line, _ = lines.most_common(1)[0]
            yield f"{min(inside, key=len, default=file)}({line}): {function}"
