"""One timer for every measurement of the lab: CUDA events on a GPU, perf_counter on a CPU.

    timing = measure(lambda: torch.square(x), x.device)
    timing.median_ms, timing.ci95_ms

On a GPU a sample is the time between two events around the call. Before each sample the GPU

- spins for a moment (`hold`), while the host queues the whole sample: otherwise a call of many
  small kernels would be timed at the pace of Python, and not of the GPU;
- writes a buffer larger than its L2 cache, so that the call finds its inputs in memory, as it does
  in a program that touched other data in between.

Samples are taken in batches with one synchronisation after each, until the confidence interval of
the median is as narrow as asked for, or the time is up.
"""

import time
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from math import comb
from statistics import median, quantiles

import torch

from profiling.shared.measurements import Timing

Work = Callable[[], object]

BATCH_S = 0.05
MIN_SAMPLES, MAX_SAMPLES, MAX_BATCH = 100, 1000, 50
WARM_UP_S = 0.03  # least duration: an idle GPU takes some time to raise its clock
FEWEST_SAMPLES = 6  # with fewer the extremes do not enclose the median with 95 %
STABLE = 0.02  # two batches whose medians differ by less end the warm-up
L2_SIZES = 4  # flushed by writing this many times its size
MAX_HOLD_MS = 20.0
HOLD_MARGIN = 2.0
CALIBRATION_CYCLES = 10_000_000


class CpuStopwatch:
    """Times calls with perf_counter; the caches are left as they are."""

    launch_ms = None

    def batch(self, call: Work, prepare: Work | None, count: int) -> list[float]:
        samples_ms = []
        for _ in range(count):
            if prepare:
                prepare()
            start = time.perf_counter()
            call()
            samples_ms.append((time.perf_counter() - start) * 1e3)
        return samples_ms

    def adjust_hold(self) -> None:
        pass


class CudaStopwatch:
    """Times calls with events on the current stream of `device`."""

    def __init__(self, device: torch.device):
        self.device = device
        self.cycles_per_ms = spin_cycles_per_ms(device)
        l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        self.buffer = torch.empty(L2_SIZES * l2_bytes // 4, dtype=torch.int32, device=device)
        self.launch_ms = self.hold_ms = 0.0

    def batch(self, call: Work, prepare: Work | None, count: int) -> list[float]:
        with torch.cuda.device(self.device):
            pairs, launches_ms = [], []
            for _ in range(count):
                if prepare:
                    prepare()
                torch.cuda._sleep(int(self.hold_ms * self.cycles_per_ms))
                self.buffer.zero_()
                start, end = two_events()
                start.record()
                queued = time.perf_counter()
                call()
                launches_ms.append((time.perf_counter() - queued) * 1e3)
                end.record()
                pairs.append((start, end))
            torch.cuda.synchronize(self.device)
        self.last_launch_ms = min(launches_ms)  # others may have waited for room in the queue
        return [start.elapsed_time(end) for start, end in pairs]

    def adjust_hold(self) -> None:
        """Hold the GPU from now on for as long as launches of the last batch took, and a margin."""
        self.launch_ms = self.last_launch_ms
        self.hold_ms = min(HOLD_MARGIN * self.launch_ms, MAX_HOLD_MS)


def measure(
    call: Work,
    device: torch.device,
    *,
    prepare: Work | None = None,
    precision: float = 0.01,
    max_s: float = 0.3,
) -> Timing:
    """Time `call` until half the interval of its median is below `precision` of it, or `max_s` is
    over.

    `prepare` runs untimed before each sample. `max_s` bounds warm-up and samples each; a call that
    takes longer is run a few times all the same. An exception of `call` is passed on.
    """
    stopwatch = CudaStopwatch(device) if device.type == "cuda" else CpuStopwatch()
    stable, count = warm_up(stopwatch, call, prepare, max_s)
    samples_ms: list[float] = []
    precise, start = False, time.perf_counter()
    while len(samples_ms) < (MIN_SAMPLES if precise else MAX_SAMPLES):
        if time.perf_counter() - start > max_s and len(samples_ms) >= FEWEST_SAMPLES:
            break
        samples_ms += stopwatch.batch(call, prepare, count)
        low, high = median_interval(samples_ms)
        precise = (high - low) / 2 <= precision * median(samples_ms)
    first, _, third = quantiles(samples_ms, n=4)
    return Timing(
        median_ms=median(samples_ms),
        quartiles_ms=(first, third),
        ci95_ms=median_interval(samples_ms),
        samples=len(samples_ms),
        launch_ms=stopwatch.launch_ms,
        stable=stable,
        precise=precise,
    )


def warm_up(
    stopwatch: CpuStopwatch | CudaStopwatch, call: Work, prepare: Work | None, max_s: float
) -> tuple[bool, int]:
    """Run batches until two in a row agree, or `max_s` is over.

    Returns (whether two agreed, the number of samples that fill a batch).
    """
    stopwatch.batch(call, prepare, 1)  # may compile, allocates
    stopwatch.batch(call, prepare, 1)
    stopwatch.adjust_hold()
    before_ms, count, began = None, 2, time.perf_counter()
    while True:
        start = time.perf_counter()
        now_ms = median(stopwatch.batch(call, prepare, count))
        stopwatch.adjust_hold()
        end = time.perf_counter()
        full = max(FEWEST_SAMPLES, min(MAX_BATCH, int(BATCH_S * count / (end - start))))
        stable = before_ms is not None and abs(now_ms - before_ms) <= STABLE * before_ms
        if (stable and end - began > WARM_UP_S) or end - began > max_s:
            return stable, full
        before_ms, count = now_ms, min(full, 2 * count)


def median_interval(samples: list[float]) -> tuple[float, float]:
    """The order statistics that enclose the median with 95 %; the extremes of fewer than 6
    samples."""
    ordered, rank = sorted(samples), interval_rank(len(samples))
    return ordered[rank], ordered[-1 - rank]


@lru_cache
def interval_rank(count: int) -> int:
    """The largest rank (from 0) below which the median lies with at most 2.5 %, by a sign test."""
    below = accumulate(comb(count, rank) for rank in range(count // 2))
    return max(0, sum(ways * 40 <= 1 << count for ways in below) - 1)


@lru_cache
def empty_launch(device: torch.device) -> Timing:
    """Timing of a kernel that does nothing: the cost of the events and the launch. CUDA only."""
    with torch.cuda.device(device):
        return measure(lambda: torch.cuda._sleep(0), device, precision=0.005)


@lru_cache
def spin_cycles_per_ms(device: torch.device) -> float:
    """Clock cycles in a millisecond, measured with a kernel that spins."""
    with torch.cuda.device(device):
        torch.cuda._sleep(CALIBRATION_CYCLES)  # lets the clock rise
        start, end = two_events()
        start.record()
        torch.cuda._sleep(CALIBRATION_CYCLES)
        end.record()
        torch.cuda.synchronize(device)
    return CALIBRATION_CYCLES / float(start.elapsed_time(end))


def two_events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
