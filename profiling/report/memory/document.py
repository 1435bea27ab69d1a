"""Document of a memory snapshot. Called by profiling.verbs.memory."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath

from profiling.analysis.memory.memory_records import (
    Allocation,
    Answer,
    MemoryReport,
    OutOfMemory,
    Place,
)
from profiling.analysis.memory.sentence import short
from profiling.report.document import (
    Block,
    Bullets,
    Cell,
    Chart,
    Column,
    Document,
    Facts,
    Finding,
    Section,
    Table,
    Tone,
    Verdict,
    row_ids,
)
from profiling.report.memory.fit import fit_section
from profiling.report.memory.memory_charts import by_kind, timeline
from profiling.shared.units import binary_bytes, counted, milliseconds
from profiling.timeline.personal import without_folders

TONES: dict[Answer, Tone] = {
    "out_of_memory": "bad",
    "leak": "bad",
    "fragmented": "warning",
    "peak": "plain",
    "state": "note",
}
OF_KIND = {
    "weights": "Weights: hold them in bfloat16, or share them out (fsdp).",
    "gradients": "Gradients: zero_grad() right behind the update frees them before forward; ranks "
    "can share them out (ZeRO-2, fsdp).",
    "moments": "The optimizer's moments: hold them in bfloat16 or 8 bits, or share them out over "
    "more ranks (ZeRO, fsdp).",
    "activations": "Activations: a smaller batch lowers them in proportion, activation "
    "checkpointing computes blocks again, autocast halves those in float32; where attention keeps "
    "its scores, a fused one does not.",
    "workspace": "Workspace: a fused operation (attention, cross-entropy, an optimizer with "
    "fused=True) has fewer temporaries, and a smaller batch smaller ones.",
}
OF_ANSWER: dict[Answer, str] = {
    "leak": "A line that keeps more with each step: look for what still holds its tensors, such as "
    "a list that grows. A loss that is kept with its graph keeps all that forward saved for "
    "backward; loss.item() is a number, and detach() lets go of the graph.",
    "fragmented": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets the allocator use free "
    "pages anywhere; make long-lived small tensors before the large ones.",
}

ALONE = (
    "The allocation that failed is larger than all others together: ask for less of it at a time."
)
LIMITED = (
    "The GPU had room for this allocation: a limit of the process kept it away, such as "
    "torch.cuda.set_per_process_memory_fraction."
)


def where(place: Place) -> Cell:
    """The line without its folders, which say who ran it; behind it, whether it is a library's."""
    if place.line is None or place.own:
        return Cell(short(place))
    return Cell(short(place), f"{short(place)} of a library")


LINES = [
    Column("line", lambda row: where(row.place), "code", True),
    Column("mostly", "kind", "text", True),
    Column("size", "bytes", "binary", True),
    Column("share", "percent", "percent", True),
    Column("allocations", "allocations", "number"),
]
MODULES = [
    Column("module", "module", "code", True),
    Column("mostly", "kind", "text", True),
    Column("size", "bytes", "binary", True),
    Column("share", "percent", "percent", True),
    Column("allocations", "allocations", "number"),
]
KINDS = [
    Column("kind", "kind", "text", True),
    Column("size", "bytes", "binary", True),
    Column("share", "percent", "percent", True),
    Column("allocations", "allocations", "number"),
]
PHASES = [
    Column("phase", "phase", "text", True),
    Column("most allocated", "peak_bytes", "binary", True),
    Column("most added in one", "rise_bytes", "binary", True),
]
STEPS = [
    Column("step", "step", "number", True),
    Column("at its end, ms", "ms", "ms"),
    Column("most allocated", "peak_bytes", "binary", True),
    Column("at its end", "end_bytes", "binary", True),
]
LARGEST = [
    Column("blocks", "blocks", "number", True),
    Column("size of each", "bytes", "binary", True),
    Column("kind", "kind", "text", True),
    Column("line", lambda row: stack_cell(row), "code", True),
]
LEAKS = [
    Column("line", lambda row: where(row.place), "code", True),
    Column("more in each step", "bytes_per_step", "binary", True),
    Column("steps", "steps", "number", True),
    Column("at the end", "bytes_at_end", "binary", True),
    Column("mostly", "kind", "text"),
]
PINNED = [
    Column("line", lambda row: where(row.place), "code", True),
    Column("free beside them", "inactive_bytes", "binary", True),
    Column("its blocks", "bytes", "binary", True),
    Column("segments", "segments", "number"),
]
DEVICES = [
    Column("file", lambda row: PurePath(row.file).name, "code", True),
    Column("GPU", "device", "number", True),
    Column("rank", "rank", "number"),
    Column("peak", "peak_bytes", "binary", True),
    Column("most reserved", "reserved_bytes", "binary", True),
    Column("phase", "phase", "text"),
]


def stack_cell(row: Allocation) -> Cell:
    """The line of an allocation, with the stack behind it."""
    cell = where(row.place)
    return Cell(cell.text, "\n".join(map(without_folders, row.stack)) or cell.whole)


def memory_document(report: MemoryReport, name: str) -> Document:
    moment = (
        "at the peak"
        if report.answer not in ("out_of_memory", "state")
        else {
            "out_of_memory": "when it ran out",
            "state": "at the end",
        }[report.answer]
    )
    title = f"Memory: {name}"
    sections = [section for section in (make(report, moment) for make in SECTIONS) if section]
    return Document(title, [about(report)], list(verdict(report)), sections)


def about(report: MemoryReport) -> str:
    parts = [f"GPU {report.device}", counted(report.events, "event")]
    if report.steps:
        parts.append(f"{counted(report.steps[-1].step + 1, 'step')}, {report.steps_from}")
    return " · ".join(parts)


def verdict(report: MemoryReport) -> Iterator[Block]:
    yield Verdict(answer(report), TONES[report.answer])
    at = report.at
    facts = [
        ("allocated", binary_bytes(at.allocated_bytes)),
        ("reserved", binary_bytes(at.reserved_bytes)),
        ("reserved, not allocated", binary_bytes(at.inactive_bytes)),
    ]
    if at.ms is not None and report.events:
        facts.append(("ms into the history", milliseconds(at.ms)))
    if report.peak:
        facts.append(("peak of the program", "yes" if report.reaches_back else "at least this"))
    yield Facts(facts, cards=True)
    for note in [report.sentence] * (report.fit is not None) + report.notes:
        yield Finding("note", note)


def answer(report: MemoryReport) -> str:
    """The sentence that answers what was asked: what fits, or where the memory goes."""
    return report.fit.sentence if report.fit else report.sentence


def fitting(report: MemoryReport, moment: str) -> Section | None:
    return fit_section(report.fit) if report.fit else None


def failure(report: MemoryReport, moment: str) -> Section | None:
    failed = report.out_of_memory
    if failed is None:
        return None
    if failed.enough and not failed.frees:
        note = "It would have fit."
    else:
        begin = "Freed together, these" if failed.enough else "Not even these"
        words = "would have sufficed" if failed.enough else "would have made room"
        note = f"{begin} {words}: {failed.assumed}."
    frees = Table(
        "frees",
        "What would have made room",
        note,
        LARGEST,
        failed.frees,
        ids=row_ids("free", failed.frees),
    )
    blocks: list[Block] = [Facts(failure_facts(failed)), frees]
    return Section("failure", "The allocation that failed", blocks)


def failure_facts(failed: OutOfMemory) -> list[tuple[str, str]]:
    return [
        ("asked for", binary_bytes(failed.asked_bytes)),
        ("from", short(failed.place)),
        ("left on the GPU", binary_bytes(failed.gpu_free_bytes)),
        ("largest free piece", binary_bytes(failed.largest_free_bytes)),
    ]


def kinds(report: MemoryReport, moment: str) -> Section:
    figure = by_kind([(moment, report.kinds)])
    label = f"allocated bytes {moment} by kind"
    note = (
        "Kinds are told by the stacks that allocated and freed, and by lifetimes; they add up to "
        "the allocated bytes. Workspace is gone after the phase that made it, but for cuBLAS's."
    )
    rows = report.kinds
    table = Table("kinds", f"By kind {moment}", note, KINDS, rows, ids=row_ids("kind", rows))
    advice = Bullets("What lowers it", tips(report))
    return Section("kinds", table.title, [Chart("kinds", label, figure, 150), table, advice])


def tips(report: MemoryReport) -> list[str]:
    found = [OF_ANSWER.get(report.answer, "")]
    if failed := report.out_of_memory:
        found += [LIMITED] * failed.is_limited
        if failed.asked_bytes > report.at.allocated_bytes:
            return [*filter(None, found), ALONE]
    found += [OF_KIND.get(row.kind, "") for row in report.kinds[:2]]
    return list(filter(None, found))


def over_time(report: MemoryReport, moment: str) -> Section | None:
    if report.curve is None:
        return None
    figure = timeline(report.curve, report.steps)
    label = "allocated and reserved bytes over time"
    ids = row_ids("phase", report.phases)
    phases = Table("phases", "By phase", "", PHASES, report.phases, ids=ids)
    ids = row_ids("step", report.steps)
    steps = Table("steps", "By step", "", STEPS, report.steps, folded=True, ids=ids)
    chart = Chart("timeline", label, figure, 340)
    lead = "Reserved is what the allocator took from the GPU, allocated what tensors have of it."
    return Section("timeline", "Over time", [chart, phases, steps], lead=lead)


def by_line(report: MemoryReport, moment: str) -> Section:
    note = "The innermost line of your own code, and of a library where a stack has none of it."
    return table_section("lines", f"By line {moment}", note, LINES, report.lines, "line")


def by_module(report: MemoryReport, moment: str) -> Section:
    note = (
        "The innermost module outside of torch.nn whose forward ran or that was made, and behind "
        "it torch.nn's inside. Gradients have none, because threads of autograd have no frames."
    )
    if any(row.told_by == "call" for row in report.modules):
        note += (
            " Frames have no classes: they are read from the source, and where that is not at "
            "hand, or changed since, the line stands for them that called or made the module."
        )
    title = f"By module {moment}"
    return table_section("modules", title, note, MODULES, report.modules, "module")


def leaks(report: MemoryReport, moment: str) -> Section | None:
    note = "Lines that keep more with each step, up to the last."
    if not report.leaks:
        return None
    return table_section("leaks", "What grows", note, LEAKS, report.leaks, "leak")


def pins(report: MemoryReport, moment: str) -> Section | None:
    if not report.pinned:
        return None
    note = (
        "Segments of which half or more is free: the line has most blocks in them. A segment goes "
        "back to the GPU only when it is empty."
    )
    title = "Free and held when most was reserved"
    return table_section("pinned", title, note, PINNED, report.pinned, "pinned")


def blocks_of(report: MemoryReport, moment: str) -> Section:
    title = f"The largest allocations {moment}"
    return table_section("largest", title, "", LARGEST, report.largest, "block")


def devices(report: MemoryReport, moment: str) -> Section | None:
    if len(report.devices) < 2:
        return None
    note = "The report is about the one with the most."
    return table_section("devices", "All GPUs", note, DEVICES, report.devices, "device")


def table_section(
    name: str, title: str, note: str, columns: list[Column], rows: Sequence[object], kind: str
) -> Section:
    table = Table(name, title, note, columns, rows, ids=row_ids(kind, rows))
    return Section(name, title, [table])


SECTIONS: list[Callable[[MemoryReport, str], Section | None]] = [
    fitting,
    failure,
    leaks,
    kinds,
    by_line,
    by_module,
    over_time,
    pins,
    blocks_of,
    devices,
]
