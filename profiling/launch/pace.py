"""This machine's speed of training a configuration, estimated in seconds. Called by ab and bench.

On a CPU an iteration is timed. On a GPU the estimate is the model's arithmetic at the shares of the
peak that training usually reaches. All of it runs in a process of its own: one that asks for a GPU
keeps memory of it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from profiling.shared.hardware import peak_flops_per_s

if TYPE_CHECKING:
    import torch

    from configs.schema import Config
    from training.step.step import Step

FEW_TOKENS = 1024  # tokens in whole sequences, from whose time a long iteration is estimated
WHOLE_S = 2.0  # an iteration of up to so many seconds is timed as a whole
TIMED_S, TIMED_MOST = 1.0, 20  # it is timed for so long, and so many times at most
TIMED_PARAMETERS = 20_000_000  # in blocks; a deeper model is timed with fewer layers
GPU_SHARES = 0.5, 0.08  # of a GPU's peak: a large compiled model, a small one that is not compiled
GPU_LEAST_S = 0.002, 0.015  # least time of an iteration in the same two cases, whatever the GPU
CHARACTERS, BYTE_PAIRS = 65, 50257  # vocabulary sizes that are assumed: the text is not read


@dataclass(frozen=True)
class Pace:
    """This machine's speed at a configuration."""

    device: str  # cpu, cuda, mps
    name: str  # the device's name
    flops: float  # FLOPs in an iteration, forward and backward
    iteration_s: tuple[float, float] | None  # at best, and usually; None if unknown
    tokens: int  # in an iteration
    sequences: int  # in an iteration
    compiles: bool
    has_cpu_size: bool  # the model is no larger than the configuration for a CPU


def find_pace(words: list[str]) -> Pace:
    """Find the pace of train.py with these words. Imports torch; raises ValueError as train.py
    would."""
    from configs.command_line import compose_one
    from training.checks import resolve_and_check
    from training.machine.device import resolve_device
    from training.step.warm_up import has_cpu_size

    config = compose_one(words)
    device = resolve_device(config.device)
    config = resolve_and_check(config, device, 1)
    name, iteration_s, flops = device.type, None, flops_of(config)
    if device.type == "cpu":
        iteration_s = timed_iteration_s(config, device)
    elif device.type == "cuda":
        import torch

        name = torch.cuda.get_device_name(device)
        iteration_s = gpu_iteration_s(flops, peak_flops_per_s(name, config.dtype))
    sequences = config.batch_size * config.gradient_accumulation_steps
    return Pace(
        device=device.type,
        name=name,
        flops=flops,
        iteration_s=iteration_s,
        tokens=sequences * config.block_size,
        sequences=sequences,
        compiles=bool(config.compile),
        has_cpu_size=has_cpu_size(config),
    )


def gpu_iteration_s(flops: float, peak: float | None) -> tuple[float, float] | None:
    """Least and most seconds of an iteration with `flops` on a GPU with that peak in FLOP/s, or
    None without a known peak."""
    if peak is None:
        return None
    low, high = (
        max(least_s, flops / (share * peak))
        for share, least_s in zip(GPU_SHARES, GPU_LEAST_S, strict=True)
    )
    return low, high


def flops_of(config: "Config") -> float:
    """Count the FLOPs of an iteration; no weights are made."""
    from training.machine.model_description import empty_model

    tokens = config.batch_size * config.block_size * config.gradient_accumulation_steps
    return empty_model(config, vocabulary_size(config)).flops_per_token() * tokens


def vocabulary_size(config: "Config") -> int:
    """Approximate vocabulary size of the configuration's text."""
    if config.dataset.endswith("_char"):
        return CHARACTERS
    return config.bpe_vocab_size if config.tokenizer == "local" else BYTE_PAIRS


def timed_iteration_s(config: "Config", device: "torch.device") -> tuple[float, float] | None:
    """Fastest and median seconds of an iteration on a CPU, or None if it does not run.

    The model is not compiled. A short iteration is timed as a whole. For a long one a sequence or
    two are timed, for a deep model some of its layers, and scaled by the FLOPs.
    """
    try:
        return measure_iteration_s(config, device)
    except RuntimeError:  # train.py will meet it too, and say why
        return None


def measure_iteration_s(config: "Config", device: "torch.device") -> tuple[float, float]:
    import torch

    from training.machine.model_description import empty_model

    one_layer = empty_model(replace(config, n_layer=1), vocab_size=1).transformer.h
    layer_parameters = sum(each.numel() for each in one_layer.parameters())
    layers = max(1, min(config.n_layer, TIMED_PARAMETERS // layer_parameters))
    timed = replace(config, n_layer=layers, compile=False)
    step = make_step(timed, device)
    few_sequences = max(1, min(FEW_TOKENS // config.block_size, config.batch_size))
    few = torch.randint(step.vocab_size, (few_sequences, config.block_size))
    # the first call also allocates memory and starts threads
    first_s, _ = time_calls(lambda: step.try_micro_step(few, few), 1)
    micro_steps = config.gradient_accumulation_steps
    scale = micro_steps * config.batch_size / few_sequences * flops_of(config) / flops_of(timed)
    times = 1 if first_s > WHOLE_S else 3
    fastest_s, median_s = time_calls(lambda: step.try_micro_step(few, few), times)
    if fastest_s * scale > WHOLE_S or layers < config.n_layer:
        return fastest_s * scale, median_s * scale
    ids = torch.randint(step.vocab_size, (config.batch_size, config.block_size))
    times = min(TIMED_MOST, round(2 + TIMED_S / (fastest_s * scale)))
    return time_calls(lambda: iterate(step, ids), times)


def time_calls(work: Callable[[], None], times: int) -> tuple[float, float]:
    """Call `work` so many times; the fastest and the median call in seconds."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return min(took), median(took)


def make_step(config: "Config", device: "torch.device") -> "Step":
    from kernels.fused_model import make_model
    from training.optimizers.kinds import make_optimizer
    from training.ranks.distributed import Ranks
    from training.step.step import Step

    model = make_model(config, vocabulary_size(config)).to(device)
    optimizer = make_optimizer(model, config, device)
    return Step(model, optimizer, config, Ranks(0, 1, device))


def iterate(step: "Step", ids: "torch.Tensor") -> None:
    for _ in range(step.micro_steps):
        step.backward(step.forward(ids, ids))
    step.update(0.0)
