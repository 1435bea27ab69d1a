"""What sampling the GPUs costs a step: stretches of steps with the sampler and without take turns.

    python -m benchmarks sampler_overhead [KEY=VALUE ...]

Trains an experiment on random tokens in one process, a stretch off, on, on, off, ..., so that a
drifting clock or a neighbour touches both alike. A stretch is timed as a whole: a sample disturbs
few steps, which a median would not show. The cost of one sample is also timed by itself, and given
as a share of the interval: no step can be slowed down by more if it waits for all of it.

Without a GPU, a library of one's own in the driver's place (tests/fakes/fake_nvml.c) shows the part
that is Python's: name its GPU with uuid=.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pynvml
import torch

from benchmarks import at_least
from configs.command_line import find_config
from configs.compose import compose_jobs
from configs.schema import Config
from model import GPT
from profiling.capture.sampler import GpuSampler
from training.device import resolve, resolve_device
from training.distributed import Ranks
from training.gpu_metrics import open_gpus, uuids_of
from training.optimizer import adamw
from training.step import Step
from training.warm_up import warm_up

VOCAB = 65
SETTLING_MS = 1000  # before the first comparison


@dataclass
class OverheadConfig:
    config: str = field(default="shakespeare_char", metadata={"help": "experiment"})
    more: str = field(default="", metadata={"help": "its keys, as 'attention=flash compile=false'"})
    interval_ms: int = field(default=100, metadata={"help": "between two samples"})
    rounds: int = field(default=20, metadata={"help": "comparisons of off, on, on, off"})
    stretch_ms: int = field(default=1000, metadata={"help": "of steps without a change"})
    uuid: str = field(default="", metadata={"help": "of the GPU to sample; empty: the run's own"})

    def __post_init__(self) -> None:
        at_least(self, rounds=2, stretch_ms=1, interval_ms=1)


def main(config: OverheadConfig) -> None:
    path = find_config(config.config)
    (experiment,) = compose_jobs(path, config.more.split(), multirun=False)
    ranks = Ranks(0, 1, resolve_device(experiment.device))
    if not config.uuid and ranks.device.type != "cuda":
        raise ValueError(f"uuid: this run is on {ranks.device.type}, so name a GPU to sample")
    uuid = config.uuid or uuids_of(ranks)[0]
    sample_ms, python_ms = sample_alone(uuid)
    iterate = make_iteration(resolve(experiment, ranks.device), ranks)
    per_step_ms = timed(iterate, ranks, steps_for(iterate, ranks, SETTLING_MS))
    steps = max(1, round(config.stretch_ms / per_step_ms))
    off_ms, ratios = [], []
    for _ in range(config.rounds):
        a = timed(iterate, ranks, steps)
        b = sampled(iterate, ranks, steps, uuid, config.interval_ms)
        c = sampled(iterate, ranks, steps, uuid, config.interval_ms)
        d = timed(iterate, ranks, steps)
        off_ms += [a, d]
        ratios.append((b + c) / (a + d))
    low, middle, high = statistics.quantiles(ratios, n=4)
    share = sample_ms / config.interval_ms
    print(f"{ranks.device_name}: step without sampling {statistics.median(off_ms):.3f} ms")
    print(
        f"a sample alone: {sample_ms * 1e3:.0f} us, {python_ms * 1e3:.0f} us of them on the "
        f"processor; {share:.3%} of {config.interval_ms} ms"
    )
    print(
        f"steps sampled every {config.interval_ms} ms, on / off: {middle:.5f} "
        f"(quartiles {low:.5f}, {high:.5f}; {config.rounds} rounds of 4 x {steps} steps)"
    )


def make_iteration(experiment: Config, ranks: Ranks) -> Callable[[], None]:
    model = GPT(experiment, VOCAB).to(ranks.device)
    eager = Step(model, adamw(model, experiment, ranks.device), experiment, ranks)
    shape = (experiment.batch_size, experiment.block_size)
    tokens = torch.randint(VOCAB, shape, device=ranks.device)
    step, _ = warm_up(eager, tokens, tokens, experiment, ranks)

    def iterate() -> None:
        for _ in range(step.micro_steps):
            step.backward(step.forward(tokens, tokens))
        step.average_gradients()
        step.update(1e-4)

    return iterate


def steps_for(iterate: Callable[[], None], ranks: Ranks, wanted_ms: float) -> int:
    timed(iterate, ranks, 3)
    return max(1, round(wanted_ms / timed(iterate, ranks, 10)))


def timed(iterate: Callable[[], None], ranks: Ranks, steps: int) -> float:
    """Mean milliseconds of a step, from an idle GPU to an idle GPU."""
    start = time.perf_counter()
    for _ in range(steps):
        iterate()
    if ranks.device.type == "cuda":
        torch.cuda.synchronize(ranks.device)
    return (time.perf_counter() - start) * 1e3 / steps


def sampled(
    iterate: Callable[[], None], ranks: Ranks, steps: int, uuid: str, interval_ms: int
) -> float:
    with GpuSampler(opened(uuid), interval_ms):
        return timed(iterate, ranks, steps)


def sample_alone(uuid: str, count: int = 50) -> tuple[float, float]:
    """Milliseconds of a sample on the wall and on the processor: the median of some."""
    (gpu,) = opened(uuid)
    wall_ms, processor_ms = [], []
    for _ in range(count):
        wall, processor = time.perf_counter(), time.thread_time()
        gpu.sample()
        processor_ms.append((time.thread_time() - processor) * 1e3)
        wall_ms.append((time.perf_counter() - wall) * 1e3)
        time.sleep(0.02)
    gpu.close()
    pynvml.nvmlShutdown()
    return statistics.median(wall_ms), statistics.median(processor_ms)


def opened(uuid: str) -> list:
    try:
        return open_gpus([uuid])
    except pynvml.NVMLError as error:
        raise ValueError(f"uuid={uuid}: NVIDIA's management library: {error}") from error
