"""Section of a memory report on what would fit. Called by profiling.report.memory.document."""

from profiling.analysis.memory.memory_records import Fit, Predicted
from profiling.report.document import Block, Bullets, Column, Section, Table
from profiling.shared.units import ABSENT, binary_bytes

FITS = {True: "yes", False: "no", None: ABSENT}
UNKNOWN = "cannot tell: "
LARGEST = [
    Column("key", "key", "text", True),
    Column("recorded", "now", "number", True),
    Column("fits", "fits", "number", True),
    Column("may fit", "may_fit", "number", True),
    Column("peak with what fits", "peak_bytes", "binary", True),
    Column("assumes", "assumes", "text"),
]
PREDICTED = [
    Column("with", "change", "text", True),
    Column("peak", "peak_bytes", "binary", True),
    Column("between", lambda row: between(row), "text", True),
    Column("fits", lambda row: FITS[row.fits], "text", True),
    Column("reached in", "phase", "text"),
    Column("assumes", "assumes", "text"),
]


def between(row: Predicted) -> str:
    if row.least_bytes is None:
        return ABSENT
    return f"{binary_bytes(row.least_bytes)} to {binary_bytes(row.most_bytes)}"


def fit_section(fit: Fit) -> Section | None:
    if not fit.predicted:
        return None
    of = f"{binary_bytes(fit.memory_bytes)} of a GPU" if fit.memory_bytes else "a GPU's memory"
    lead = (
        f"Peaks of allocated bytes. 95 % of {of} are for tensors: what fits does so by its upper "
        "bound, what may fit by its lower one."
    )
    blocks: list[Block] = [
        Table("largest-that-fits", "The largest that fits", "", LARGEST, fit.largest),
        Table("predicted", "Peaks after a change", "", PREDICTED, fit.predicted),
    ]
    if unknown := reasons(fit):
        blocks.append(Bullets("What cannot be told", unknown))
    return Section("fit", "What would fit", blocks, lead=lead)


def reasons(fit: Fit) -> list[str]:
    """A sentence for each reason why something cannot be told, with what."""
    found: dict[str, list[str]] = {}
    rows = [(row.key, row.assumes) for row in fit.largest]
    for name, assumes in [*rows, *((row.change, row.assumes) for row in fit.predicted)]:
        if assumes.startswith(UNKNOWN):
            found.setdefault(assumes.removeprefix(UNKNOWN), []).append(name)
    return [f"{', '.join(names)}: {why}." for why, names in found.items()]
