"""Records of torch.compile's output: graphs, kernels, calls, graph breaks, binaries.

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


# `operators` and `nodes` say what a kernel or a call was made of, None where inductor does not say:
# ATen's operators before decomposition (aten.gelu), and nodes of the traced program by the names of
# their variables.
@dataclass(frozen=True)
class Kernel:
    name: str  # on a GPU also a profiler shows this name
    language: str  # triton or cpp
    source: str
    operators: list[str] | None
    nodes: list[str] | None


@dataclass(frozen=True)
class Call:
    name: str  # a Kernel's, or that of a library's function: extern_kernels.mm
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
        """Name of the graph, such as 0_forward; also that of its folder."""
        return f"{self.number}_{self.part}"


@dataclass(frozen=True)
class GraphBreak:
    file: str | None  # None, and so is the line, if the message names no place
    line: int | None
    reason: str  # on one line
    count: int


@dataclass(frozen=True)
class Binary:
    """A Triton kernel's binary, of the variant that inductor chose.

    A value that this PyTorch does not provide is None.
    """

    registers: int | None  # per thread
    spills: int | None  # 32-bit words per thread in local memory, for want of registers
    shared_bytes: int | None  # per block
    config: str | None  # block sizes, warps, stages
    ptx: str | None


@dataclass(frozen=True)
class GraphEntry:
    name: str  # the graph's label
    file: str
    calls: list[Call]


@dataclass(frozen=True)
class KernelEntry:
    """A kernel of the index; two graphs may have kernels of one name. See Kernel and Binary."""

    name: str
    graph: str
    anchor: str  # id on the page: GRAPH.KERNEL
    language: str
    file: str
    ptx: str | None  # the file with its PTX
    calls: int  # number of calls in the graph
    operators: list[str] | None
    nodes: list[str] | None
    registers: int | None
    spills: int | None
    shared_bytes: int | None
    config: str | None


@dataclass(frozen=True)
class Index:
    """The file index.json of `python -m profiling compiled`."""

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
    """Parse one file of inductor's output code. Raises ValueError if it is none."""
    match = GRAPH.search(text)
    if match is None:
        raise ValueError("not inductor's output code: no line '# AOT ID'")
    tree, lines = ast.parse(text), text.splitlines()
    kernels = [kernel for node in tree.body if (kernel := kernel_of(node, lines))]
    names = {kernel.name: kernel for kernel in kernels}
    calls = [call for node in statements(tree) if (call := call_of(node, lines, names))]
    return Graph(int(match[1]), match[2], kernels, calls)


def kernel_of(node: ast.stmt, lines: list[str]) -> Kernel | None:
    """The kernel that a statement NAME = async_compile.LANGUAGE(..., '''source''', ...) defines, or
    None for any other statement."""
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
    """Statements of `call`, a function or, in newer versions, a method, `with` blocks flattened."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "call":
            yield from flatten(node.body)


def flatten(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Replace each `with` block by the statements in it."""
    for node in body:
        if isinstance(node, ast.With):
            yield from flatten(node.body)
        else:
            yield node


def call_of(node: ast.stmt, lines: list[str], kernels: dict[str, Kernel]) -> Call | None:
    """The call of a kernel or of a library's function that the statement makes, or None."""
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
    """(operators, nodes) from the comment right above the statement, or None for both."""
    for line in reversed(lines[: node.lineno - 1]):
        if not line.lstrip().startswith("#"):
            break
        if match := ORIGINS.search(line):
            return split_list(match["operators"]), split_list(match["nodes"])
    return None, None


def split_list(text: str) -> list[str]:
    return [word for word in text.split(", ") if word]


def graph_breaks(messages: list[str]) -> list[GraphBreak]:
    """Graph breaks with their counts, in the order in which they first came."""
    counts = Counter(map(parse_break, messages))
    return [GraphBreak(*place_and_reason, count) for place_and_reason, count in counts.items()]


def parse_break(message: str) -> tuple[str | None, int | None, str]:
    """(file, line, reason) of a message that Dynamo logged about a graph break."""
    place, reason = PLACE.search(message), REASON.search(message)
    file, line = (place["file"], int(place["line"])) if place else (None, None)
    return file, line, one_line(reason["reason"] if reason else message)


def triton_binaries(cache: Path) -> dict[tuple[str, str], Binary]:
    """Binaries by (file of the output code, kernel). `cache` is the folder that Triton compiled
    into."""
    from torch._inductor.codecache import PyCodeCache

    return {
        (module.__file__, name): binary_of(value.launchers[0], name, cache)
        for module in getattr(PyCodeCache, "modules", [])
        for name, value in vars(module).items()
        if getattr(value, "launchers", None)
    }


def binary_of(launcher: object, name: str, cache: Path) -> Binary:
    folder = getattr(launcher, "cache_hash", None)
    paths = sorted(cache.rglob(f"{folder}/{name}.ptx")) if folder else []
    config = getattr(launcher, "config", None)
    return Binary(
        getattr(launcher, "n_regs", None),
        getattr(launcher, "n_spills", None),
        getattr(launcher, "shared", None),
        None if config is None else str(config),
        paths[0].read_text(encoding="utf-8") if paths else None,
    )
