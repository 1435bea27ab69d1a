"""What `compiled` makes of the graphs recorded on an H200, for the tests that need its folder."""

import gzip
from pathlib import Path

from profiling.lab.compiled import Compilation, Setup, compilation_of
from profiling.tools.torch_compile import Binary, GraphBreak, parse_graph

CAPTURES = Path(__file__).resolve().parent / "captures"
SETUP = Setup(
    torch="2.11.0",
    device="NVIDIA H200",
    attention="flash",
    dtype="bfloat16",
    compile_scope="block",
    first_micro_step_s=12.34,
)


def recorded(part: str) -> str:
    with gzip.open(CAPTURES / f"inductor_block_{part}.py.gz", "rt") as file:
        return file.read()


def compilation(
    breaks: list[GraphBreak] | None = None,
    binaries: dict[tuple[str, str], Binary] | None = None,
) -> Compilation:
    """Of a block, forward and backward."""
    texts = [recorded(part) for part in ("forward", "backward")]
    pairs = [(parse_graph(text), text) for text in texts]
    return compilation_of(SETUP, pairs, breaks or [], binaries or {})
