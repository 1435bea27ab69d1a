"""Find the line of a call within a function, by the program's source. Called by launch_places.

A capture says in which function something was called, and what: softmax, backward, aten::add. If
the function's source has that on one line alone, it is this line; if each time it has been called
as often as the source has it outside of loops and branches, they are these lines in turn. Sources
are read where they lie in the run's or the current folder and have not changed since the capture;
they are never executed.
"""

import ast
import warnings
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from profiling.analysis.source.call_sites import MODULE, Site, call_sites
from profiling.analysis.source.own_code import Frame
from profiling.timeline.personal import without_folders

MOST_BYTES = 1 << 20  # of a source file
WHOLE_FILE = "<module>"  # function of what a file itself does
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = Function | ast.Module


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
        with warnings.catch_warnings(action="ignore"):  # those of the program's own syntax
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

    def class_of(self, function: Scope) -> str | None:
        """The name of the class of which the function is a method, or None."""
        classes = (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))
        return next((node.name for node in classes if function in node.body), None)


def run_folder_of(capture: Path) -> Path:
    """The folder of the run whose profile/ has the capture, or else that of the capture."""
    folder = capture.resolve().parent
    return folder.parent if folder.name == "profile" else folder


class SourceFiles:
    """The program's sources in the run's and the current folder."""

    def __init__(self, capture: Path) -> None:
        self.roots = (run_folder_of(capture), Path.cwd().resolve())
        self.captured_s = capture.stat().st_mtime if capture.is_file() else 0.0
        self.source_of, self.file_in = cache(self.find), cache(self.read)
        self.sites_of = cache(self.sites)

    def find(self, frame: Frame) -> tuple[SourceFile, Scope] | None:
        """(the file of the frame, its function in it); None where the file has changed since, or
        lies elsewhere."""
        for root in self.roots:
            source = self.file_in(root, frame.file)
            if source and (scope := source.scope(frame)):
                return source, scope
        return None

    def read(self, root: Path, name: str) -> SourceFile | None:
        """The file in the folder `root`; None for one that cannot be read or is no Python."""
        try:
            path = (root / name).resolve()
            if path.suffix != ".py" or not (path.is_relative_to(root) and path.is_file()):
                return None
            facts = path.stat()
            if facts.st_mtime > self.captured_s or facts.st_size > MOST_BYTES:
                return None
            source = SourceFile(path.read_text(encoding="utf-8"))
            return source if source.tree else None
        except (OSError, ValueError, SyntaxError, RuntimeError, MemoryError):
            return None

    def place(self, frame: Frame, callee: str | None, turn: int, turns: int) -> Place:
        """The line of the frame that called `callee`, the name of a frame or an operator.

        In one call of the function it was the one with the number `turn` of `turns` of its kind.
        """
        line = frame.line
        if found := self.source_of(frame):
            scope = found[1]
            sites = self.sites_of(frame, callee) if callee else []
            in_turn = 0 < len(sites) == turns and all(site.once for site in sites)
            lines = {site.line for site in sites}
            if in_turn or (len(lines) == 1 and not (callee and MODULE.fullmatch(callee))):
                return Place(frame.file, sites[turn if in_turn else 0].line, frame.function, True)
            line = line if isinstance(scope, ast.Module) else scope.lineno
        return Place(frame.file, line, frame.function, exact=False)

    def sites(self, frame: Frame, callee: str) -> list[Site]:
        found = self.source_of(frame)
        try:
            return call_sites(found[0].tree, found[1], callee) if found else []
        except RecursionError:
            return []

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
