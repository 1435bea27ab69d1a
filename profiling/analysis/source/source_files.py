"""Find the line of a call within a function, by the program's source. Called by launch_places.

A capture says in which function something was called, and what: softmax, backward, aten::add. If
the function's source has that on one line alone, it is this line. Sources are read where they lie
in the run's or the current folder and have not changed since the capture; they are never executed.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from profiling.analysis.source.own_code import Frame, frame_named
from profiling.timeline.personal import without_folders

MOST_BYTES = 1 << 20  # of a source file
WHOLE_FILE = "<module>"  # function of what a file itself does
BUILT_IN = re.compile(r"<built-in (?:method|function) (?P<name>\w+)\b.*")
MODULE = re.compile(r"nn\.Module: (?P<name>\w+?)_\d+")
OPTIMIZER_STEP = re.compile(r"torch/optim/optimizer\.py\(\d+\): (?:profile_hook_step|wrapper)")
# operators of Python that call an operator of PyTorch without a function in between
OPERATORS: dict[str, type[ast.AST]] = {
    "aten::add": ast.Add,
    "aten::sub": ast.Sub,
    "aten::rsub": ast.Sub,
    "aten::mul": ast.Mult,
    "aten::div": ast.Div,
    "aten::floor_divide": ast.FloorDiv,
    "aten::remainder": ast.Mod,
    "aten::matmul": ast.MatMult,
    "aten::pow": ast.Pow,
    "aten::neg": ast.USub,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = Function | ast.Module
INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)  # run as frames of theirs


@dataclass(frozen=True)
class Place:
    """A line of the program; `exact` is False where it is the one on which its function begins."""

    file: str
    line: int
    function: str
    exact: bool
    also: tuple[str, ...] = ()  # FILE:LINE of others that made the same kernel

    @property
    def text(self) -> str:
        return f"{without_folders(self.file)}:{self.line}"


@dataclass(frozen=True, eq=False)
class SourceFile:
    """The text of a file of the program."""

    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def scope(self, frame: Frame) -> Scope | None:
        """The function in which the frame is, or None if the file has no such one there."""
        if frame.function == WHOLE_FILE:
            return self.tree
        around = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, Function)
            and node.name == frame.function
            and first_line(node) <= frame.line <= (node.end_lineno or node.lineno)
        ]
        return max(around, key=first_line, default=None)

    def attributes(self, function: ast.AST, kind: str) -> set[str]:
        """Attributes of `self` that the class around the function makes of the class `kind`."""
        classes = [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]
        of = [node for node in classes if function in node.body]
        return {
            target.attr
            for node in (inner for each in of for inner in ast.walk(each))
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            for target in node.targets
            if isinstance(target, ast.Attribute) and name_called(node.value) == kind
        }


def run_folder_of(capture: Path) -> Path:
    """The folder of the run whose profile/ has the capture, or else that of the capture."""
    folder = capture.resolve().parent
    return folder.parent if folder.name == "profile" else folder


class SourceFiles:
    """The program's sources in the run's and the current folder."""

    def __init__(self, capture: Path) -> None:
        self.roots = (run_folder_of(capture), Path.cwd().resolve())
        self.captured_s = capture.stat().st_mtime if capture.is_file() else 0.0
        self.source_of, self.file_at = cache(self.find), cache(self.read)

    def find(self, frame: Frame) -> tuple[SourceFile, Scope] | None:
        """(the file of the frame, its function in it); None where the file has changed since, or
        lies elsewhere."""
        for root in self.roots:
            path = (root / frame.file).resolve()
            source = self.file_at(path) if path.is_relative_to(root) else None
            if source and (scope := source.scope(frame)):
                return source, scope
        return None

    def read(self, path: Path) -> SourceFile | None:
        if path.suffix != ".py" or not path.is_file():
            return None
        facts = path.stat()
        if facts.st_mtime > self.captured_s or facts.st_size > MOST_BYTES:
            return None
        try:
            source = SourceFile(path.read_text(encoding="utf-8"))
            return source if source.tree else None
        except (OSError, ValueError, SyntaxError, RecursionError):
            return None

    def place(self, frame: Frame, callee: str | None) -> Place:
        """The line of the frame that called `callee`, the name of a frame or an operator."""
        line = frame.line
        if found := self.source_of(frame):
            source, scope = found
            lines = set(calling_lines(source, scope, callee)) if callee else set()
            if len(lines) == 1:
                return Place(frame.file, lines.pop(), frame.function, exact=True)
            line = line if isinstance(scope, ast.Module) else scope.lineno
        return Place(frame.file, line, frame.function, exact=False)

    def place_of_lines(self, frames: tuple[Frame, ...], files: set[str]) -> Place:
        """The first of the lines with the others; of their files' paths what `files` name."""
        first, *others = (
            Place(self.short_name(frame.file, files), frame.line, frame.function, exact=True)
            for frame in frames
        )
        return replace(first, also=tuple(other.text for other in others))

    def short_name(self, path: str, files: set[str]) -> str:
        """The path as frames have it, else within the folders of the sources, else all of it."""
        named = [file for file in files if f"/{path}".endswith(f"/{file}")]
        inside = [path.removeprefix(f"{root}/") for root in self.roots]
        return min([*named, *inside], key=len)


def first_line(function: Function) -> int:
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])


def calling_lines(source: SourceFile, scope: Scope, callee: str) -> Iterator[int]:
    """Yield the lines of the function that may call `callee`."""
    names, wanted = names_of(callee), OPERATORS.get(callee)
    if module := MODULE.fullmatch(callee):
        names = source.attributes(scope, module["name"])
    for node in own_nodes(scope):
        if isinstance(node, ast.Call) and name_called(node) in names:
            yield node.func.end_lineno or node.lineno
        elif isinstance(node, ast.BinOp | ast.UnaryOp | ast.AugAssign) and is_of(node.op, wanted):
            yield node.lineno


def is_of(operator: ast.AST, wanted: type[ast.AST] | None) -> bool:
    return wanted is not None and isinstance(operator, wanted)


def names_of(callee: str) -> set[str]:
    """The names by which a program may call the frame."""
    if OPTIMIZER_STEP.fullmatch(callee):
        return {"step"}
    if built_in := BUILT_IN.fullmatch(callee):
        return {built_in["name"]}
    frame = frame_named(callee)
    return {frame.function} if frame else set()


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body, without those of functions and classes inside."""
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, INNER):
            yield node
            yield from own_nodes(node)


def name_called(call: ast.Call) -> str | None:
    """The last part of the name that is called: softmax of F.softmax(x)."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return None
