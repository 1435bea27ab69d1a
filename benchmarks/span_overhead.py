"""What the ranges of the loop cost: a step without them, with them, and with an NVTX tool.

    python -m benchmarks span_overhead [KEY=VALUE ...]

Trains the smallest configuration for a CPU on random tokens. Steps without and with ranges take
turns inside one process (off, on, on, off, ...), so that a drifting clock or a neighbour touches
both alike; a round compares their medians, and the table gives the median of the rounds with their
quartiles. A difference below a percent of a step drowns in that spread, so the ranges of an
iteration are also timed by themselves, many times over, and given as a share of the step.
"""

import statistics
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from benchmarks import at_least
from configs.command_line import find_config
from configs.compose import compose_jobs
from configs.schema import Config
from model import GPT
from profiling.capture.spans import NoSpans, Spans
from training.distributed import Ranks
from training.optimizer import adamw
from training.step import Step

CPU = torch.device("cpu")
VOCAB = 65


@dataclass
class OverheadConfig:
    config: str = field(default="shakespeare_char_cpu", metadata={"help": "experiment"})
    rounds: int = field(default=20, metadata={"help": "comparisons of medians"})
    steps: int = field(default=20, metadata={"help": "steps of each kind in a round"})
    threads: int = field(default=1, metadata={"help": "PyTorch's"})

    def __post_init__(self) -> None:
        at_least(self, rounds=2, steps=1, threads=1)


def main(config: OverheadConfig) -> None:
    torch.set_num_threads(config.threads)
    words = ["device=cpu", "dtype=float32", "compile=false"]
    (experiment,) = compose_jobs(find_config(config.config), words, multirun=False)
    step = make_step(experiment)
    tokens = torch.randint(VOCAB, (experiment.batch_size, experiment.block_size))
    off, on = NoSpans(), Spans()
    for spans in (off, on) * 5:
        timed_steps(step, tokens, spans, 1)
    ratios, step_ms = [], []
    for _ in range(config.rounds):
        taken: dict[Spans | NoSpans, list[float]] = {off: [], on: []}
        for number in range(config.steps):
            for spans in (off, on) if number % 2 else (on, off):
                taken[spans].append(timed_steps(step, tokens, spans, 1))
        medians = {spans: statistics.median(taken[spans]) for spans in taken}
        ratios.append(medians[on] / medians[off])
        step_ms.append(medians[off])
    listening = "a tool listens" if on.phases["data"].attributes else "no tool listens"
    a_step_ms = statistics.median(step_ms)
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"step without ranges: {a_step_ms:.3f} ms ({experiment.n_layer} layers of")
    print(f"{experiment.n_embd}, {config.threads} threads); {listening} to NVTX")
    print("\n| ranges | an iteration's ranges alone | share of a step |\n|---|---|---|")
    for name, spans in (("off", off), ("on", on)):
        alone_us = ranges_alone_us(spans)
        print(f"| {name} | {alone_us:.2f} us | {alone_us / a_step_ms / 10:.3f} % |")
    print(
        f"\nwhole steps, on / off: {middle:.4f} (quartiles {low:.4f}, {high:.4f}; "
        f"{config.rounds} rounds)"
    )


def make_step(config: Config) -> Step:
    ranks = Ranks(0, 1, CPU)
    model = GPT(config, VOCAB)
    return Step(model, adamw(model, config, CPU), config, ranks)


def timed_steps(step: Step, tokens: Tensor, spans: Spans | NoSpans, count: int) -> float:
    """Milliseconds; `tokens` (B, T) are both input and target."""
    step.spans = spans
    start = time.perf_counter()
    for number in range(count):
        iterate(step, tokens, spans, number)
    return (time.perf_counter() - start) * 1e3


def iterate(step: "Step | Nothing", tokens: Tensor, spans: Spans | NoSpans, number: int) -> None:
    """An iteration with the ranges that train.py has around it."""
    with spans.iteration(number):
        with spans.micro_step(0, of=1):
            with spans.phase("data"):
                x, y = tokens, tokens
            with spans.phase("forward"):
                loss = step.forward(x, y)
            with spans.phase("backward"):
                step.backward(loss)
        step.average_gradients()
        with spans.phase("optimizer"):
            step.update(1e-4)


def ranges_alone_us(spans: Spans | NoSpans, count: int = 20_000) -> float:
    """Microseconds of the same ranges around nothing; the best of several tries."""
    nothing, tokens = Nothing(spans), torch.zeros(1, 1)
    tries = []
    for _ in range(5):
        start = time.perf_counter()
        for number in range(count):
            iterate(nothing, tokens, spans, number)
        tries.append(time.perf_counter() - start)
    return min(tries) / count * 1e6


class Nothing:
    """A step that is only its ranges."""

    def __init__(self, spans: Spans | NoSpans):
        self.spans = spans

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x

    def backward(self, loss: Tensor) -> None:
        pass

    def average_gradients(self) -> None:
        pass

    def update(self, learning_rate: float) -> None:
        with self.spans.phase("clip"):
            pass
