"""What `compiled` makes of the graphs recorded on an H200, for the tests that need its folder."""

import gzip
from pathlib import Path
from typing import Any

from profiling.tools.inductor_code import parse_graph
from profiling.verbs.compiled import Compilation

CAPTURES = Path(__file__).resolve().parent / "captures"
FACTS = {
    "torch": "2.11.0",
    "device": "NVIDIA H200",
    "attention": "flash",
    "dtype": "bfloat16",
    "compile_scope": "block",
    "first_micro_step_s": 12.34,
}


def recorded(part: str) -> str:
    with gzip.open(CAPTURES / f"inductor_block_{part}.py.gz", "rt") as file:
        return file.read()


def compilation(**more: Any) -> Compilation:
    """Of a block, forward and backward; `more`: breaks, binaries."""
    texts = [recorded(part) for part in ("forward", "backward")]
    pairs = [(parse_graph(text), text) for text in texts]
    return Compilation(pairs, **{"breaks": [], "binaries": {}, "facts": FACTS} | more)
