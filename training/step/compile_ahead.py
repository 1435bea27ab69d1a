"""Compiles the Triton kernels of a step in parallel, before the first of them is launched.

Triton compiles a kernel at its first launch, which takes seconds for all kernels of a step, on one
core. Here a step is rehearsed without launching these kernels, and threads compile what it would
have compiled. Forked processes were no faster. Called by training.step.warm_up.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch
from torch import Tensor

from configs.schema import Config
from kernels.gluon import triton_version
from model import GPT
from training.ranks.distributed import Ranks
from training.step.step import Step

MOST_THREADS = 16


def launches_own_kernels(config: Config) -> bool:
    """Whether a step has kernels of this project's own, which Triton compiles."""
    return config.kernels == "fused" or config.attention == "triton"


def compile_ahead(step: Step, x: Tensor, y: Tensor, config: Config, ranks: Ranks) -> None:
    """Has Triton compile, or load from its cache, all kernels of a step and of an evaluation.

    Changes neither weights nor gradients. Does nothing with several ranks, which a rehearsal would
    make send each other numbers, and nothing for a model that torch.compile is to compile.
    """
    if not x.is_cuda or config.compile or ranks.world_size > 1 or not launches_own_kernels(config):
        return
    if triton_version() is None:  # try_kernels reports that
        return
    from kernels.compilations_triton import collect_compilations

    # the real step says what fails
    with collect_compilations() as compilations, suppress(Exception):
        rehearse(step, x, y, config)
    step.discard()
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as threads:
        for compilation in [threads.submit(each) for each in compilations.values()]:
            compilation.exception()  # wait; an error is raised again at the launch


def rehearse(step: Step, x: Tensor, y: Tensor, config: Config) -> None:
    """Calls all that launches our kernels: forward, backward, the update, and an evaluation."""
    step.try_micro_step(x, y)
    if config.kernels == "fused":
        step.optimizer.rehearse()
    if isinstance(step.model, GPT):
        step.model.eval()
        try:
            with torch.no_grad(), step.autocast:
                step.model(x, y)
        finally:
            step.model.train()
