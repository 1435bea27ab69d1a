"""Figures of a page's charts, unpacked."""

import json
import re

from profiling.report.packed import unpacked


def figures_of(page: str) -> dict:
    """{name of the chart: what plotly draws}; {} of a page without charts."""
    found = re.search(r'id="figures">(.*?)</script>', page, re.S)
    return json.loads(unpacked(found[1])) if found else {}
