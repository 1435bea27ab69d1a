"""Document of two memory snapshots. Called by profiling.verbs.memory."""

from profiling.analysis.memory.memory_records import (
    Change,
    KindBytes,
    MemoryComparison,
    Side,
    Verdict,
)
from profiling.report import document as blocks
from profiling.report.document import (
    Chart,
    Column,
    Document,
    Facts,
    Finding,
    Section,
    Table,
    Tone,
    row_ids,
)
from profiling.report.memory.memory_charts import by_kind
from profiling.shared.units import binary_bytes

TONES: dict[Verdict, Tone] = {
    "less": "good",
    "more": "bad",
    "equal": "plain",
    "cannot_tell": "warning",
}


def columns(what: str) -> list[Column]:
    return [
        Column(what, "name", "code" if what == "line" else "text", True),
        Column("baseline", "baseline_bytes", "binary", True),
        Column("candidate", "candidate_bytes", "binary", True),
        Column("change", "change_bytes", "binary_change", True),
    ]


def comparison_document(compared: MemoryComparison, names: tuple[str, str]) -> Document:
    """The document of two sides with these names."""
    sides = compared.baseline, compared.candidate
    facts = [
        (name, f"{at_least(side)}{binary_bytes(side.peak_bytes)}")
        for name, side in zip(("baseline", "candidate"), sides, strict=True)
    ]
    notes = [
        Finding("note", f"{name}: {side.sentence}")
        for name, side in zip(("baseline", "candidate"), sides, strict=True)
    ]
    answer = blocks.Verdict(compared.sentence, TONES[compared.verdict])
    figure = by_kind(
        [("candidate", kinds_of(compared.kinds, 1)), ("baseline", kinds_of(compared.kinds, 0))]
    )
    chart = Chart("kinds", "allocated bytes at the peaks by kind", figure, 200)
    ids = row_ids("kind", compared.kinds)
    kinds = Table("by-kind", "By kind", "", columns("kind"), compared.kinds, ids=ids)
    note = "A line of both sides has the same file name, number and function."
    ids = row_ids("line", compared.lines)
    lines = Table("lines", "By line", note, columns("line"), compared.lines, ids=ids)
    return Document(
        "Memory compared",
        [f"{names[1]} against {names[0]}"],
        [answer, Facts(facts, cards=True), *notes],
        [Section("kinds", "By kind", [chart, kinds]), Section("lines", "By line", [lines])],
    )


def at_least(side: Side) -> str:
    return "" if side.sure or side.peak_bytes is None else "at least "


def kinds_of(rows: list[Change], which: int) -> list[KindBytes]:
    """The kinds of one side."""
    held = [(row.baseline_bytes, row.candidate_bytes)[which] for row in rows]
    return [KindBytes(row.name, size, 0, 0.0) for row, size in zip(rows, held, strict=True)]
