"""Counts of what torch.compile did in this process, kept by its front end Dynamo.

Dynamo takes as long to import as all the rest of torch. So it is looked up in sys.modules and never
imported: if nobody has imported it, nothing was compiled.
"""

import sys
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from threading import Thread

from profiling.shared.manifest import CompileCounts


def counters() -> dict[str, Counter[str]]:
    """Dynamo's own counters, a defaultdict; an empty dict while Dynamo is not imported."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils.counters if utils else {}


def compile_counts() -> CompileCounts:
    """Graphs and graph breaks since the process began, or since `forget`."""
    counted = counters()
    return CompileCounts(
        graphs=counted.get("stats", Counter())["unique_graphs"],
        graph_breaks=sum(counted.get("graph_break", Counter()).values()),
    )


def fused_attentions() -> int:
    """Number of times that torch.compile replaced spelled-out attention by a fused call."""
    return counters().get("inductor", Counter())["fuse_attention"]


def force_eager() -> AbstractContextManager[object]:
    """Run everything eagerly within the block: nothing compiles, and no compiled code runs."""
    if dynamo := sys.modules.get("torch._dynamo"):
        stance: AbstractContextManager[object] = dynamo.set_stance("force_eager")
        return stance
    return nullcontext()


def forget() -> None:
    """Drop compiled code and counts, so that those of an earlier job of a sweep are not this
    one's."""
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()
        counters().clear()


def dismiss_compilers() -> None:
    """Ask inductor's pool of compile processes to end; a later compilation starts a new one.

    At the end of the program PyTorch would wait for them, up to five seconds.
    """
    if async_compile := sys.modules.get("torch._inductor.async_compile"):
        pools = list(async_compile._pool_set)
        async_compile.after_fork()  # makes PyTorch forget its pools
        for pool in pools:
            Thread(target=pool.shutdown, name="dismiss compilers", daemon=True).start()


def is_compiler_error(error: Exception) -> bool:
    """Whether the compiler behind Dynamo failed, rather than the code that it was given."""
    exceptions = sys.modules.get("torch._dynamo.exc")
    return exceptions is not None and isinstance(error, exceptions.BackendCompilerFailed)
