"""Renders a Document as Markdown, short enough for a pull request."""

import re
from collections.abc import Iterable
from itertools import groupby

from cli.plain import plain
from profiling.report import text
from profiling.report.document import (
    Block,
    Bullets,
    Column,
    Document,
    Facts,
    Finding,
    Paragraph,
    StepBar,
    Table,
    Verdict,
    shown_blocks,
    text_sections,
)
from profiling.report.text import INDENT, WORDS
from profiling.shared.units import milliseconds, percent

MOST_ROWS, FOLDED_ROWS = 30, 10
SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&])")


def markdown(document: Document) -> str:
    blocks, title, under = list(shown_blocks(document.verdict, "markdown")), document.title, ""
    if blocks and isinstance(first := blocks[0], Verdict) and first.headline is None:
        blocks, title, under = blocks[1:], first.text, f"{document.title}: "
    parts = [f"## {escape(title)}", escape(under + " · ".join(document.notes))]
    parts += paragraphs(blocks)
    for heading, blocks in text_sections(document, "markdown"):
        parts += [f"**{escape(heading)}**"] if heading else []
        parts += paragraphs(blocks)
    return "\n\n".join(filter(None, parts)) + "\n"


def paragraphs(blocks: list[Block]) -> list[str]:
    """The blocks as paragraphs; neighbouring items of a list share one."""
    parts: list[str] = []
    for is_list, together in groupby(blocks, lambda block: isinstance(block, (Bullets, Finding))):
        texts = map(block_text, together)
        parts += ["\n".join(texts)] if is_list else texts
    return parts


def block_text(block: Block) -> str:
    match block:
        case Verdict():
            return f"**{escape(block.text)}**"
        case Paragraph():
            return escape(block.text)
        case Facts():
            return facts(block)
        case Bullets():
            lead = f"**{escape(block.heading.lower())}:** " if block.heading else ""
            return "\n".join(f"- {lead}{escape(line)}" for line in block.lines)
        case Finding():
            cure = f" ({escape(block.cure)})" if block.cure else ""
            return f"- **{escape(block.word or block.level)}:** {escape(block.what)}{cure}"
        case StepBar():
            return step(block)
        case Table():
            return table(block)
    raise TypeError(f"{block}: not for Markdown")


def escape(words: str) -> str:
    """The text in one line, its markup escaped, without control characters: it may be anyone's."""
    return SPECIAL.sub(r"\\\1", plain(words))


def code(words: str) -> str:
    """The text as code. A | would end a table's cell and a ` the code, so both are replaced."""
    return f"`{words.replace('`', chr(39)).replace('|', '¦')}`"


def facts(block: Facts) -> str:
    if block.cards:
        whats, figures = zip(*block.pairs, strict=True)
        return grid(map(escape, whats), ["---:"] * len(whats), [map(escape, figures)])
    title = [f"**{escape(block.heading)}**", ""] if block.heading else []
    lines = [f"- {escape(what)}: {escape(figure)}" for what, figure in block.pairs]
    return "\n".join(title + lines)


def step(block: StepBar) -> str:
    if not block.parts:
        return "The step cannot be split: no GPU activity was captured."
    whole_ms = sum(ms for _, ms in block.parts)
    rows = [
        [escape(part.title), milliseconds(ms), percent(100 * ms / whole_ms)]
        for part, ms in block.parts
        if ms > 0
    ]
    rows.append([f"**{block.whole}**", f"**{milliseconds(whole_ms)}**", ""])
    return grid([block.whole, "ms", "share"], ["---", "---:", "---:"], rows)


def table(block: Table) -> str:
    title, note, rows = escape(block.title), escape(block.note), block.rows or []
    columns = [column for column in block.columns if column.brief]
    most = FOLDED_ROWS if block.folded else MOST_ROWS
    lines = grid(
        [escape(column.heading) for column in columns],
        ["---" if column.kind in WORDS else "---:" for column in columns],
        [[cell(row, column) for column in columns] for row in rows[:most]],
    )
    if len(rows) > most:
        lines += f"\n\n… {len(rows) - most} more"
    if block.folded:
        return f"<details><summary>{title}</summary>\n\n{note}\n\n{lines}\n\n</details>"
    return f"**{title}.** {note}\n\n{lines}"


def grid(heads: Iterable[str], rules: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def cell(row: object, column: Column) -> str:
    words = text.cell(column.value_of(row), column.kind)
    if column.kind == "code":
        return code(words)
    bare = words.lstrip(INDENT)
    return "&emsp;" * (len(words) - len(bare)) + escape(bare)
