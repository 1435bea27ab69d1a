"""Verdicts on ranks of programs with a fault beside the truth: a table, and counts.

Called by foreign_ranks.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.measuring import print_markdown_table, spread
from profiling.shared.units import ABSENT
from validation.planted_ranks import WITHIN, RanksDiagnosis

NONE, LINK = "none", "link"
# fault -> the verdict that is right, and those that can be argued for: a capture need not hold a
# loader's range, and what is not matched, or communicates much, names nobody
PLANTED = {
    NONE: ("balanced", "communication,jitter,unknown"),
    "products": ("gpu_compute", ""),
    "loader": ("data", "cpu,host"),
    "host": ("cpu", "host"),
    LINK: ("communication", ""),
}
COLUMNS = (
    *("program", "fault", "tool", "late", "cause", "reported", "reported cost, ms", "its range"),
    *("cost, ms, of the rounds", "named", "cost right"),
)


@dataclass(frozen=True)
class Measured:
    """Times in ms a step of one program, those of the rank that took the longest."""

    program: str
    machine: str
    delay_ms: float  # of the loader and the host
    rounds_ms: dict[str, list[float]]  # fault -> a block of each round, without a profiler

    def costs_ms(self, fault: str) -> list[float]:
        """Times that the fault adds to a step, one a round; [] where it was not timed."""
        pairs = zip(self.rounds_ms.get(fault, []), self.rounds_ms[NONE], strict=False)
        return [with_ms - without_ms for with_ms, without_ms in pairs]


@dataclass(frozen=True)
class Judged:
    """Diagnoses of the captures of one program and fault by one tool."""

    program: str
    fault: str
    tool: str
    costs_ms: list[float]  # true ones, of each round
    diagnoses: list[RanksDiagnosis]

    @property
    def is_named(self) -> str:
        """`yes` where all verdicts are those of the fault, `arguably` where all can be argued for,
        else `no`."""
        answers = {judged_as(each, PLANTED[self.fault][1]) for each in self.diagnoses}
        return next(answer for answer in ("no", "arguably", "yes") if answer in answers)


def judged_as(diagnosis: RanksDiagnosis, arguable: str) -> str:
    """Whether rank and cause are right: `yes`, `arguably` or `no`."""
    if diagnosis.is_right:
        return "yes"
    said = diagnosis.verdict if diagnosis.late_rank is None else diagnosis.because
    of_rank = diagnosis.rank == diagnosis.late_rank
    return "arguably" if of_rank and said in arguable.split(",") else "no"


def print_table(known: Sequence[Measured], rows: Sequence[Judged]) -> None:
    """Print a row for each program, fault and tool, and the counts of each tool."""
    print("\n".join(dict.fromkeys(each.machine for each in known)))
    print_markdown_table(COLUMNS, map(cells_of, rows))
    print()
    for tool in dict.fromkeys(row.tool for row in rows):
        print(f"{tool}: {'; '.join(counts_of([row for row in rows if row.tool == tool]))}")


def cells_of(row: Judged) -> list[str]:
    first = row.diagnoses[0]
    costs = [ABSENT, ABSENT, ABSENT, ABSENT]
    if row.fault != NONE:
        costs = [
            ABSENT if first.costs_ms is None else f"{first.costs_ms:.2f}",
            "{:.2f} to {:.2f}".format(*first.between_ms) if first.between_ms else ABSENT,
            spread(row.costs_ms, 2) if row.costs_ms else ABSENT,
            {None: ABSENT, True: "yes", False: "no"}[first.is_close],
        ]
    late = ABSENT if first.late_rank is None else str(first.late_rank)
    said = verdicts_text(row.diagnoses)
    planted = [row.program, row.fault, row.tool, late, first.planted]
    return [*planted, said, *costs[:3], row.is_named, costs[3]]


def verdicts_text(diagnoses: Sequence[RanksDiagnosis]) -> str:
    """Cell such as `rank 1, cpu`, or `balanced 4, communication 1` of several captures."""
    said = Counter(
        (each.verdict or "cannot be read")
        if each.rank is None
        else f"rank {each.rank}, {each.because}"
        for each in diagnoses
    )
    several = len(diagnoses) > 1
    return ", ".join(f"{text} {count}" if several else text for text, count in said.most_common())


def counts_of(rows: Sequence[Judged]) -> list[str]:
    """Phrases on how many captures were judged rightly."""
    late = [row.is_named for row in rows if row.fault not in (NONE, LINK)]
    links = [row.is_named for row in rows if row.fault == LINK]
    every = [each for row in rows for each in row.diagnoses]
    nobody = [each.verdict and each.rank is None for each in every if each.late_rank is None]
    closes = [each.is_close for each in every if each.is_close is not None]
    return [
        f"rank and cause {late.count('yes')} of {len(late)}",
        f"{late.count('arguably')} more can be argued for",
        f"slow link {links.count('yes')} of {len(links)}",
        f"nobody named where no rank is late {nobody.count(True)} of {len(nobody)}",
        f"cost within {100 * WITHIN:.0f} % or in its range {sum(closes)} of {len(closes)}",
    ]
