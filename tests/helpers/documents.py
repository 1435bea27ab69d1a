"""Documents with a part of their blocks: their pages load in a fraction of the time."""

from collections.abc import Callable
from dataclasses import replace

from profiling.report.document import Block, Chart, Document, SideBySide, Table


def without_charts(document: Document) -> Document:
    """Leave out what plotly draws, which is most of the time that a page takes to load."""
    return with_blocks(document, lambda block: None if isinstance(block, Chart) else block)


def with_first_rows(document: Document, count: int) -> Document:
    """Shorten all tables: `count` rows are shown and one more is hidden behind the button "all"."""

    def shortened(block: Block) -> Block:
        if isinstance(block, Table) and block.rows is not None:
            return replace(block, rows=block.rows[: count + 1], limit=count)
        return block

    return with_blocks(document, shortened)


def with_blocks(document: Document, changed: Callable[[Block], Block | None]) -> Document:
    """Replace each block, also those that stand side by side; None leaves it out."""

    def each(blocks):
        inside = (
            replace(block, blocks=each(block.blocks)) if isinstance(block, SideBySide) else block
            for block in blocks
        )
        return [made for block in inside if (made := changed(block)) is not None]

    sections = [replace(section, blocks=each(section.blocks)) for section in document.sections]
    return replace(document, verdict=each(document.verdict), sections=sections)
