"""What torch.compile did in this process, as its front end Dynamo counts it.

Dynamo takes as long to import as all the rest of torch. So it is looked for and never imported:
where nobody has asked for it, nothing was compiled.
"""

import sys
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from threading import Thread

from profiling.manifest import CompileCounts


def counters() -> dict[str, Counter[str]]:
    """Dynamo's own, which is a defaultdict; empty where there is no Dynamo."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils.counters if utils else {}


def compiled() -> CompileCounts:
    """Since the process began, or since `forget`."""
    counted = counters()
    return CompileCounts(
        graphs=counted.get("stats", Counter())["unique_graphs"],
        graph_breaks=sum(counted.get("graph_break", Counter()).values()),
    )


def fused_attentions() -> int:
    """How many times torch.compile put a fused call in the place of spelled-out attention."""
    return counters().get("inductor", Counter())["fuse_attention"]


def eager() -> AbstractContextManager[object]:
    """Within it nothing compiles, and nothing that was compiled runs."""
    if dynamo := sys.modules.get("torch._dynamo"):
        stance: AbstractContextManager[object] = dynamo.set_stance("force_eager")
        return stance
    return nullcontext()


def forget() -> None:
    """What an earlier job of a sweep compiled and counted is not this one's."""
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()
        counters().clear()


def dismiss_compilers() -> None:
    """Asks inductor's pool of compile processes to go; a later compilation starts a new one.

    At the end of the program PyTorch would wait for them, up to five seconds.
    """
    if async_compile := sys.modules.get("torch._inductor.async_compile"):
        pools = list(async_compile._pool_set)
        async_compile.after_fork()  # forgets them
        for pool in pools:
            Thread(target=pool.shutdown, name="dismiss compilers", daemon=True).start()


def is_compiler_error(error: Exception) -> bool:
    """Whether the compiler behind Dynamo failed, rather than the code that it was given."""
    exceptions = sys.modules.get("torch._dynamo.exc")
    return exceptions is not None and isinstance(error, exceptions.BackendCompilerFailed)
