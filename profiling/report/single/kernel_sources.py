"""Links from the kernels of a report to their sources. Called by profiling.verbs.report.

`python -m profiling compiled` saves these in a run's folder, whose profile/ has the captures.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import msgspec

from profiling.shared.json_records import read_json

Links = dict[str, list[tuple[str, str]]]  # kernel -> (graph, address) of each graph that has it


@dataclass(frozen=True)
class SavedKernel:
    """The fields of profiling.tools.torch_compile.KernelEntry that a link needs."""

    name: str
    anchor: Annotated[str, msgspec.Meta(pattern=r"(?a)^[\w-]{1,100}\.\w{1,400}\Z")]  # GRAPH.KERNEL


@dataclass(frozen=True)
class SavedKernels:
    kernels: list[SavedKernel]


def source_links(capture: Path, page: Path) -> Links:
    """Links to the saved sources, relative to the folder of `page`; empty where none were saved.

    Raises ValueError naming the index when it is damaged.
    """
    captures = capture.resolve().parent
    index = captures.parent / "compiled" / "index.json"
    target = index.with_suffix(".html")
    if captures.name != "profile" or not (index.is_file() and target.is_file()):
        return {}
    address = quote(os.path.relpath(target, page.resolve().parent).replace(os.sep, "/"))
    links: Links = {}
    for kernel in read_json(index, SavedKernels).kernels:
        graph = kernel.anchor.partition(".")[0]
        links.setdefault(kernel.name, []).append((graph, f"{address}#{kernel.anchor}"))
    return links
