"""Document of what torch.compile made of the model. Called by profiling.lab.compiled."""

import re
from dataclasses import replace

from profiling.report.document import (
    PAGE,
    TEXT,
    Block,
    Column,
    Document,
    Facts,
    Finding,
    Paragraph,
    Section,
    Source,
    Table,
    Verdict,
)
from profiling.tools.torch_compile import Call, GraphBreak, GraphEntry, Index, KernelEntry

PAGE_ROWS = 60
FUSED = re.compile(r"_fused_(.*)_(\d+)$")  # end of a generated name: the operators and a number


def compiled_document(index: Index, files: dict[str, str]) -> Document:
    """The page of a compiled model. `files` maps paths in its folder to the files' texts."""
    facts = [
        ("device", index.device),
        ("PyTorch", index.torch),
        ("attention", index.attention),
        ("dtype", index.dtype),
        ("compiled as one", index.compile_scope),
        ("first micro-step, with compilation", f"{index.first_micro_step_s:.1f} s"),
    ]
    sources: list[Block] = [source(kernel, files[kernel.file]) for kernel in index.kernels]
    return Document(
        title="What torch.compile made of the model",
        notes=[f"{index.device} · PyTorch {index.torch}"],
        verdict=[Verdict(headline(index)), Facts(facts, places=PAGE)],
        sections=[
            breaks_section(index.graph_breaks),
            kernels_section(index.kernels),
            *map(calls_section, index.graphs),
            Section("sources", "Sources", sources, places=PAGE),
        ],
    )


def headline(index: Index) -> str:
    """The numbers of graphs, kernels, library calls and graph breaks, in a line."""
    library = sum(call.is_library for graph in index.graphs for call in graph.calls)
    breaks = sum(each.count for each in index.graph_breaks)
    return (
        f"{count_text(len(index.graphs), 'graph')}, {count_text(len(index.kernels), 'kernel')} "
        f"written, {count_text(library, 'library call')}, {count_text(breaks, 'graph break')}"
    )


def count_text(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def breaks_section(breaks: list[GraphBreak]) -> Section:
    lead = (
        "Python that Dynamo could not trace: the graph ends there, and nothing is fused across it."
    )
    blocks: list[Block] = [
        Finding("warning", each.reason, word=f"break at {place(each)}") for each in breaks
    ]
    none = Paragraph("None: each compiled part is one graph.", places=PAGE)
    return Section("breaks", "Graph breaks", blocks or [none], short="Breaks", lead=lead)


def place(graph_break: GraphBreak) -> str:
    """The place of a graph break as FILE:LINE, and how often it occurred."""
    where = "a place that is not told"
    if graph_break.file is not None:
        where = f"{graph_break.file}:{graph_break.line}"
    return where + (f", {graph_break.count} times" if graph_break.count > 1 else "")


def kernels_section(kernels: list[KernelEntry]) -> Section:
    title = "Kernels that inductor wrote"
    columns = [
        Column("kernel", "name", "code", True),
        Column("graph", "graph", "text", True),
        Column("operators fused", operator_names, "code", True),
        Column("calls", "calls", "number", True),
    ]
    if any(kernel.registers is not None for kernel in kernels):  # a GPU's
        columns += [
            Column("registers", "registers", "number", True),
            Column("spills", "spills", "number", True),
            Column("shared memory", "shared_bytes", "bytes"),
        ]
    short = [short_kernel(kernel) for kernel in kernels]
    note = "Names without their operators; the page has them whole, with sources."
    lead = (
        "Registers of a thread, 32-bit words that it spilled to local memory, shared memory of a "
        "block: of the variant that was chosen, on a GPU. The operators of C++ kernels are those "
        "of their names."
    )
    tables: list[Block] = [
        Table("kernels", title, note, columns, short, most=len(short), places=TEXT),
        Table("kernels", title, "", columns, kernels, limit=PAGE_ROWS, places=PAGE),
    ]
    return Section("kernels", title, tables, short="Kernels", lead=lead)


def operator_names(row: KernelEntry | Call) -> str | None:
    """The operators of a kernel or call, each once, without ATen's prefix; None if unknown."""
    if row.operators is None:
        match = FUSED.search(row.name)
        return match and match[1].strip("_")
    bare = [name.removeprefix("aten.").removeprefix("prims.") for name in row.operators]
    return ", ".join(dict.fromkeys(bare))


def short_kernel(kernel: KernelEntry) -> KernelEntry:
    """The kernel with a name like triton_poi_…_3; its operators have a column of their own."""
    operators = [names] if (names := operator_names(kernel)) else None
    return replace(kernel, name=FUSED.sub(r"_…_\2", kernel.name), operators=operators)


def calls_section(graph: GraphEntry) -> Section:
    title = f"Graph {graph.name}, call by call"
    columns = [
        Column("", lambda row: row[0], "number"),
        Column("call", lambda row: row[1].name, "code"),
        Column("by", lambda row: "library" if row[1].is_library else "inductor", "text"),
        Column("operators", lambda row: operator_names(row[1]), "text"),
    ]
    rows = list(enumerate(graph.calls, start=1))
    table = Table(f"calls-{graph.name}", title, "", columns, rows, limit=PAGE_ROWS)
    return Section(graph.name, title, [table], short=graph.name, places=PAGE)


def source(kernel: KernelEntry, code: str) -> Source:
    nodes = [f"Source nodes: {', '.join(kernel.nodes)}"] if kernel.nodes is not None else []
    about = [*nodes, *filter(None, [kernel.config])]
    return Source(kernel.name, kernel.graph, code, kernel.anchor, about)
