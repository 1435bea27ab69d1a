"""What torch.compile leaves behind, as records: graphs, kernels, calls, breaks, binaries.

Inductor's output code is read as syntax and never executed; graph breaks come out of the lines that
Dynamo logs, since its own counter misses some kinds of them. Called by profiling.lab.compiled.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cli.errors import one_line

GRAPH = re.compile(r"^# AOT ID: \['(\d+)_(\w+)'\]", re.M)
# PyTorch 2.6 to 2.13 say "Topologically Sorted Source Nodes", older ones "Source Nodes"
ORIGINS = re.compile(r"Source Nodes: \[(?P<nodes>.*?)\], Original ATen: \[(?P<operators>.*?)\]")
LANGUAGES = {"triton": "triton", "cpp_pybinding": "cpp", "cpp": "cpp"}
LIBRARIES = ("extern_kernels.", "torch.ops.aten.", "aten.")
PLACE = re.compile(r"Graph break in user code at (?P<file>.+):(?P<line>\d+)\n")
REASON = re.compile(
    r"Reason: (?P<reason>.*?)(?:\n\s*(?:Hint|Developer debug context|User code traceback):|\Z)",
    re.S,
)


# What a kernel or a call was made of, None where inductor does not say: `operators` are ATen's
# before they were taken apart (aten.gelu), `nodes` the traced program's by their variables' names.
@dataclass(frozen=True)
class Kernel:
    name: str  # on a GPU also the name that a profiler shows
    language: str  # triton or cpp
    source: str
    operators: list[str] | None
    nodes: list[str] | None


@dataclass(frozen=True)
class Call:
    name: str  # of a kernel above, or of a library's function: extern_kernels.mm
    is_library: bool
    operators: list[str] | None
    nodes: list[str] | None


@dataclass(frozen=True)
class Graph:
    number: int
    part: str  # forward, backward or inference
    kernels: list[Kernel]
    calls: list[Call]

    @property
    def label(self) -> str:
        """Its folder: 0_forward."""
        return f"{self.number}_{self.part}"


@dataclass(frozen=True)
class GraphBreak:
    file: str | None  # None and None where the message names no place
    line: int | None
    reason: str  # on one line
    count: int


@dataclass(frozen=True)
class Binary:
    """Of the variant that inductor chose; None what this PyTorch does not tell."""

    registers: int | None  # a thread's
    spills: int | None  # 32-bit words that a thread keeps in local memory for want of registers
    shared_bytes: int | None  # a block's
    config: str | None  # block sizes, warps, stages
    ptx: str | None


@dataclass(frozen=True)
class GraphEntry:
    name: str  # its label
    file: str
    calls: list[Call]


@dataclass(frozen=True)
class KernelEntry:
    """A kernel of the index; two graphs may both use its name. See Kernel and Binary."""

    name: str
    graph: str
    anchor: str  # on the page: GRAPH.KERNEL
    language: str
    file: str
    ptx: str | None  # its file
    calls: int
    operators: list[str] | None
    nodes: list[str] | None
    registers: int | None
    spills: int | None
    shared_bytes: int | None
    config: str | None


@dataclass(frozen=True)
class Index:
    """index.json of `python -m profiling compiled`."""

    torch: str
    device: str
    attention: str
    dtype: str
    compile_scope: str
    first_micro_step_s: float
    graphs: list[GraphEntry]
    graph_breaks: list[GraphBreak]
    kernels: list[KernelEntry]


def is_output_code(text: str) -> bool:
    return GRAPH.search(text) is not None


def parse_graph(text: str) -> Graph:
    """One file of output code. Raises ValueError where it is none."""
    match = GRAPH.search(text)
    if match is None:
        raise ValueError("not inductor's output code: no line '# AOT ID'")
    tree, lines = ast.parse(text), text.splitlines()
    kernels = [kernel for node in tree.body if (kernel := kernel_of(node, lines))]
    names = {kernel.name: kernel for kernel in kernels}
    calls = [call for node in statements(tree) if (call := call_of(node, lines, names))]
    return Graph(int(match[1]), match[2], kernels, calls)


def kernel_of(node: ast.stmt, lines: list[str]) -> Kernel | None:
    """NAME = async_compile.LANGUAGE(..., '''source''', ...)"""
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
        return None
    function, _, language = ast.unparse(node.value.func).rpartition(".")
    if function != "async_compile" or language not in LANGUAGES:
        return None
    texts = [a.value for a in node.value.args if isinstance(a, ast.Constant)]
    source = max((text for text in texts if isinstance(text, str)), key=len)
    name = ast.unparse(node.targets[0])
    return Kernel(name, LANGUAGES[language], source.strip("\n") + "\n", *origins(node, lines))


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The body of `call`, a function or, in newer versions, a method; its `with` blocks opened."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "call":
            yield from opened(node.body)


def opened(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.With):
            yield from opened(node.body)
        else:
            yield node


def call_of(node: ast.stmt, lines: list[str], kernels: dict[str, Kernel]) -> Call | None:
    if not (isinstance(node, (ast.Expr, ast.Assign)) and isinstance(node.value, ast.Call)):
        return None
    function = ast.unparse(node.value.func)
    name = function.removesuffix(".run")
    if name in kernels:
        return Call(name, False, kernels[name].operators, kernels[name].nodes)
    if not function.startswith(LIBRARIES):
        return None
    return Call(function.removesuffix(".default"), True, *origins(node, lines))


def origins(node: ast.stmt, lines: list[str]) -> tuple[list[str] | None, list[str] | None]:
    """Operators and nodes, from the comment right above."""
    for line in reversed(lines[: node.lineno - 1]):
        if not line.lstrip().startswith("#"):
            break
        if match := ORIGINS.search(line):
            return listed(match["operators"]), listed(match["nodes"])
    return None, None


def listed(text: str) -> list[str]:
    return [word for word in text.split(", ") if word]


def graph_breaks(messages: list[str]) -> list[GraphBreak]:
    """The breaks in the order in which they first came."""
    return [GraphBreak(*told, count) for told, count in Counter(map(one_break, messages)).items()]


def one_break(message: str) -> tuple[str | None, int | None, str]:
    """File, line and reason."""
    place, reason = PLACE.search(message), REASON.search(message)
    file, line = (place["file"], int(place["line"])) if place else (None, None)
    return file, line, one_line(reason["reason"] if reason else message)


def triton_binaries(cache: Path) -> dict[tuple[str, str], Binary]:
    """(file of the output code, kernel) -> its binary. `cache` holds what Triton compiled."""
    from torch._inductor.codecache import PyCodeCache

    return {
        (module.__file__, name): binary_of(value.launchers[0], name, cache)
        for module in getattr(PyCodeCache, "modules", [])
        for name, value in vars(module).items()
        if getattr(value, "launchers", None)
    }


def binary_of(launcher: object, name: str, cache: Path) -> Binary:
    folder = getattr(launcher, "cache_hash", None)
    found = sorted(cache.rglob(f"{folder}/{name}.ptx")) if folder else []
    config = getattr(launcher, "config", None)
    return Binary(
        getattr(launcher, "n_regs", None),
        getattr(launcher, "n_spills", None),
        getattr(launcher, "shared", None),
        None if config is None else str(config),
        found[0].read_text(encoding="utf-8") if found else None,
    )
