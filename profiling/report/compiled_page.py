"""What torch.compile made, as a page and as tables in a terminal.

Called by profiling.verbs.compiled with its index and the kernels' sources.
"""

import re
from typing import Any

from rich.console import Console
from rich.text import Text

from profiling.report import html
from profiling.report.console import grid
from profiling.report.tables import Column, Table

KERNEL_COLUMNS = [
    ("kernel", "name", "code"),
    ("graph", "graph", "text"),
    ("operators fused", "told_operators", "code"),
    ("calls", "calls", "number"),
    ("registers", "registers", "number"),
    ("spills", "spills", "number"),
    ("shared memory", "shared_bytes", "bytes"),
]
CALL_COLUMNS = [
    ("", "number", "number"),
    ("call", "name", "code"),
    ("by", "kind", "text"),
    ("operators", "told_operators", "text"),
]


def page(index: dict[str, Any], sources: dict[str, str]) -> str:
    """The whole HTML text. `sources`: the anchor of each kernel -> its source."""
    return html.render(
        "compiled.html.j2",
        figures={},
        index=index,
        headline=headline(index),
        facts=facts(index),
        kernel_columns=KERNEL_COLUMNS,
        kernels=[told(kernel) for kernel in index["kernels"]],
        call_columns=CALL_COLUMNS,
        graphs=[(graph, call_rows(graph)) for graph in index["graphs"]],
        sources=sources,
    )


def headline(index: dict[str, Any]) -> str:
    """One sentence: how many graphs, kernels, calls of libraries, and breaks."""
    library = sum(call["is_library"] for graph in index["graphs"] for call in graph["calls"])
    breaks = sum(found["count"] for found in index["graph_breaks"])
    return (
        f"{counted(len(index['graphs']), 'graph')}, {counted(len(index['kernels']), 'kernel')} "
        f"written, {counted(library, 'library call')}, {counted(breaks, 'graph break')}"
    )


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def facts(index: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("device", index["device"]),
        ("PyTorch", index["torch"]),
        ("attention", index["attention"]),
        ("dtype", index["dtype"]),
        ("compiled as one", index["compile_scope"]),
        ("first micro-step, with compilation", f"{index['first_micro_step_s']:.1f} s"),
    ]


def told(entry: dict[str, Any]) -> dict[str, Any]:
    """A kernel or call with its operators as text: each once, without ATen's prefix."""
    operators = entry["operators"]
    if operators is None:
        return entry | {"told_operators": None}
    bare = [name.removeprefix("aten.").removeprefix("prims.") for name in operators]
    return entry | {"told_operators": ", ".join(dict.fromkeys(bare))}


def call_rows(graph: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        told(call) | {"number": number, "kind": "library" if call["is_library"] else "inductor"}
        for number, call in enumerate(graph["calls"], start=1)
    ]


def place(found: dict[str, Any]) -> str:
    """FILE:LINE of a graph break."""
    return "place not told" if found["file"] is None else f"{found['file']}:{found['line']}"


def short_kernel(name: str) -> str:
    """triton_poi_…_3: a generated name without its operators, which have a column of their own."""
    return re.sub(r"_fused_.*_(\d+)$", r"_…_\1", name)


def print_index(index: dict[str, Any]) -> None:
    console = Console(highlight=False)
    console.print(Text(headline(index), style="bold"))
    for found in index["graph_breaks"]:
        console.print(Text(f"break at {place(found)}: {found['reason']}"))
    rows = [told(kernel) | {"name": short_kernel(kernel["name"])} for kernel in index["kernels"]]
    note = "Names without their operators; the page has them whole, with sources."
    columns = [Column(*column, brief=column[1] != "shared_bytes") for column in KERNEL_COLUMNS]
    table = Table("kernels", "Kernels that inductor wrote", note, columns, rows)
    if rows:
        console.print(grid(table, console.width, most=len(rows)))
