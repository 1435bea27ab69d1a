"""Packs what is large on a page: plotly's script, figures, a report's JSON, a timeline's columns.

templates/packed.js unpacks it.
"""

import base64
import gzip
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

UNMARKED, MARKED = str.maketrans("<>&", ",.:"), str.maketrans(",.:", "<>&")
IN_WHEEL = Path(__file__).with_name("plotly.packed")  # setup.py makes it
BEGIN, END = '"use strict";var Plotly=(()=>{', "window.Plotly = Plotly;"


def packed(data: bytes) -> str:
    """The bytes in gzip and base85, without the characters that have a meaning in HTML."""
    return base64.b85encode(gzip.compress(data, mtime=0)).decode().translate(UNMARKED)


def unpacked(text: str) -> bytes:
    return gzip.decompress(base64.b85decode(text.translate(MARKED)))


@cache
def plotly_script() -> str:
    """Plotly's script, packed: 1.84 MB instead of 4.8. Raises ModuleNotFoundError without it.

    A wheel has it so; in a checkout the package plotly has the script. templates/charts.js unpacks
    it once the text is painted.
    """
    if IN_WHEEL.is_file():
        return IN_WHEEL.read_text("ascii")
    script = distribution("plotly").locate_file("plotly/package_data/plotly.min.js")
    return packed(without_wrapper(Path(str(script)).read_text("utf-8")).encode())


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
