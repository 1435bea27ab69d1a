"""Document of kernels that Nsight Compute measured. Called by profiling.verbs.ncu."""

import textwrap
from types import SimpleNamespace

from profiling.report.document import (
    PAGE,
    TEXT,
    Block,
    Bullets,
    Column,
    Document,
    Paragraph,
    Section,
    Table,
)
from profiling.report.kernel_label import kernel_cell, kernel_label
from profiling.shared.units import duration_ns
from profiling.tools.ncu_csv import Advice, ProfiledKernel

LABEL = Column("kernel", lambda kernel: kernel_cell(kernel.name), "code", True)
COLUMNS = [
    LABEL,
    Column("range", lambda kernel: " / ".join(kernel.ranges) or None, "text"),
    Column("duration", "duration_ns", "ns"),
    Column("SM", "sm_percent", "percent"),
    Column("memory", "memory_percent", "percent"),
    Column("DRAM", "dram_percent", "percent"),
    Column("occupancy", "achieved_occupancy_percent", "percent"),
    Column("at most", "theoretical_occupancy_percent", "percent"),
    Column("limited by", lambda kernel: ", ".join(kernel.limited_by) or None, "text"),
    Column("registers", "registers", "number"),
    Column("waves", "waves", "number"),
    Column("tail empty", "tail_percent", "percent"),
]
# columns in a terminal, where percents have no sign
BRIEF = [
    Column("#", "number", "number", True),
    LABEL,
    Column("time", "duration_ns", "ns", True),
    Column("SM %", "sm_percent", "number", True),
    Column("DRAM %", "dram_percent", "number", True),
    Column("occ. %", "achieved_occupancy_percent", "number", True),
    Column("of %", "theoretical_occupancy_percent", "number", True),
    Column("by", lambda kernel: ", ".join(kernel.limited_by) or None, "code", True),
    Column("waves", "waves", "number", True),
    Column("tail %", "tail_percent", "number", True),
]
BRIEF_NOTE = (
    "occ.: occupancy reached; of: the highest possible; by: what limits it. Advice follows."
)
LEAD = (
    "Measured by Nsight Compute. SM, memory and DRAM: share of the peak, over the kernel's time. "
    "Occupancy: the share of an SM's warps in use, and what keeps more blocks from running "
    "there. A wave is the number of blocks that fit on the GPU at once; tail: the share of all "
    "waves that stays empty because the last wave is not full."
)
PAGE_ROWS = 60
ADVICE_SHOWN, ADVICE_WIDTH = 3, 230  # lines for each kernel in a terminal, characters of a line


def ncu_document(kernels: list[ProfiledKernel]) -> Document:
    total = duration_ns(sum(kernel.duration_ns or 0 for kernel in kernels))
    launches = f"{len(kernels)} kernel launch{'' if len(kernels) == 1 else 'es'}"
    rows = [
        SimpleNamespace(number=number, **vars(kernel))
        for number, kernel in enumerate(kernels, start=1)
    ]
    title = "What each kernel reached"
    tables: list[Block] = [
        Table("kernels", "Kernels", BRIEF_NOTE, BRIEF, rows, most=len(rows), places=TEXT),
        Table("kernels", title, "", COLUMNS, rows, limit=PAGE_ROWS, places=PAGE),
    ]
    return Document(
        title=f"{launches} profiled, {total} in all",
        notes=[],
        verdict=[],
        sections=[
            Section("kernels", title, tables, short="Kernels", lead=LEAD),
            *(advice_section(number, kernel) for number, kernel in enumerate(kernels, start=1)),
        ],
    )


def advice_section(number: int, kernel: ProfiledKernel) -> Section:
    label = kernel_label(kernel.name)
    where = f" in {' / '.join(kernel.ranges)}" if kernel.ranges else ""
    lines = [f"{estimate(advice)}{advice.text}" for advice in sorted(kernel.advice, key=sort_key)]
    short = [textwrap.shorten(line, ADVICE_WIDTH, placeholder=" …") for line in lines]
    return Section(
        f"advice-{number}",
        f"{number}. {label}{where}",
        [
            Paragraph(f"grid {kernel.grid}, block {kernel.block}", "note", places=PAGE),
            Bullets(None, short[:ADVICE_SHOWN], places=TEXT),
            Bullets("What ncu advises", lines, places=PAGE)
            if lines
            else Paragraph("This report contains no advice.", "note", places=PAGE),
        ],
        short=f"Kernel {number}",
    )


def sort_key(advice: Advice) -> tuple[bool, bool, bool, float]:
    """Sort key: advice with an estimate for the whole kernel, then for a part, then without one.

    Among equals the larger estimated speedup comes first.
    """
    percent = advice.speedup_percent
    return advice.kind != "OPT", percent is None, advice.scope != "global", -(percent or 0)


def estimate(advice: Advice) -> str:
    if advice.speedup_percent is None:
        return ""
    of = "" if advice.scope == "global" else " of a part"
    return f"{advice.rule}, up to {advice.speedup_percent:.3g} %{of}: "
