"""Compiles the Triton kernels of a step side by side, before the first of them is launched.

Triton compiles a kernel when it is launched first: seconds for those of a step, on one core. Here
a step is rehearsed without a launch of these kernels, and what it would have compiled is compiled
by threads: Triton holds Python's lock for a third of that time. Called by training.warm_up.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch
from torch import Tensor

from configs.schema import Config
from kernels.gluon import triton_version
from model import GPT
from training.distributed import Ranks
from training.optimizer import ClippedAdamW
from training.step import Step

MOST_THREADS = 16


def launches_own_kernels(config: Config) -> bool:
    """Whether a step has kernels of this project's own, which Triton compiles."""
    return config.kernels == "fused" or config.attention == "triton"


def compile_ahead(step: Step, x: Tensor, y: Tensor, config: Config, ranks: Ranks) -> None:
    """Has Triton compile, or load from its cache, all kernels of a step and of an evaluation.

    Changes neither weights nor gradients. Several ranks do without: a rehearsal would have them
    send each other numbers. A model that torch.compile is to compile does, too.
    """
    if not x.is_cuda or config.compile or ranks.world_size > 1 or not launches_own_kernels(config):
        return
    if triton_version() is None:  # which try_kernels says
        return
    from kernels.compilations_triton import collect_compilations

    # the real step says what fails
    with collect_compilations() as compilations, suppress(Exception):
        rehearse(step, x, y)
    step.discard()
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as threads:
        for compilation in [threads.submit(each) for each in compilations.values()]:
            compilation.exception()  # it is raised again at the launch


def rehearse(step: Step, x: Tensor, y: Tensor) -> None:
    """Calls all that launches kernels: forward and backward, the update, and an evaluation."""
    step.try_micro_step(x, y)
    if isinstance(step.optimizer, ClippedAdamW):
        step.optimizer.rehearse()
    if isinstance(step.model, GPT):
        step.model.eval()
        try:
            with torch.no_grad(), step.autocast:
                step.model(x, y)
        finally:
            step.model.train()
