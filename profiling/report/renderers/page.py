"""A Document as a page: one HTML file that needs nothing else.

templates/document.html.j2 lays it out; a page that is more than a Document has a template of its
own that extends it.
"""

import secrets
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cli.plain import without_controls
from profiling.report import palette, text
from profiling.report.chart_words import spoken
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
    shown,
)
from profiling.report.renderers import plotly_script


def page(document: Document, template: str = "document.html.j2", **values: object) -> str:
    """The whole HTML text. `values`: what a template takes that extends document.html.j2."""
    sections = [
        section
        for section in document.sections
        if "page" in section.places and any(map(on_page, section.blocks))
    ]
    blocks = [*document.verdict, *(block for section in sections for block in section.blocks)]
    charts = [block for block in shown(blocks, "page") if isinstance(block, Chart)]
    timelines = [block for block in shown(blocks, "page") if isinstance(block, Timeline)]
    figures = cleaned({chart.name: chart.figure for chart in charts if chart.figure is not None})
    headlines = [b.word or b.text for b in document.verdict if isinstance(b, Verdict)][:1]
    return (
        environment()
        .get_template(template)
        .render(
            document=document,
            sections=sections,
            tab=" · ".join([*headlines, document.title]),
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
    """Escapes all that is put into a page: names come from captures, which anyone may have made."""
    made = Environment(
        loader=PackageLoader("profiling.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"cell": text.cell, "more": more, "lead": lead, "spoken": spoken}
    made.filters |= {"marked": text.marked, "arrows": arrows}
    made.tests["shown"] = on_page
    return made


def plotly_js() -> str:
    return plotly_script.packed()


def cleaned(value: object) -> object:
    """Texts without control characters, also inside of figures; markup of templates as it is."""
    if isinstance(value, Path):
        return without_controls(str(value))
    if isinstance(value, str):
        return value if isinstance(value, Markup) else without_controls(value)
    if isinstance(value, dict):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    return value


def more(value: Value) -> Cell:
    """What stands behind a cell of code."""
    return value if isinstance(value, Cell) else Cell(None if value is None else str(value))


def arrows(words: str) -> str:
    """What stands there before and after, with an arrow that a line does not break."""
    return words.replace(" -> ", " → ")


def lead(section: Section) -> str:
    tables = (block for block in shown(section.blocks, "page") if isinstance(block, Table))
    return section.lead or next((t.note for t in tables if t.title == section.title), "")


def on_page(block: Block) -> bool:
    return is_shown(block, "page")
