"""Is the lab's timer right? Against Triton's do_bench, and against itself, on a CUDA GPU.

    python -m benchmarks timer_check [KEY=VALUE ...]

Times the same calls (flash attention at the trainer's shape and at a long one, and a copy) by both
timers in turns. Prints for each call both medians, their ratio, and the spread of our medians over
the repetitions, (max - min) / median. Exits with 1 when a flash call differs by more than 5 % or
spreads by more than 2 %.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch

from benchmarks.measuring import Keys, key
from model import attend
from profiling.lab.timer import empty_launch, measure

MOST_DIFFERENCE, MOST_SPREAD = 0.05, 0.02


@dataclass
class CheckConfig(Keys):
    repetitions: int = key(10, "of each timer, in turns", least=2)


def main(config: CheckConfig) -> None:
    do_bench = triton_timer()
    device = torch.device("cuda", 0)
    empty = empty_launch(device)
    print(f"{torch.cuda.get_device_name(device)}, empty launch {empty.median_ms * 1e3:.2f} us\n")
    print("| call | ours | do_bench | ratio | spread of ours | spread of do_bench | samples |")
    print("|---|---|---|---|---|---|---|")
    good = True
    for name, call in calls(device).items():
        timings, theirs = [], []
        for _ in range(config.repetitions):
            timings.append(measure(call, device))
            theirs.append(do_bench(call, return_mode="median"))
        ours = [timing.median_ms for timing in timings]
        ratio = median(ours) / median(theirs)
        print(
            f"| {name} | {median(ours) * 1e3:.2f} us | {median(theirs) * 1e3:.2f} us "
            f"| {ratio:.4f} | {100 * spread(ours):.2f} % | {100 * spread(theirs):.2f} % "
            f"| {median(timing.samples for timing in timings):.0f} |",
            flush=True,
        )
        if name.startswith("flash"):
            good &= abs(ratio - 1) <= MOST_DIFFERENCE and spread(ours) <= MOST_SPREAD
    print("\ngood: within 5 % and 2 %" if good else "\nNOT GOOD: beyond 5 % or 2 %")
    raise SystemExit(0 if good else 1)


def triton_timer() -> Callable[..., float]:
    if not torch.cuda.is_available():
        raise ValueError("timer_check: needs a CUDA GPU; PyTorch sees none here")
    try:
        from triton.testing import do_bench
    except ImportError as error:
        raise ValueError(f"timer_check: needs triton to compare with: {error}") from error
    timer: Callable[..., float] = do_bench
    return timer


def calls(device: torch.device) -> dict[str, Callable[[], object]]:
    """Name -> call to time: bfloat16 flash attention at two shapes of 16,384 tokens, and a copy."""
    made: dict[str, Callable[[], object]] = {}
    for batch, tokens in ((64, 256), (4, 4096)):
        q, k, v = torch.randn(3, batch, 6, tokens, 64, device=device, dtype=torch.bfloat16)
        made[f"flash {batch} x 6 x {tokens} x 64"] = partial(attend, q, k, v, "flash", 0.0)
    source = torch.randn(64 * 2**18, device=device)
    target = torch.empty_like(source)
    made["copy of 64 MiB"] = partial(target.copy_, source)
    return made


def spread(values: list[float]) -> float:
    return (max(values) - min(values)) / median(values)
