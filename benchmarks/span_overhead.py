"""What the ranges of the loop cost: a step without them, with them, and with an NVTX tool.

    python -m benchmarks span_overhead [KEY=VALUE ...]

Trains the smallest configuration for a CPU on random tokens. Steps without and with ranges take
turns inside one process (off, on, on, off, ...), so that a drifting clock or a neighbour touches
both alike; a round compares their medians, and the table gives the median of the rounds with their
quartiles. A difference below a percent of a step drowns in that spread, so the ranges of an
iteration are also timed by themselves, many times over, and given as a share of the step.
"""

import timeit
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.measuring import Keys, in_turns, key
from benchmarks.steps import compared, eager_step, iterate, random_batch, timed_ms
from configs.command_line import compose_one
from profiling.capture.spans import NoSpans, Spans
from training.distributed import Ranks

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
    no_spans, spans = NoSpans(), Spans()

    def off_ms() -> float:
        step.spans = no_spans
        return timed_ms(step, tokens, no_spans, 1)

    def on_ms() -> float:
        step.spans = spans
        return timed_ms(step, tokens, spans, 1)

    in_turns({"off": off_ms, "on": on_ms}, SETTLING_TURNS)
    step_ms, (low, middle, high) = compared(off_ms, on_ms, config.rounds, config.steps)
    listening = "a tool listens" if spans.phases["data"].attributes else "no tool listens"
    print(f"step without ranges: {step_ms:.3f} ms ({experiment.n_layer} layers of")
    print(f"{experiment.n_embd}, {config.threads} threads); {listening} to NVTX")
    print("\n| ranges | an iteration's ranges alone | share of a step |\n|---|---|---|")
    for name, each in (("off", no_spans), ("on", spans)):
        alone_us = ranges_alone_us(each)
        print(f"| {name} | {alone_us:.2f} us | {alone_us / step_ms / 10:.3f} % |")
    print(
        f"\nwhole steps, on / off: {middle:.4f} (quartiles {low:.4f}, {high:.4f}; "
        f"{config.rounds} rounds)"
    )


def ranges_alone_us(spans: Spans | NoSpans) -> float:
    """Microseconds of the same ranges around nothing; the best of several tries."""
    nothing, tokens = Nothing(spans), torch.zeros(1, 1)
    tries_s = timeit.repeat(lambda: iterate(nothing, tokens, spans), number=ALONE_COUNT)
    return min(tries_s) / ALONE_COUNT * 1e6


class Nothing:
    """A step that is only its ranges."""

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
