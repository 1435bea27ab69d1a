"""Cost of sampling the GPUs to a step: stretches of steps with the sampler and without take turns.

    python -m benchmarks sampler_overhead [KEY=VALUE ...]

Trains an experiment on random tokens in one process, a stretch off, on, on, off, ..., so that a
drifting clock or a neighbour touches both alike. A stretch is timed as a whole: a sample disturbs
few steps, which a median would not show. The cost of one sample is also timed by itself, and given
as a share of the interval: no step can be slowed down by more if it waits for all of it.

Without a GPU, a library of one's own in the driver's place (tests/fakes/fake_nvml.c) shows the part
that is Python's: name its GPU with uuid=.
"""

import time
from dataclasses import dataclass
from functools import partial
from statistics import median

import pynvml

from benchmarks.measuring import Keys, key
from benchmarks.steps import compare_in_turns, eager_step, random_batch, timed_ms
from configs.command_line import compose_one
from profiling.recording.nvml import Gpu
from profiling.recording.sampler import GpuSampler
from profiling.recording.spans import NoSpans
from profiling.shared.units import number
from training.gpu_metrics import open_gpus, uuids_of
from training.machine.device import resolve, resolve_device
from training.ranks.distributed import Ranks
from training.step.warm_up import warm_up

SETTLING_MS = 1000  # before the first comparison
ALONE_COUNT = 50


@dataclass
class OverheadConfig(Keys):
    config: str = key("shakespeare_char", "experiment")
    more: str = key("", "its keys, as 'attention=flash compile=false'")
    interval_ms: int = key(100, "between two samples", least=1)
    rounds: int = key(20, "comparisons of off, on, on, off", least=2)
    stretch_ms: int = key(1000, "of steps without a change", least=1)
    uuid: str = key("", "of the GPU to sample; empty: the run's own")


def main(config: OverheadConfig) -> None:
    experiment = compose_one([config.config, *config.more.split()])
    ranks = Ranks(0, 1, resolve_device(experiment.device))
    if not config.uuid and ranks.device.type != "cuda":
        raise ValueError(f"uuid: this run is on {ranks.device.type}, so name a GPU to sample")
    uuid = config.uuid or uuids_of(ranks)[0]
    sample_ms, python_ms = sample_alone(uuid)
    experiment = resolve(experiment, ranks.device)
    tokens = random_batch(experiment, ranks.device)
    step, _ = warm_up(eager_step(experiment, ranks), tokens, tokens, experiment, ranks)
    timed = partial(timed_ms, step, tokens, NoSpans())
    timed(3)
    steps = max(1, round(SETTLING_MS / timed(10)))
    steps = max(1, round(config.stretch_ms / timed(steps)))

    def time_with_sampler() -> float:
        with GpuSampler(open_gpu(uuid), config.interval_ms):
            return timed(steps)

    step_ms, (low, middle, high) = compare_in_turns(
        partial(timed, steps), time_with_sampler, config.rounds, turns=2
    )
    share = sample_ms / config.interval_ms
    print(f"{ranks.device_name}: step without sampling {step_ms:.3f} ms")
    print(
        f"a sample alone: {sample_ms * 1e3:.0f} us, {python_ms * 1e3:.0f} us of them on the "
        f"processor; {number(100 * share)} % of {config.interval_ms} ms"
    )
    print(
        f"steps sampled every {config.interval_ms} ms, on / off: {middle:.5f} "
        f"(quartiles {low:.5f}, {high:.5f}; {config.rounds} rounds of 4 x {steps} steps)"
    )


def sample_alone(uuid: str) -> tuple[float, float]:
    """Median (wall ms, CPU ms) of ALONE_COUNT samples without training."""
    (gpu,) = open_gpu(uuid)
    wall_ms, processor_ms = [], []
    for _ in range(ALONE_COUNT):
        wall, processor = time.perf_counter(), time.thread_time()
        gpu.sample()
        processor_ms.append((time.thread_time() - processor) * 1e3)
        wall_ms.append((time.perf_counter() - wall) * 1e3)
        time.sleep(0.02)
    gpu.close()
    pynvml.nvmlShutdown()
    return median(wall_ms), median(processor_ms)


def open_gpu(uuid: str) -> list[Gpu]:
    try:
        return open_gpus([uuid])
    except pynvml.NVMLError as error:
        raise ValueError(f"uuid={uuid}: NVIDIA's management library: {error}") from error
