"""Lines that training and sampling print, ours and nanoGPT's alike, with the time of each line.

The clock is that of the process that reads. nanoGPT takes the time that it prints before it waits
for the GPU, so its printed time is when a step was launched. Its line comes once the loss is there,
and so does ours: between two lines lie complete steps, for both.
"""

import re
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

from profiling.analysis.bench.bench_records import Evaluation

ITERATION = re.compile(r"iter (\d+): loss \S+, time ([\d.]+) ?ms")
EVALUATION = re.compile(r"step (\d+): train loss \S+, val loss (\S+)$")
# sampling: ours prints its own count, nanoGPT prints this line once its model is on the device
OWN_COUNT = re.compile(r"([\d,]+) tokens in \S+ s: ([\d,]+) tokens/s$")
BEFORE_SAMPLES, SAMPLE_END = re.compile("Loading meta from|No meta.pkl found"), "-" * 15
FACTS = {  # in nanoGPT's output
    "tokens per iteration": re.compile(r"tokens per iteration will be: ([\d,]+)"),
    "parameters": re.compile(r"number of parameters: ([\d.]+M)"),
    "vocabulary": re.compile(r"found vocab_size = (\d+)"),
}


@dataclass(frozen=True)
class Line:
    at_s: float  # from the start of the process
    text: str


class StampedOutput:
    """Receives a program's output, keeps each line with its time, and passes all on to a file."""

    def __init__(self, file: BinaryIO):
        self.file = file
        self.began_s = time.perf_counter()
        self.lines: list[Line] = []
        self.rest = b""  # beginning of a line that is not complete yet

    def write(self, chunk: bytes, /) -> None:
        at_s = self.now_s()
        *whole, self.rest = (self.rest + chunk).split(b"\n")
        self.lines += [Line(at_s, line.decode(errors="replace").rstrip()) for line in whole]
        self.file.write(chunk)

    def flush(self) -> None:
        self.file.flush()

    def now_s(self) -> float:
        return time.perf_counter() - self.began_s


@dataclass(frozen=True)
class Row:
    """A line that training printed about an iteration."""

    iteration: int
    at_s: float
    printed_ms: float
    behind_evaluation: bool  # an evaluation lies between the row before and this one


@dataclass(frozen=True)
class Training:
    """A training run, as it was printed."""

    rows: list[Row]
    evaluations: list[Evaluation]

    @property
    def iterations(self) -> int | None:
        """Number of iterations seen, or None.

        A row is of an iteration that is done, an evaluation has the number of those before it.
        """
        seen = [row.iteration + 1 for row in self.rows]
        return max(seen + [e.iteration for e in self.evaluations], default=None)

    def steps(self, warm_up: int) -> list[tuple[Row, float]]:
        """Pairs (row, mean ms of a step since the row before), from iteration `warm_up` on."""
        return [
            (row, (row.at_s - before.at_s) * 1e3 / (row.iteration - before.iteration))
            for before, row in pairwise(self.rows)
            if before.iteration >= warm_up and not row.behind_evaluation
        ]


def training(lines: list[Line]) -> Training:
    """Parse the lines of a training run. Raises ValueError if a number is malformed."""
    rows: list[Row] = []
    evaluations: list[Evaluation] = []
    evaluated = False
    for line in lines:
        if match := ITERATION.match(line.text):
            rows.append(Row(int(match[1]), line.at_s, float(match[2]), evaluated))
            evaluated = False
        elif match := EVALUATION.match(line.text):
            evaluations.append(Evaluation(int(match[1]), line.at_s, float(match[2])))
            evaluated = True
    return Training(rows, evaluations)


def sampling_s(lines: list[Line], tokens: int) -> float | None:
    """Seconds for all tokens with the model on the device, or None if the lines do not show it."""
    for line in lines:
        if match := OWN_COUNT.search(line.text):
            per_s = float(match[2].replace(",", ""))
            return tokens / per_s if per_s else None
    began = [line.at_s for line in lines if BEFORE_SAMPLES.match(line.text)]
    ended = [line.at_s for line in lines if line.text.strip() == SAMPLE_END]
    return ended[-1] - began[0] if began and ended else None


def facts(lines: list[Line]) -> dict[str, str]:
    """Facts that nanoGPT prints about its work, by the keys of FACTS."""
    return {
        what: match[1]
        for what, pattern in FACTS.items()
        for line in lines
        if (match := pattern.match(line.text))
    }
