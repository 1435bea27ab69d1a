"""Docstrings of product and tests can be read by themselves: each begins with a verb or a noun."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.paths import PROJECT

PROGRAMS = ("train.py", "model.py", "sample.py")
FOLDERS = (
    "benchmarks",
    "cli",
    "configs",
    "data",
    "docs/hooks",
    "kernels",
    "profiling",
    "training",
    "validation",
)
# beginnings that continue the function's name, which an editor's hover does not show as a sentence
CONTINUATIONS = """
    Of For From In Into By With Without To At On As Behind Before After Around Through Under Over
    Within Between Beside Besides Per Until Where What When Which Who Whose Likewise Also And Or But
    How If Not Never Only Again Unless Because Since So That Than Then There Those These They It Its
    Same Up Above Below Beyond Among Against Along Maybe Mostly
"""
MARKS = ",.:;`'\""
BAD = '''"""A module."""

class Table:
    """With columns."""

    def rows(self):
        """Number of rows."""

        async def fetch():
            """`Of` the first column."""

    def age(self):
        """How old the table is."""
'''


def product_files() -> list[Path]:
    inside = (path for folder in FOLDERS for path in sorted((PROJECT / folder).rglob("*.py")))
    return [*(PROJECT / name for name in PROGRAMS), *inside]


def files_of_tests() -> list[Path]:
    return sorted((PROJECT / "tests").rglob("*.py"))


def faults(path: Path, root: Path = PROJECT) -> Iterator[str]:
    """One line for each docstring that begins as a continuation of a name."""
    waiting: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    for node in waiting:
        waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.expr)]
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text and text.split()[0].strip(MARKS) in CONTINUATIONS.split():
                yield fault(path.relative_to(root), node, text)


def fault(path: Path, node: ast.AST, text: str) -> str:
    """`FILE:LINE: NAME begins with: TEXT`, with the first line of the docstring."""
    line, name = getattr(node, "lineno", 1), getattr(node, "name", "module")
    return f"{path.as_posix()}:{line}: {name} begins with: {text.splitlines()[0]}"


def test_the_product_is_found():
    names = {path.relative_to(PROJECT).as_posix() for path in product_files()}
    assert {"train.py", "cli/errors.py", "training/step/step.py", "benchmarks/__main__.py"} <= names
    assert all(path.is_file() for path in product_files())


def test_the_tests_are_found():
    names = {path.relative_to(PROJECT).as_posix() for path in files_of_tests()}
    assert {"tests/test_words.py", "tests/paths.py", "tests/lab/test_timer.py"} <= names
    assert names.isdisjoint(path.relative_to(PROJECT).as_posix() for path in product_files())


def test_a_docstring_that_continues_a_name_is_found(tmp_path):
    (tmp_path / "bad.py").write_text(BAD, encoding="utf-8")
    assert list(faults(tmp_path / "bad.py", tmp_path)) == [
        "bad.py:3: Table begins with: With columns.",
        "bad.py:12: age begins with: How old the table is.",
        "bad.py:9: fetch begins with: `Of` the first column.",
    ]


def test_docstrings_begin_with_a_verb_or_a_noun():
    found = [line for path in [*product_files(), *files_of_tests()] for line in faults(path)]
    assert not found, "\n" + "\n".join(found)
