"""Renders a Document as a page: one HTML file that needs nothing else.

templates/document.html.j2 lays it out; a page that is more than a Document has a template of its
own, which extends that one.
"""

import base64
import gzip
import secrets
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cli.plain import without_controls
from profiling.report import palette, text
from profiling.report.chart_words import chart_sentence
from profiling.report.document import (
    Block,
    Cell,
    Chart,
    Document,
    Section,
    Table,
    Timeline,
    Value,
    Verdict,
    is_shown,
    shown_blocks,
)


def page(document: Document, template: str = "document.html.j2", **values: object) -> str:
    """The whole HTML text. `values` are those of a template that extends document.html.j2."""
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
    name = [headline.word or headline.text] if headline else []
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
    made.filters |= {"marked": text.split_code, "arrows": arrows}
    made.tests["shown"] = on_page
    return made


def plotly_js() -> str:
    return packed_script()


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


UNMARKED = str.maketrans("<>&", ",.:")
BEGIN, END = '"use strict";var Plotly=(()=>{', "window.Plotly = Plotly;"


@cache
def packed_script() -> str:
    """Plotly's script in gzip and base85, without the characters that have a meaning in HTML.

    Packed it takes 1.84 MB instead of 4.8. templates/charts.js unpacks it when the text is
    painted.
    """
    package = find_spec("plotly")
    assert package is not None and package.origin is not None  # a requirement of this project
    script = Path(package.origin).parent / "package_data" / "plotly.min.js"
    plain = without_wrapper(script.read_text(encoding="utf-8")).encode()
    return base64.b85encode(gzip.compress(plain, mtime=0)).decode().translate(UNMARKED)


def without_wrapper(script: str) -> str:
    """The script without the function around it, which looks for a module loader.

    A browser parses that whole function once to find its end and once more to run it; without it
    plotly is ready in about half the time.
    """
    licence, wrapper, rest = script.partition(BEGIN)
    body, end, _ = rest.rpartition(END)
    if not (wrapper and end):
        return script  # a build of another form
    return licence[: licence.find("*/") + 2] + "\n" + wrapper + body + end
