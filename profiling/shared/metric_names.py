"""Names of the metrics that a run logs, with titles, units and the order in which panels show them.

The trainer writes these names to metrics.jsonl and W&B; both dashboards draw them. Imports only the
standard library, so that trainer and analysis can both read it.
"""

import re
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Metric:
    """One column of metrics.jsonl. A logged value times `scale` is in `unit`, for display."""

    name: str
    title: str
    unit: str
    scale: float = 1.0


ELAPSED_S = "time/elapsed_s"  # since the run began: an axis for the others

VAL_LOSS = Metric("val/loss", "validation loss", "nats per token")
TRAIN_LOSS = Metric("train/loss", "training loss", "nats per token")
STEP_MS = Metric("time/step_ms", "step time", "ms")
MEAN_STEP_MS = Metric("time/mean_step_ms", "mean step time", "ms")
DATA_MS = Metric("time/data_ms", "time the host waits for a batch", "ms per step")
TOKENS_PER_S = Metric("perf/tokens_per_s", "throughput", "tokens/s")
STEPS_PER_S = Metric("perf/steps_per_s", "throughput", "steps/s")  # of a program without tokens
MFU = Metric("perf/mfu", "model FLOP utilisation (MFU)", "%", 100)
PEAK_BYTES = Metric("memory/peak_bytes", "peak memory", "GB", 1e-9)
CPU_PERCENT = Metric("cpu/process_percent", "CPU use of the process (100 %: one core)", "%")
CPU_THREADS = Metric("cpu/threads", "threads of the process", "")
CPU_MEMORY_BYTES = Metric("cpu/memory_bytes", "memory of the process (RSS)", "GB", 1e-9)
WAIT_MS = Metric("time/wait_ms", "wait for the last rank, mean over ranks", "ms per step")
STRAGGLER_MS = Metric("time/straggler_ms", "cost of slower ranks", "ms per step")
SYNC_MS = Metric("time/sync_ms", "averaging of gradients, without the wait", "ms per step")
SLOWEST_RANK = Metric("time/slowest_rank", "the slowest rank", "")
FASTEST_RANK = Metric("time/fastest_rank", "the fastest rank", "")
SLOWEST_RANK_MS = Metric("time/slowest_rank_ms", "work of the slowest rank alone", "ms per step")
FASTEST_RANK_MS = Metric("time/fastest_rank_ms", "work of the fastest rank alone", "ms per step")
POWER_W = Metric("gpu/power_w", "power", "W")
ENERGY_PER_TOKEN = Metric("perf/energy_per_token_j", "energy", "µJ per token", 1e6)

LOSS = (
    VAL_LOSS,
    TRAIN_LOSS,
    Metric("eval/train_loss", "training loss, evaluated", "nats per token"),
)
SPEED = (
    STEP_MS,
    DATA_MS,
    TOKENS_PER_S,
    MFU,
    PEAK_BYTES,
    CPU_PERCENT,
    CPU_MEMORY_BYTES,
    CPU_THREADS,
)
# only runs of several ranks log these
RANKS = (WAIT_MS, STRAGGLER_MS, SYNC_MS, SLOWEST_RANK_MS, FASTEST_RANK_MS)
BEST_VAL_LOSS = Metric("best_val_loss", "best validation loss", "nats per token")  # of the summary
# one value per run; the first is what a run is for
FIGURES = (BEST_VAL_LOSS, TOKENS_PER_S, STEP_MS, MFU, PEAK_BYTES, ENERGY_PER_TOKEN)
GPU = (
    Metric("gpu/tensor_active_percent", "tensor cores active", "%"),
    Metric("gpu/sm_active_percent", "SMs active", "%"),
    Metric("gpu/dram_active_percent", "DRAM active", "%"),
    POWER_W,
    ENERGY_PER_TOKEN,
    Metric("gpu/sm_clock_mhz", "SM clock", "MHz"),
    Metric("gpu/util_percent", "time with any kernel running (NVML utilisation)", "%"),
    Metric("gpu/memory_bytes", "memory used on the GPU, by all processes", "GB", 1e-9),
    Metric("gpu/temperature_c", "temperature", "°C"),
)
OTHER = (
    Metric("lr", "learning rate", ""),
    Metric("profile/step_ms", "step time while captured", "ms"),
    Metric(ELAPSED_S, "wall time", "s"),
    MEAN_STEP_MS,
    STEPS_PER_S,
)

# a capture's entries in its run in W&B: three tables and the report's page
CAPTURE_MEDIA = ("capture/summary", "capture/families", "capture/phases", "capture/report")
# and numbers in that run's summary, by which runs are compared: the parts of its mean step, which
# add up to it, and the phases of training, whose name follows host_ms/ or gpu_ms/
CAPTURE_PARTS = tuple(f"capture/{part}_ms" for part in ("compute", "communication", "copy", "idle"))
CAPTURE_HOST, CAPTURE_GPU = "capture/host_ms", "capture/gpu_ms"
TRAINING_PHASES = ("data", "forward", "backward", "optimizer")

ALL = {
    metric.name: metric
    for metric in (*LOSS, *SPEED, *RANKS, SLOWEST_RANK, FASTEST_RANK, *GPU, *OTHER)
}
LATER_GPU = r"gpu(\d+)/(\w+)"  # a run's second GPU logs gpu1/power_w; see gpu_metric_name
WAIT_OF_RANK = rf"{WAIT_MS.name}/rank(\d+)"


def gpu_metric_name(number: int, key: str) -> str:
    """Name of metric `key` for GPU `number` of a run's GPUs on the machine that samples them."""
    return f"gpu{number or ''}/{key}"


def metric_of(name: str) -> Metric:
    """The metric called `name`; one that is not listed above has its bare name as title."""
    known = ALL.get(name)
    later = re.fullmatch(LATER_GPU, name)
    if later and (first := ALL.get(f"gpu/{later[2]}")):
        known = replace(first, name=name, title=f"GPU {later[1]}: {first.title}")
    if rank := re.fullmatch(WAIT_OF_RANK, name):
        known = replace(WAIT_MS, name=name, title=f"rank {rank[1]}: wait for the last rank")
    return known or Metric(name, name, "")
