"""Reference on the site: a page for each verb from its --help, and for the JSON from its records.

A hook of mkdocs (mkdocs.yml). None of these pages is in the repository. What fields mean is said by
the comments beside them; the JSON Schema of each record is offered beside its page.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import inspect as types

if TYPE_CHECKING:  # the tests read this module without mkdocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PROJECT = Path(__file__).resolve().parents[2]
if str(PROJECT) not in sys.path:
    sys.path.insert(0, str(PROJECT))  # the program mkdocs, unlike `python -m mkdocs`, leaves it out

from profiling.__main__ import VERBS  # noqa: E402
from profiling.analysis.bench.bench_records import Bench  # noqa: E402
from profiling.analysis.difference.baseline import Sitting  # noqa: E402
from profiling.analysis.difference.comparison_records import Comparison, Experiment  # noqa: E402
from profiling.analysis.hang.hang_records import Hang  # noqa: E402
from profiling.analysis.memory.memory_records import MemoryComparison, MemoryReport  # noqa: E402
from profiling.analysis.ranks.rank_records import RanksReport  # noqa: E402
from profiling.analysis.records import Report  # noqa: E402
from profiling.analysis.scale.scale_records import Scale  # noqa: E402
from profiling.analysis.whatif.whatif_records import WhatIf  # noqa: E402
from profiling.launch.bisect.search import Bisection  # noqa: E402

# what `python -m profiling ... --json FILE` writes, and the file of a baseline
RECORDS: dict[str, type] = {
    "report CAPTURE": Report,
    "report FOLDER": RanksReport,
    "report SNAPSHOT": MemoryReport,
    "compare": Comparison,
    "compare SNAPSHOT": MemoryComparison,
    "ab": Experiment,
    "baseline": Sitting,
    "bisect": Bisection,
    "scale": Scale,
    "whatif": WhatIf,
    "hang": Hang,
    "bench": Bench,
}
WORDS: dict[type, str] = {
    types.IntType: "integer",
    types.FloatType: "number",
    types.StrType: "string",
    types.BoolType: "boolean",
    types.NoneType: "null",
    types.AnyType: "any",
    types.CustomType: "any",  # object
}
ANYTHING = {"description": "any JSON"}  # msgspec refuses an empty schema
Record = types.DataclassType | types.StructType


def json_page(command: str) -> str:
    """Path of the page for what a command writes."""
    return f"reference/json/{command.lower().replace(' ', '-')}.md"


def on_config(config: MkDocsConfig) -> None:
    """Put the pages into the navigation."""
    (section,) = [each["Reference"] for each in config.nav or [] if "Reference" in each]
    section += [
        {"Verbs": ["reference/index.md", *(f"reference/{verb}.md" for verb in VERBS)]},
        {"Records of the JSON": list(map(json_page, RECORDS))},
    ]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages and the schemas."""
    from mkdocs.structure.files import File

    made = {"reference/index.md": verbs_page()}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for verb, text in zip(VERBS, pool.map(help_of, VERBS), strict=True):
            made[f"reference/{verb}.md"] = verb_page(verb, text)
    for command, record in RECORDS.items():
        page = json_page(command)
        schema = page.replace(".md", ".schema.json")
        made[page] = record_page(command, record, os.path.basename(schema))
        made[schema] = json.dumps(
            msgspec.json.schema(record, schema_hook=lambda _: ANYTHING), indent=1
        )
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))


def help_of(verb: str) -> str:
    """Output of --help in a window of 100 columns. Raises CalledProcessError."""
    command = [sys.executable, "-m", "profiling", verb, "--help"]
    environ = os.environ | {"COLUMNS": "100"}
    return subprocess.run(
        command, cwd=PROJECT, env=environ, check=True, capture_output=True, text=True
    ).stdout


def verbs_page() -> str:
    """Markdown of the table of verbs, by their groups."""
    lines = [
        "# Verbs",
        "",
        "`python -m profiling VERB ...`, or installed `profiling-nanogpt VERB`.",
    ]
    for group in dict.fromkeys(verb.group for verb in VERBS.values()):
        lines += ["", f"## {group.capitalize()}", "", "| verb | what it does |", "|---|---|"]
        lines += [f"| [{n}]({n}.md) | {v.purpose} |" for n, v in VERBS.items() if v.group == group]
    return "\n".join([*lines, ""])


def verb_page(verb: str, text: str) -> str:
    """Markdown of a verb's page."""
    purpose = VERBS[verb].purpose
    return f"# {verb}\n\n{purpose[0].upper()}{purpose[1:]}.\n\n```text\n{text.rstrip()}\n```\n"


def record_page(command: str, record: type, schema: str) -> str:
    """Markdown of the records in a command's JSON: a table of fields for each."""
    lines = [
        f"# JSON of {command}",
        "",
        f"Fields of `python -m profiling {command.split()[0]} ... --json FILE`. "
        f"A value that was not captured is null, never 0. [JSON Schema]({schema}).",
    ]
    for kind in records_below(record):
        lines += ["", f"## {kind.cls.__name__}", "", *docstring_of(kind.cls)]
        lines += ["| field | type | meaning |", "|---|---|---|"]
        comments = comments_of(kind.cls)
        for field in kind.fields:
            about = as_json(comments[field.name]).replace("|", "\\|")
            lines.append(f"| `{field.encode_name}` | {type_text(field.type)} | {about} |")
    return "\n".join([*lines, ""])


def docstring_of(record: type) -> list[str]:
    """The record's docstring and an empty line, or nothing if Python made the docstring."""
    text = " ".join((record.__doc__ or "").split())
    return [] if text.startswith(f"{record.__name__}(") else [as_json(text), ""]


def as_json(text: str) -> str:
    """The text with JSON's word for None."""
    return re.sub(r"\bNone\b", "null", text)


def records_below(record: type) -> list[Record]:
    """The record and those in its fields, in the order in which they are met."""
    found: dict[type, Record] = {}
    waiting = [types.type_info(record)]
    while waiting:
        kind = waiting.pop(0)
        if isinstance(kind, Record):
            if kind.cls in found:
                continue
            found[kind.cls] = kind
            waiting += [field.type for field in kind.fields]
        else:
            waiting += parts_of(kind)
    return list(found.values())


def parts_of(kind: types.Type) -> list[types.Type]:
    """Types that a type is made of."""
    match kind:
        case types.UnionType(types=inner):
            return list(inner)
        case types.CollectionType(item_type=item):
            return [item]
        case types.DictType(value_type=value):
            return [value]
        case types.TupleType(item_types=items):
            return list(items)
    return []


def type_text(kind: types.Type) -> str:
    """Markdown of a type, with links to records."""
    inside = [type_text(part) for part in parts_of(kind)]
    match kind:
        case types.UnionType():
            return " or ".join(inside)
        case types.LiteralType(values=values):
            return ", ".join(f'"{value}"' for value in values)
        case types.CollectionType():
            return f"list of {inside[0]}"
        case types.TupleType():
            return f"list: {', '.join(inside)}"
        case types.DictType():
            return f"object: name to {inside[0]}"
        case types.DataclassType(cls=cls) | types.StructType(cls=cls):
            return f"[{cls.__name__}](#{cls.__name__.lower()})"
    return WORDS[type(kind)]


def comments_of(record: type) -> dict[str, str]:
    """The comment above or beside each field of a record, inherited ones too, in the source."""
    found: dict[str, str] = {}
    for each in reversed(record.__mro__):
        if each.__module__.startswith("profiling."):
            found |= field_comments(textwrap.dedent(inspect.getsource(each)))
    return found


def field_comments(source: str) -> dict[str, str]:
    """The comment above or beside each field in the source of one class."""
    lines, found = source.splitlines(), {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    for field in definition.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            begin, end = field.lineno - 1, field.end_lineno or field.lineno
            above = list(takewhile(is_comment, reversed(lines[:begin])))[::-1]
            beside = lines[end - 1].encode()[field.end_col_offset :].decode()
            said = [line.strip().lstrip("# ") for line in (*above, beside)]
            found[field.target.id] = " ".join(said).strip()
    return found


def is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")
