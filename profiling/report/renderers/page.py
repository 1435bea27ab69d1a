"""Renders a Document as a page: one HTML file that needs nothing else.

templates/document.html.j2 lays it out; a page that is more than a Document has a template of its
own, which extends that one.
"""

import json
import secrets
from dataclasses import replace
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cli.plain import without_controls
from profiling.report import palette, text
from profiling.report.chart_words import chart_sentence
from profiling.report.document import (
    Block,
    Bullets,
    Cell,
    Chart,
    Document,
    Facts,
    Finding,
    Paragraph,
    Section,
    Table,
    Timeline,
    Value,
    Verdict,
    is_shown,
    shown_blocks,
)
from profiling.report.packed import packed, plotly_script
from profiling.report.renderers import markdown
from profiling.report.still_chart import still_chart
from profiling.timeline.personal import without_folders


def page(
    document: Document,
    template: str = "document.html.j2",
    *,
    as_json: str | None = None,
    **values: object,
) -> str:
    """The whole HTML text.

    as_json: what --json prints, to be saved from the page, without folders.
    values: those of a template that extends document.html.j2.
    """
    sections = [
        section
        for section in document.sections
        if "page" in section.places and any(map(on_page, section.blocks))
    ]
    blocks = [*document.verdict, *(block for section in sections for block in section.blocks)]
    charts = [block for block in shown_blocks(blocks, "page") if isinstance(block, Chart)]
    timelines = [block for block in shown_blocks(blocks, "page") if isinstance(block, Timeline)]
    figures = without_control_characters(
        {chart.name: chart.figure for chart in charts if chart.figure is not None}
    )
    answers = (block for block in document.verdict if isinstance(block, Verdict))
    headline = next(answers, None)
    name = [headline.headline or headline.text] if headline else []
    return (
        environment()
        .get_template(template)
        .render(
            document=document,
            sections=sections,
            headline=headline,
            tab=" · ".join([*name, document.title]),
            figures=figures,
            timeline=any(block.data is not None for block in timelines),
            plotly_js=plotly_js() if figures else "",
            answer=answer_texts(document) if document.verdict else None,
            packed_json=packed(without_folders(as_json).encode()) if as_json else None,
            palette={"light": palette.colours("light"), "dark": palette.colours("dark")},
            nonce=secrets.token_urlsafe(16),
            **values,
        )
    )


@cache
def environment() -> Environment:
    """The environment of the templates. It escapes all values: anyone may have made a capture."""
    made = Environment(
        loader=PackageLoader("profiling.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=without_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"cell": text.cell, "more": as_cell, "lead": lead, "spoken": chart_sentence}
    made.filters |= {"still": still_chart, "packed_figures": packed_figures}
    made.filters |= {"marked": text.split_code, "arrows": arrows}
    made.tests["shown"] = on_page
    return made


def packed_figures(figures: dict[str, object]) -> str:
    return packed(json.dumps(figures, separators=(",", ":")).encode())


def plotly_js() -> str:
    return plotly_script()


def answer_texts(document: Document) -> dict[str, str]:
    """Title and verdict as they are copied: plain text and Markdown."""
    lines = [document.title, *document.notes]
    for block in shown_blocks(document.verdict, "terminal"):
        match block:
            case Verdict() | Paragraph():
                lines += ["", block.text]
            case Bullets() if block.lines:
                lines += [
                    "",
                    *filter(None, [block.heading]),
                    *(f"- {line}" for line in block.lines),
                ]
            case Facts():
                lines += ["", *(f"{name}: {figure}" for name, figure in block.pairs)]
            case Finding():
                lines += ["", f"{block.level}: {block.what}"]
    return {
        "text": "\n".join(map(without_controls, lines)) + "\n",
        "markdown": markdown.markdown(replace(document, sections=[])),
    }


def without_control_characters(value: object) -> object:
    """The value without control characters in its texts, nested ones too; markup is unchanged."""
    if isinstance(value, Path):
        return without_controls(str(value))
    if isinstance(value, str):
        return value if isinstance(value, Markup) else without_controls(value)
    if isinstance(value, dict):
        return {
            without_control_characters(key): without_control_characters(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [without_control_characters(item) for item in value]
    return value


def as_cell(value: Value) -> Cell:
    """The value as a Cell, for the parts that unfold behind a cell of code."""
    return value if isinstance(value, Cell) else Cell(None if value is None else str(value))


def arrows(words: str) -> str:
    """The text with each " -> " as an arrow that is not broken over two lines."""
    return words.replace(" -> ", " → ")


def lead(section: Section) -> str:
    tables = (block for block in shown_blocks(section.blocks, "page") if isinstance(block, Table))
    return section.lead or next((t.note for t in tables if t.title == section.title), "")


def on_page(block: Block) -> bool:
    return is_shown(block, "page")
