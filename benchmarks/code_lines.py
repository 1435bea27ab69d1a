"""How many lines this project has, by kind and folder: code, and what documents, types, imports.

    python -m benchmarks code_lines [folder=FOLDER]

Types are records, fields of classes and protocols; docs are docstrings. The tests, what runs wrote
and hidden folders are left out. Prints a Markdown table with a row for each folder.
"""

import ast
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.measuring import Keys, key

KINDS = ("code", "types", "docs", "comments", "imports", "templates", "blank")
SKIPPED = (".*", "__pycache__", "node_modules", "tests", "out", "out-*", "outputs", "wandb")
TEMPLATES = (".html", ".css", ".js", ".j2")
TYPES = {"Protocol", "NamedTuple", "TypedDict", "Enum", "StrEnum"}  # base classes


@dataclass
class LinesConfig(Keys):
    folder: str = key(".", "whose files are counted")


def main(config: LinesConfig) -> None:
    root = Path(config.folder)
    if not root.is_dir():
        raise ValueError(f"folder={root}: no such folder")
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for path in files(root):
        counts["/".join(path.parent.relative_to(root).parts[:2]) or "."] += kinds_of(path)
    print(f"| folder | {' | '.join(KINDS)} |\n|---|{'---:|' * len(KINDS)}")
    for name, count in [*sorted(counts.items()), ("total", sum(counts.values(), Counter()))]:
        print(f"| {name} | {' | '.join(f'{count[kind]:,}' for kind in KINDS)} |")


def files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not any(fnmatch(name, s) for s in SKIPPED)]
        yield from (Path(folder, name) for name in names if name.endswith((".py", *TEMPLATES)))


def kinds_of(path: Path) -> Counter[str]:
    """Number of lines of each kind in the file."""
    lines = dict(enumerate(path.read_text(encoding="utf-8").splitlines(), start=1))
    if path.suffix in TEMPLATES:
        return Counter("templates" for line in lines.values() if line.strip())
    kinds = dict.fromkeys(lines, "code")
    # ast.walk goes from the outside inwards, so that the innermost node decides
    for node in ast.walk(ast.parse(path.read_bytes())):
        for part, kind in parts_of(node):
            kinds |= dict.fromkeys(range(part.lineno, (part.end_lineno or part.lineno) + 1), kind)
    for number, line in lines.items():
        if not line.strip():
            kinds[number] = "blank"
        elif line.lstrip().startswith("#") and kinds[number] != "docs":
            kinds[number] = "comments"
    return Counter(kinds.values())


def parts_of(node: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    """Yield the parts of a node that are not code, with their kinds."""
    match node:
        case ast.Import() | ast.ImportFrom():
            yield node, "imports"
        case ast.Expr(value=ast.Constant(value=str())):
            yield node, "docs"
        case ast.ClassDef():
            bases = re.findall(r"\w+", " ".join(map(ast.unparse, node.bases)))
            record = all(isinstance(p, (ast.AnnAssign, ast.Expr, ast.Pass)) for p in node.body)
            parts: list[ast.stmt | ast.expr] = [*node.decorator_list, node, *node.body]
            for part in parts:
                if record or not TYPES.isdisjoint(bases) or isinstance(part, ast.AnnAssign):
                    yield part, "types"
