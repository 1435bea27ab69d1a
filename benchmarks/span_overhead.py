"""Cost of the loop's ranges: a step without them, with them, and with an NVTX tool.

    python -m benchmarks span_overhead [KEY=VALUE ...]

Trains the smallest configuration for a CPU on random tokens. Steps without and with ranges take
turns inside one process (off, on, on, off, ...), so that a drifting clock or a neighbour touches
both alike; a round compares their medians, and the table gives the median of the rounds with their
quartiles. A difference below a percent of a step drowns in that spread, so the ranges of an
iteration are also timed by themselves, many times over, and given as a share of the step.
"""

import timeit
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from benchmarks.measuring import Keys, key
from benchmarks.steps import compare_in_turns, eager_step, iterate, random_batch, timed_ms
from configs.command_line import compose_one
from profiling.recording.spans import NoSpans, Spans
from training.ranks.distributed import Ranks

CPU = torch.device("cpu")
SETTLING_TURNS = 5
ALONE_COUNT = 20_000


@dataclass
class OverheadConfig(Keys):
    config: str = key("shakespeare_char_cpu", "experiment")
    rounds: int = key(20, "comparisons of medians", least=2)
    steps: int = key(20, "steps of each kind in a round", least=1)
    threads: int = key(1, "PyTorch's", least=1)


def main(config: OverheadConfig) -> None:
    torch.set_num_threads(config.threads)
    experiment = compose_one([config.config, "device=cpu", "dtype=float32", "compile=false"])
    step, tokens = eager_step(experiment, Ranks(0, 1, CPU)), random_batch(experiment, CPU)
    off, on = NoSpans(), Spans()

    def step_ms(spans: Spans | NoSpans) -> float:
        step.spans = spans
        return timed_ms(step, tokens, spans, 1)

    measures = partial(step_ms, off), partial(step_ms, on)
    compare_in_turns(*measures, rounds=2, turns=SETTLING_TURNS)
    off_ms, (low, middle, high) = compare_in_turns(*measures, config.rounds, config.steps)
    listening = "a tool listens" if on.phases["data"].attributes else "no tool listens"
    print(f"step without ranges: {off_ms:.3f} ms ({experiment.n_layer} layers of")
    print(f"{experiment.n_embd}, {config.threads} threads); {listening} to NVTX")
    print("\n| ranges | an iteration's ranges alone | share of a step |\n|---|---|---|")
    for name, spans in (("off", off), ("on", on)):
        alone_us = ranges_alone_us(spans)
        print(f"| {name} | {alone_us:.2f} us | {alone_us / off_ms / 10:.3f} % |")
    print(
        f"\nwhole steps, on / off: {middle:.4f} (quartiles {low:.4f}, {high:.4f}; "
        f"{config.rounds} rounds)"
    )


def ranges_alone_us(spans: Spans | NoSpans) -> float:
    """Microseconds of an iteration's ranges around an empty step; the best of several tries."""
    nothing, tokens = EmptyStep(spans), torch.zeros(1, 1)
    tries_s = timeit.repeat(lambda: iterate(nothing, tokens, spans), number=ALONE_COUNT)
    return min(tries_s) / ALONE_COUNT * 1e6


class EmptyStep:
    """An empty step, of which only the ranges are left."""

    micro_steps = 1

    def __init__(self, spans: Spans | NoSpans):
        self.spans = spans
        self.readings: dict[str, Tensor] = {}

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x

    def backward(self, loss: Tensor) -> None:
        pass

    def average_gradients(self) -> None:
        pass

    def update(self, learning_rate: float) -> None:
        with self.spans.phase("clip"):
            pass
