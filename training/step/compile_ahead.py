"""Compiles the Triton kernels of a step in parallel, before the first of them is launched.

Triton compiles a kernel at its first launch, which takes seconds for all kernels of a step, on one
core. Here a step is rehearsed without launching these kernels, and forked processes compile what it
would have compiled into Triton's cache. Threads would take twice as long, because Triton holds
Python's lock for a third of the time. Called by training.step.warm_up.
"""

import os
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context

import torch
from torch import Tensor

from configs.schema import Config
from kernels.gluon import triton_version
from model import GPT
from training.ranks.distributed import Ranks
from training.step.step import Step

MOST_PROCESSES = 16
LATE_S = 60  # a kernel takes 2 s; a fork that inherited a locked lock would never end


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
    from kernels.compilations_triton import collect_compilations, load_cached

    # the real step says what fails
    with collect_compilations() as compilations, suppress(Exception):
        rehearse(step, x, y, config)
    step.discard()
    with suppress(Exception):
        left = load_cached(compilations.values())
        compile_in_forks(left)
        load_cached(left)


def compile_in_forks(compilations: list[Callable[[], object]]) -> None:
    """Runs the compilations in forked processes, which leave what they compile in Triton's cache.

    A fork has all that a compilation needs, and must not touch CUDA. One that fails or is late
    costs only time: a kernel that the cache lacks is compiled when it is launched.
    """
    count = min(MOST_PROCESSES, os.cpu_count() or 1, len(compilations))
    parts = [compilations[first::count] for first in range(count)]
    forks = [get_context("fork").Process(target=run_all, args=(part,)) for part in parts]
    deadline = time.monotonic() + LATE_S
    with warnings.catch_warnings():
        # Python warns of forks that need a lock of another thread; these only compile
        warnings.simplefilter("ignore", DeprecationWarning)
        for fork in forks:
            fork.start()
    for fork in forks:
        fork.join(max(0.0, deadline - time.monotonic()))
        fork.kill()


def run_all(compilations: list[Callable[[], object]]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # the trainer's handlers are for the trainer
    for compilation in compilations:
        with suppress(Exception):
            compilation()


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
