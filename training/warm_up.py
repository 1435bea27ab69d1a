"""Before the loop: compile, capture CUDA graphs, and prove which attention kernels they hold.

So no iteration of the loop compiles, and a profiling window never meets a compilation.
"""

import time
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters

from configs.schema import Config
from training.attention import AttentionProof, prove_on_cpu, prove_on_cuda, try_attention
from training.distributed import Ranks
from training.graphs import GraphedStep, micro_step_kernels
from training.step import Step


@dataclass
class WarmUp:
    """What the warm-up found out. Times are seconds on the host, after a synchronisation."""

    compile_s: float | None  # by which the first micro-step was longer than the second
    capture_s: float | None  # of the CUDA graphs, None without
    micro_step_s: float  # of the second micro-step, launched kernel by kernel
    compiled_graphs: int
    graph_breaks: int
    attention: AttentionProof


def warm_up(
    step: Step, x: Tensor, y: Tensor, config: Config, ranks: Ranks
) -> tuple[Step | GraphedStep, WarmUp]:
    """The step to train with, and the facts. x and y are a batch, (B, T).

    Changes neither weights nor the state of any random generator. Raises ValueError when the
    attention backend, or the compiler, does not work here.
    """
    operators = try_attention(config, ranks.device, config.dtype)
    with torch.random.fork_rng([ranks.device] if x.is_cuda else []):
        first_s = timed_micro_step(step, x, y)
        second_s = timed_micro_step(step, x, y)
        start = time.perf_counter()
        ready = GraphedStep(step, x, y) if config.cuda_graphs == "true" else step
        capture_s = time.perf_counter() - start if config.cuda_graphs == "true" else None
        if isinstance(ready, GraphedStep):
            proof = prove_on_cuda(config, ready.kernels())
        elif x.is_cuda:
            proof = prove_on_cuda(config, micro_step_kernels(step, x, y))
        else:
            proof = prove_on_cpu(config, operators)
    return ready, WarmUp(
        compile_s=first_s - second_s if config.compile else None,
        capture_s=capture_s,
        micro_step_s=second_s,
        compiled_graphs=counters["stats"]["unique_graphs"],
        graph_breaks=sum(counters["graph_break"].values()),
        attention=proof,
    )


def timed_micro_step(step: Step, x: Tensor, y: Tensor) -> float:
    """Seconds of a micro-step whose result is thrown away."""
    start = time.perf_counter()
    try:
        step.backward(step.forward(x, y))
    except BackendCompilerFailed as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"compile=true: does not work here, use compile=false: {reason}"
        ) from error
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    step.discard()
    return time.perf_counter() - start
