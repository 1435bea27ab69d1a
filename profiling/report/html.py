"""Pages: templates rendered to one self-contained HTML file each. Called by the pages' modules."""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from profiling import causes
from profiling.report import text
from profiling.report.tables import Table


@cache
def environment() -> Environment:
    """Escapes all that is put into a page: names come from captures, which anyone may have made."""
    made = Environment(
        loader=PackageLoader("profiling.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["format_as"] = text.format_as
    return made


def laid_out(table: Table) -> dict[str, Any]:
    """A table as the templates take it."""
    return {
        "name": table.name,
        "title": table.title,
        "note": table.note,
        "rows": table.rows,
        "cells": [(column.heading, column.key, column.kind) for column in table.columns],
    }


def render(template: str, figures: dict[str, dict[str, Any]], **values: Any) -> str:
    """The page as text.

    `figures`: by name, what plotly draws ({"data", "layout"}); see base.html.j2.
    """
    # "</script" inside of it would end the element that holds it
    plotly_js = get_plotlyjs().replace("</script", "<\\/script") if figures else ""
    return (
        environment()
        .get_template(template)
        .render(
            figures=figures, plotly_js=plotly_js, step_parts=list(causes.PART.values()), **values
        )
    )
