"""Links from the kernels of a report to their sources. Called by profiling.verbs.report.

`python -m profiling compiled` saves these in a run's folder, whose profile/ has the captures.
"""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from profiling.records import JsonObject, read_json

Links = dict[str, list[tuple[str, str]]]  # kernel -> (graph, address) of each that has it
ANCHOR = re.compile(r"([\w-]{1,100})\.\w{1,400}", re.ASCII)  # GRAPH.KERNEL


def source_links(capture: Path, page: Path) -> Links:
    """Addresses as from the folder of `page`; empty where nothing was saved for this capture.

    Raises ValueError naming the index when it is damaged.
    """
    captures = capture.resolve().parent
    index = captures.parent / "compiled" / "index.json"
    target = index.with_suffix(".html")
    if captures.name != "profile" or not (index.is_file() and target.is_file()):
        return {}
    try:
        kernels = read_json(index, JsonObject).get("kernels")
    except RecursionError as error:
        raise ValueError(f"{index}: cannot be read: nested too deeply") from error
    if not isinstance(kernels, list):
        raise ValueError(f"{index}: has no list of kernels; make it again with the verb compiled")
    address = quote(os.path.relpath(target, page.resolve().parent).replace(os.sep, "/"))
    links: Links = {}
    for kernel in kernels:
        match = ANCHOR.fullmatch(text_of(kernel, "anchor"))
        if match and text_of(kernel, "name"):
            links.setdefault(kernel["name"], []).append((match[1], f"{address}#{match[0]}"))
    return links


def text_of(kernel: Any, key: str) -> str:
    """Empty for what the verb would not have written."""
    value = kernel.get(key) if isinstance(kernel, dict) else None
    return value if isinstance(value, str) else ""
