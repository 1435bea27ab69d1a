"""How fast this machine trains a configuration, found out in seconds. Called by ab and bench.

On a CPU an iteration is timed; of a GPU the model's arithmetic is known, and what shares of the
peak training reaches. All of it runs in a process beside: what asks for a GPU keeps memory of it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from profiling.hardware import peak_flops_per_s

if TYPE_CHECKING:
    import torch

    from configs.schema import Config
    from training.step import Step

FEW_TOKENS = 1024  # in whole sequences, of which a long iteration is told
WHOLE_S = 2.0  # an iteration of up to so long is timed as it is
TIMED_S, TIMED_MOST = 1.0, 20  # for so long, and so many times at most
TIMED_PARAMETERS = 20_000_000  # in blocks; of a deeper model a shallower one is timed
GPU_SHARES = 0.5, 0.08  # of a GPU's peak: a large model compiled, a small one without
GPU_LEAST_S = 0.002, 0.015  # an iteration of a small model, whatever the GPU
CHARACTERS, BYTE_PAIRS = 65, 50257  # ids, where the text is not looked at


@dataclass(frozen=True)
class Pace:
    """Speed of this machine at a configuration."""

    device: str  # cpu, cuda, mps
    name: str  # the device's
    flops: float  # of an iteration, forward and backward
    iteration_s: tuple[float, float] | None  # at best, and as a rule; None: not known
    tokens: int  # of an iteration
    sequences: int  # of an iteration
    compiles: bool
    has_cpu_size: bool  # no larger than the configuration that is meant for a CPU


def find_pace(words: list[str]) -> Pace:
    """Finds that of train.py's words; imports torch. Raises ValueError as train.py would."""
    from configs.command_line import compose_one
    from training.checks import resolved_config
    from training.device import resolve_device
    from training.warm_up import has_cpu_size

    config = compose_one(words)
    device = resolve_device(config.device)
    config = resolved_config(config, device, 1)
    name, iteration_s, flops = device.type, None, flops_of(config)
    if device.type == "cpu":
        iteration_s = timed_iteration_s(config, device)
    elif device.type == "cuda":
        import torch

        name = torch.cuda.get_device_name(device)
        iteration_s = by_peak(flops, peak_flops_per_s(name, config.dtype))
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


def by_peak(flops: float, peak: float | None) -> tuple[float, float] | None:
    if peak is None:
        return None
    low, high = (
        max(least_s, flops / (share * peak))
        for share, least_s in zip(GPU_SHARES, GPU_LEAST_S, strict=True)
    )
    return low, high


def flops_of(config: "Config") -> float:
    """Counts an iteration's arithmetic; makes no weights."""
    import torch

    from model import GPT

    with torch.device("meta"):
        of_token = GPT(replace(config, kernels="compiled"), vocabulary(config)).flops_per_token()
    tokens = config.batch_size * config.block_size * config.gradient_accumulation_steps
    return of_token * tokens


def vocabulary(config: "Config") -> int:
    """Number of ids, about, that its text has."""
    if config.dataset.endswith("_char"):
        return CHARACTERS
    return config.bpe_vocab_size if config.tokenizer == "local" else BYTE_PAIRS


def timed_iteration_s(config: "Config", device: "torch.device") -> tuple[float, float] | None:
    """Seconds of an iteration on a CPU, the fastest and the median; None: it does not run.

    It is not compiled. A short one is timed as it is; of a long one a sequence or two are, of a
    deep model some layers, and the rest goes by the arithmetic.
    """
    try:
        return timed_as_asked(config, device)
    except RuntimeError:  # train.py meets it, too, and says why
        return None


def timed_as_asked(config: "Config", device: "torch.device") -> tuple[float, float]:
    import torch

    of_layer = 12 * config.n_embd**2
    layers = max(1, min(config.n_layer, TIMED_PARAMETERS // of_layer))
    timed = replace(config, n_layer=layers, compile=False)
    step = make_step(timed, device)
    few_sequences = max(1, min(FEW_TOKENS // config.block_size, config.batch_size))
    few = torch.randint(step.vocab_size, (few_sequences, config.block_size))
    first_s, _ = seconds(lambda: step.try_micro_step(few, few), 1)  # it makes memory and threads
    micro_steps = config.gradient_accumulation_steps
    alike = micro_steps * config.batch_size / few_sequences * flops_of(config) / flops_of(timed)
    times = 1 if first_s > WHOLE_S else 3
    fastest_s, median_s = seconds(lambda: step.try_micro_step(few, few), times)
    if fastest_s * alike > WHOLE_S or layers < config.n_layer:
        return fastest_s * alike, median_s * alike
    ids = torch.randint(step.vocab_size, (config.batch_size, config.block_size))
    times = min(TIMED_MOST, round(2 + TIMED_S / (fastest_s * alike)))
    return seconds(lambda: iterate(step, ids), times)


def seconds(work: Callable[[], None], times: int) -> tuple[float, float]:
    """Times the work so often; the fastest and the median."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return min(took), median(took)


def make_step(config: "Config", device: "torch.device") -> "Step":
    from model import GPT
    from training.distributed import Ranks
    from training.muon import OPTIMIZERS
    from training.optimizer import adamw
    from training.step import Step

    model = GPT(config, vocabulary(config)).to(device)
    optimizer = adamw(model, config, device, OPTIMIZERS[config.optimizer])
    return Step(model, optimizer, config, Ranks(0, 1, device))


def iterate(step: "Step", ids: "torch.Tensor") -> None:
    for _ in range(step.micro_steps):
        step.backward(step.forward(ids, ids))
    step.update(0.0)
