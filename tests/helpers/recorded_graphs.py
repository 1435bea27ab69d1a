"""What `compiled` makes of the graphs recorded on an H200, for the tests that need its folder."""

import gzip

from profiling.lab.compiled import Compilation, indexed
from profiling.tools.torch_compile import Binary, GraphBreak, Index, parse_graph
from tests.paths import CAPTURES


def recorded(part: str) -> str:
    with gzip.open(CAPTURES / f"inductor_block_{part}.py.gz", "rt") as file:
        return file.read()


def compilation(
    breaks: list[GraphBreak] | None = None,
    binaries: dict[tuple[str, str], Binary] | None = None,
) -> Compilation:
    """Of a block, forward and backward."""
    texts = [recorded(part) for part in ("forward", "backward")]
    graphs, kernels, files = indexed([(parse_graph(text), text) for text in texts], binaries or {})
    index = Index(
        torch="2.11.0",
        device="NVIDIA H200",
        attention="flash",
        dtype="bfloat16",
        compile_scope="block",
        first_micro_step_s=12.34,
        graphs=graphs,
        graph_breaks=breaks or [],
        kernels=kernels,
    )
    return Compilation(index, files)
