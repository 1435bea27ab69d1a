"""Inductor's output code as records: graphs, the kernels that it wrote, and the calls in order.

The text is read as syntax and never executed. Called by profiling.verbs.compiled.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

GRAPH = re.compile(r"^# AOT ID: \['(\d+)_(\w+)'\]", re.M)
# PyTorch 2.6 to 2.13 say "Topologically Sorted Source Nodes", older ones "Source Nodes"
ORIGINS = re.compile(r"Source Nodes: \[(?P<nodes>.*?)\], Original ATen: \[(?P<operators>.*?)\]")
LANGUAGES = {"triton": "triton", "cpp_pybinding": "cpp", "cpp": "cpp"}
LIBRARIES = ("extern_kernels.", "torch.ops.aten.", "aten.")


@dataclass(frozen=True)
class Origins:
    """What a kernel or a call was made of; both None where inductor's comment does not say."""

    operators: list[str] | None  # ATen's, before inductor took them apart: aten.gelu
    nodes: list[str] | None  # of the traced program, by their variables' names


@dataclass(frozen=True)
class Kernel:
    name: str  # on a GPU also the name that a profiler shows
    language: str  # triton or cpp
    source: str
    origins: Origins


@dataclass(frozen=True)
class Call:
    name: str  # of a kernel above, or of a library's function: extern_kernels.mm
    is_library: bool
    origins: Origins


@dataclass(frozen=True)
class Graph:
    number: int
    part: str  # forward, backward or inference
    kernels: list[Kernel]
    calls: list[Call]


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
    return Kernel(name, LANGUAGES[language], source.strip("\n") + "\n", origins(node, lines))


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
        return Call(name, False, kernels[name].origins)
    if not function.startswith(LIBRARIES):
        return None
    return Call(function.removesuffix(".default"), True, origins(node, lines))


def origins(node: ast.stmt, lines: list[str]) -> Origins:
    """From the comment right above."""
    line = node.lineno - 2
    while line >= 0 and lines[line].lstrip().startswith("#"):
        if match := ORIGINS.search(lines[line]):
            return Origins(listed(match["operators"]), listed(match["nodes"]))
        line -= 1
    return Origins(None, None)


def listed(text: str) -> list[str]:
    return [word for word in text.split(", ") if word]
