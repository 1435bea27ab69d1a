"""Compiles and captures CUDA graphs before the loop, and reads which attention kernels they have.

So no iteration of the loop compiles, and no profiling window contains a compilation.
"""

import logging
import shlex
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cli import process
from cli.errors import one_line
from configs.files import FOLDER, load
from configs.schema import Config, role_of
from kernels.fused_model import make_model
from profiling.recording import dynamo
from profiling.shared.manifest import AttentionFacts, CompileFacts
from profiling.shared.units import spell_duration
from training.optimizers.kinds import make_optimizer
from training.ranks.distributed import Ranks
from training.step.attention_proof import facts_on_cpu, facts_on_cuda, try_attention
from training.step.compile_ahead import compile_ahead
from training.step.graphs import GraphedStep, micro_step_kernels
from training.step.own_kernels import seen_kernels, try_kernels
from training.step.step import Step, TrainingStep

log = logging.getLogger(__name__)

LONG_S = 1800  # a longer run on a CPU is hardly what a newcomer wants
CPU_SIZE = "shakespeare_char_cpu"


@dataclass(frozen=True)
class WarmUp:
    """Facts that the warm-up has established."""

    compile: CompileFacts
    attention: AttentionFacts
    own_kernels: str | None  # those of kernels=fused that ran; None: not fused


def warm_up(
    step: Step, x: Tensor, y: Tensor, config: Config, ranks: Ranks, done: int = 0
) -> tuple[TrainingStep, WarmUp]:
    """Warms up. Returns the step to train with, and the facts.

    x and y are a batch, (B, T); `done` is the number of iterations that a resumed run has made.
    Times are seconds on the host, up to a synchronisation; compiling took what the first micro-step
    was longer than the second. Changes neither weights nor the state of any random generator.
    Raises ValueError if the attention backend, the kernels or the compiler do not work here.
    """
    dynamo.forget()
    with torch.random.fork_rng([ranks.device] if x.is_cuda else []):
        compile_ahead(step, x, y, config, ranks)
        operators: list[str] = []
        if ranks.device.type == "cpu":
            operators = try_attention(config, ranks.device, config.dtype)  # may draw random numbers
            say_how_long(step, x, y, config, config.max_iters - done)
        if config.compile:
            log.info("compiling")
        first_s = first_micro_step(step, x, y, config) if config.compile or x.is_cuda else 0.0
        second_s = timed_micro_step(step, x, y) if config.compile else 0.0
        ready: TrainingStep = step
        capture_s, kernels = None, None
        if config.cuda_graphs == "true":
            start = time.perf_counter()
            ready = graphed = GraphedStep(step, x, y)
            capture_s = time.perf_counter() - start
            kernels = graphed.kernels()
        elif x.is_cuda:
            kernels = micro_step_kernels(capturable_step(step, config, ranks, x, y), x, y)
        on_cuda = x.is_cuda
        attention = facts_on_cuda(config, kernels) if on_cuda else facts_on_cpu(config, operators)
        own_kernels = seen_kernels(config, kernels, step.vocab_size)
    dynamo.dismiss_compilers()
    process.resume_garbage_collection()
    counted = dynamo.compile_counts()
    facts = CompileFacts(
        compile=bool(config.compile),
        cuda_graphs=config.cuda_graphs == "true",
        graphs=counted.graphs,
        graph_breaks=counted.graph_breaks,
        compile_s=first_s - second_s if config.compile else None,
        capture_s=capture_s,
    )
    return ready, WarmUp(facts, attention, own_kernels)


def capturable_step(step: Step, config: Config, ranks: Ranks, x: Tensor, y: Tensor) -> Step:
    """A step that a CUDA graph can hold: `step`, or that of a model of one such block.

    The small model runs on this rank alone and recomputes no activations: a graph can hold neither
    an exchange between ranks nor recomputation.
    """
    if ranks.world_size == 1 and config.activation_checkpointing == "none":
        return step
    small = replace(
        config, n_layer=1, gradient_accumulation_steps=1, activation_checkpointing="none"
    )
    alone = Ranks(0, 1, ranks.device)
    model = make_model(small, step.vocab_size).to(ranks.device)
    one_block = Step(model, make_optimizer(model, small, ranks.device), small, alone)
    one_block.try_micro_step(x, y)
    return one_block


def say_how_long(step: Step, x: Tensor, y: Tensor, config: Config, left: int) -> None:
    """Logs how long the `left` iterations take on a CPU, and warns if that is very long.

    The main experiment would take days there.
    """
    if left <= 0 or config.eval_only:
        return
    few = slice(min(2, len(x)))
    with dynamo.force_eager():
        timed_micro_step(step, x[few], y[few])
        seconds = timed_micro_step(step, x[few], y[few]) / few.stop
    run_s = seconds * len(x) * step.micro_steps * left
    which = "all" if left == config.max_iters else "the remaining"
    log.info("%s %d iterations take about %s on this CPU", which, left, spell_duration(run_s))
    if run_s > LONG_S and has_cpu_size(config):
        log.warning(
            "the model is already of a size for CPUs; to shorten the run, use fewer max_iters or "
            "a machine that does nothing else"
        )
    elif run_s > LONG_S:
        keys = [f"attention={config.attention}"]
        keys += [f"data_source={config.data_source}"] if config.data_source else []
        log.warning(
            "for a result in minutes, stop this (Ctrl-C) and use the size for CPUs: python "
            "train.py config/%s.yaml %s",
            CPU_SIZE,
            shlex.join(keys),
        )


def has_cpu_size(config: Config) -> bool:
    """Whether model and batches are no larger than in the configuration advised for a CPU."""
    advised = load(FOLDER / f"{CPU_SIZE}.yaml").items()
    sized = [(key, size) for key, size in advised if role_of(key) in ("model", "work")]
    return all(getattr(config, key) <= size for key, size in sized if isinstance(size, int))


def first_micro_step(step: Step, x: Tensor, y: Tensor, config: Config) -> float:
    """Seconds of a micro-step that compiles, and is the first to launch kernels on a GPU.

    Raises ValueError with the reason if the attention, our kernels or the compiler fail here.
    """
    try:
        return timed_micro_step(step, x, y)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ImportError, OSError) as error:
        # each names its key if it is the cause; they take seconds, so only a failure runs them
        try_attention(config, x.device, config.dtype)
        try_kernels(config, x.device, config.dtype, step.vocab_size)
        if not dynamo.is_compiler_error(error):
            raise
        raise ValueError(
            f"compile=true: does not work here; use compile=false: {one_line(error)[:200]}"
        ) from error


def timed_micro_step(step: Step, x: Tensor, y: Tensor) -> float:
    """Seconds of a micro-step whose result is dropped."""
    start = time.perf_counter()
    step.try_micro_step(x, y)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter() - start
