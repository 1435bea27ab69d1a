"""A Document as Markdown, short enough for a pull request."""

import re

from cli.plain import plain
from profiling.report import text
from profiling.report.document import (
    Block,
    Bullets,
    Column,
    Document,
    Facts,
    Finding,
    Row,
    Said,
    StepBar,
    Table,
    Verdict,
    in_text,
    shown,
)
from profiling.report.text import INDENT, WORDS
from profiling.units import milliseconds, percent

MOST_ROWS, FOLDED_ROWS = 30, 10
SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&])")


def markdown(document: Document) -> str:
    blocks, under = list(shown(document.verdict, "markdown")), " · ".join(document.notes)
    if blocks and isinstance(first := blocks[0], Verdict) and first.word is None:
        lines = [f"## {escaped(first.text)}", "", escaped(f"{document.title}: {under}"), ""]
        blocks = blocks[1:]
    else:
        lines = [f"## {escaped(document.title)}", "", escaped(under), ""]
    lines += written(blocks)
    for title, blocks in in_text(document, "markdown"):
        lines += [f"**{escaped(title)}**", ""] if title else []
        lines += written(blocks)
    return "\n".join(lines).rstrip() + "\n"


def written(blocks: list[Block]) -> list[str]:
    """Lines; those of a list follow each other, all else stands by itself."""
    lines: list[str] = []
    for block in blocks:
        found = lines_of(block)
        is_list = isinstance(block, (Bullets, Finding))
        if lines and not is_list and lines[-1]:
            lines.append("")
        lines += found if is_list or not found else [*found, ""]
    return [*lines, ""] if lines and lines[-1] else lines


def lines_of(block: Block) -> list[str]:
    match block:
        case Verdict():
            return [f"**{escaped(block.text)}**"]
        case Said():
            return [escaped(block.text)]
        case Facts():
            return facts(block)
        case Bullets():
            lead = f"**{escaped(block.heading.lower())}:** " if block.heading else ""
            return [f"- {lead}{escaped(line)}" for line in block.lines]
        case Finding():
            cure = f" ({escaped(block.cure)})" if block.cure else ""
            return [f"- **{escaped(block.word or block.level)}:** {escaped(block.what)}{cure}"]
        case StepBar():
            return step(block)
        case Table():
            return table(block)
    raise TypeError(f"{block}: not for Markdown")


def escaped(words: str) -> str:
    """Names come from captures: no markup of theirs, no control characters, one line each."""
    return SPECIAL.sub(r"\\\1", plain(words))


def code(words: str) -> str:
    """In a table a | would end the cell, in code a ` the code."""
    return f"`{words.replace('`', chr(39)).replace('|', '¦')}`"


def facts(block: Facts) -> list[str]:
    if not block.cards:
        title = [f"**{escaped(block.heading)}**", ""] if block.heading else []
        return title + [f"- {escaped(what)}: {escaped(figure)}" for what, figure in block.pairs]
    return [
        row_of([escaped(what) for what, _ in block.pairs]),
        "|" + "---:|" * len(block.pairs),
        row_of([escaped(figure) for _, figure in block.pairs]),
    ]


def step(block: StepBar) -> list[str]:
    if not block.parts:
        return ["The step cannot be split: no GPU activity was captured."]
    whole_ms = sum(ms for _, ms in block.parts)
    rows = [
        row_of([escaped(part.meaning), milliseconds(ms), percent(100 * ms / whole_ms)])
        for part, ms in block.parts
        if ms > 0
    ]
    last = f"| **the mean step** | **{milliseconds(whole_ms)}** | |"
    return ["| the mean step | ms | share |", "|---|---:|---:|", *rows, last]


def table(block: Table) -> list[str]:
    if not block.rows:
        return []
    title, note = escaped(block.title), escaped(block.note)
    if not block.folded:
        return [f"**{title}.** {note}", "", *grid(block, MOST_ROWS)]
    head = [f"<details><summary>{title}</summary>", "", note, ""]
    return [*head, *grid(block, FOLDED_ROWS), "", "</details>"]


def grid(block: Table, most: int) -> list[str]:
    columns = [column for column in block.columns if column.brief]
    rows = block.rows or []
    lines = [
        row_of([escaped(column.heading) for column in columns]),
        row_of(["---" if column.kind in WORDS else "---:" for column in columns]),
        *(row_of([cell(row, column) for column in columns]) for row in rows[:most]),
    ]
    return lines + (["", f"… {len(rows) - most} more"] if len(rows) > most else [])


def row_of(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(row: Row, column: Column) -> str:
    words = text.cell(row[column.key], column.kind)
    if column.kind == "code":
        return code(words)
    bare = words.lstrip(INDENT)
    return "&emsp;" * (len(words) - len(bare)) + escaped(bare)
