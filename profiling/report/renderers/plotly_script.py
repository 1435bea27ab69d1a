"""Plotly's script as a text that a page holds and unpacks: 1.84 MB instead of 4.8.

templates/charts.js unpacks it when the first chart comes into view.
"""

import base64
import gzip
from functools import cache
from importlib.util import find_spec
from pathlib import Path

UNMARKED = str.maketrans("<>&", ",.:")


@cache
def packed() -> str:
    """gzip, then base85 without what means something in HTML."""
    package = find_spec("plotly")
    assert package is not None and package.origin is not None  # a requirement of this project
    script = Path(package.origin).parent / "package_data" / "plotly.min.js"
    found = base64.b85encode(gzip.compress(script.read_bytes(), mtime=0)).decode()
    return found.translate(UNMARKED)
