"""Iterations of the trainer on random tokens, with something and without it. Used by *_overhead.

Both take turns inside one process (off, on, on, off, ...), so that a drifting clock or a neighbour
touches them alike.
"""

import time
from collections.abc import Callable
from statistics import median, quantiles

import torch
from torch import Tensor

from benchmarks.measuring import measure_in_turns
from configs.schema import Config
from kernels.fused_model import make_model
from profiling.recording.spans import NoSpans, Spans
from training.optimizers.kinds import make_optimizer
from training.ranks.distributed import Ranks
from training.step.step import Step, TrainingStep

VOCAB = 65


def random_batch(experiment: Config, device: torch.device) -> Tensor:
    """Tokens (B, T), to be both input and target."""
    return torch.randint(VOCAB, (experiment.batch_size, experiment.block_size), device=device)


def eager_step(experiment: Config, ranks: Ranks) -> Step:
    model = make_model(experiment, VOCAB).to(ranks.device)
    return Step(model, make_optimizer(model, experiment, ranks.device), experiment, ranks)


def iterate(step: TrainingStep, tokens: Tensor, spans: Spans | NoSpans) -> None:
    """Run an iteration within the ranges that train.py puts around it."""
    with spans.iteration(0):
        for number in range(step.micro_steps):
            with spans.micro_step(number, of=step.micro_steps):
                with spans.phase("data"):
                    x, y = tokens, tokens
                with spans.phase("forward"):
                    loss = step.forward(x, y)
                with spans.phase("backward"):
                    step.backward(loss)
        step.average_gradients()
        with spans.phase("optimizer"):
            step.update(1e-4)


def timed_ms(step: TrainingStep, tokens: Tensor, spans: Spans | NoSpans, count: int) -> float:
    """Mean milliseconds of `count` iterations, from an idle device to an idle device."""
    start = time.perf_counter()
    for _ in range(count):
        iterate(step, tokens, spans)
    if tokens.is_cuda:
        torch.cuda.synchronize(tokens.device)
    return (time.perf_counter() - start) * 1e3 / count


def compare_in_turns(
    off: Callable[[], float], on: Callable[[], float], rounds: int, turns: int
) -> tuple[float, list[float]]:
    """(median of off in ms, quartiles of the rounds' ratios of medians, on / off)."""
    off_ms, ratios = [], []
    for _ in range(rounds):
        taken = measure_in_turns({"off": off, "on": on}, turns)
        off_ms += taken["off"]
        ratios.append(median(taken["on"]) / median(taken["off"]))
    return median(off_ms), quantiles(ratios, n=4)
