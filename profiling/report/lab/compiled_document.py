"""What torch.compile made of the model, as a Document. Called by profiling.lab.compiled."""

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
    Said,
    Section,
    Source,
    Table,
    Verdict,
)
from profiling.tools.torch_compile import Call, GraphBreak, GraphEntry, Index, KernelEntry

PAGE_ROWS = 60
FUSED = re.compile(r"_fused_(.*)_(\d+)$")  # in a generated name: the operators and a number


def compiled_document(index: Index, files: dict[str, str]) -> Document:
    """`files`: the path of each in the folder -> its text."""
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
    """How many graphs, kernels, calls of libraries, and breaks."""
    library = sum(call.is_library for graph in index.graphs for call in graph.calls)
    breaks = sum(found.count for found in index.graph_breaks)
    return (
        f"{counted(len(index.graphs), 'graph')}, {counted(len(index.kernels), 'kernel')} "
        f"written, {counted(library, 'library call')}, {counted(breaks, 'graph break')}"
    )


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def breaks_section(breaks: list[GraphBreak]) -> Section:
    lead = (
        "Python that Dynamo could not trace: the graph ends there, and nothing is fused across it."
    )
    blocks: list[Block] = [
        Finding("warning", found.reason, word=f"break at {place(found)}") for found in breaks
    ]
    none = Said("None: each compiled part is one graph.", places=PAGE)
    return Section("breaks", "Graph breaks", blocks or [none], short="Breaks", lead=lead)


def place(found: GraphBreak) -> str:
    """FILE:LINE of a graph break, and how often."""
    where = "a place that is not told" if found.file is None else f"{found.file}:{found.line}"
    return where + (f", {found.count} times" if found.count > 1 else "")


def kernels_section(kernels: list[KernelEntry]) -> Section:
    title = "Kernels that inductor wrote"
    columns = [
        Column("kernel", "name", "code", True),
        Column("graph", "graph", "text", True),
        Column("operators fused", told, "code", True),
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


def told(row: KernelEntry | Call) -> str | None:
    """Its operators, each once, without ATen's prefix."""
    if row.operators is None:
        named = FUSED.search(row.name)
        return named and named[1].strip("_")
    bare = [name.removeprefix("aten.").removeprefix("prims.") for name in row.operators]
    return ", ".join(dict.fromkeys(bare))


def short_kernel(kernel: KernelEntry) -> KernelEntry:
    """triton_poi_…_3: without the operators in its name, which have a column of their own."""
    operators = [named] if (named := told(kernel)) else None
    return replace(kernel, name=FUSED.sub(r"_…_\2", kernel.name), operators=operators)


def calls_section(graph: GraphEntry) -> Section:
    title = f"Graph {graph.name}, call by call"
    columns = [
        Column("", lambda row: row[0], "number"),
        Column("call", lambda row: row[1].name, "code"),
        Column("by", lambda row: "library" if row[1].is_library else "inductor", "text"),
        Column("operators", lambda row: told(row[1]), "text"),
    ]
    rows = list(enumerate(graph.calls, start=1))
    table = Table(f"calls-{graph.name}", title, "", columns, rows, limit=PAGE_ROWS)
    return Section(graph.name, title, [table], short=graph.name, places=PAGE)


def source(kernel: KernelEntry, code: str) -> Source:
    nodes = [f"Source nodes: {', '.join(kernel.nodes)}"] if kernel.nodes is not None else []
    about = [*nodes, *filter(None, [kernel.config])]
    return Source(kernel.name, kernel.graph, code, kernel.anchor, about)
