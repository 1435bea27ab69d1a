"""Adds the sampler that section `gpu_metrics` describes to a run. Called by train.py."""

import logging

import pynvml
import torch

from configs.profiling import GpuMetricsConfig
from profiling.recording.nvml import Gpu
from profiling.recording.sampler import GpuSampler, NoSampler
from training.machine.torchrun import ranks_here
from training.ranks.distributed import Ranks

log = logging.getLogger(__name__)


def sampler_for(config: GpuMetricsConfig, ranks: Ranks) -> GpuSampler | NoSampler:
    """The GPU sampler of this rank.

    Rank 0 samples the GPUs of all ranks on its machine; the others sample nothing. Raises
    ValueError, on every rank, for gpu_metrics.enabled=true if GPUs cannot be sampled.
    """
    if config.enabled == "false":
        return NoSampler("off: gpu_metrics.enabled=false")
    why_not = why_no_nvml(ranks.device)
    if why_not is None:
        try:
            gpus = open_gpus(uuids_of(ranks))
        except pynvml.NVMLError as error:
            why_not = f"NVIDIA's management library does not answer: {error}"
    if why_not:
        if config.enabled == "true":
            raise ValueError(f"gpu_metrics.enabled=true: {why_not}; use gpu_metrics.enabled=auto")
        level = logging.DEBUG if ranks.device.type == "cpu" else logging.INFO
        log.log(
            level, "gpu_metrics: off, so power, clocks and activity are not recorded: %s", why_not
        )
        return NoSampler(f"off: {why_not}")
    if ranks.rank != 0:
        pynvml.nvmlShutdown()
        return NoSampler("off: rank 0 samples")
    complete = len(gpus) == ranks.world_size
    if not complete:
        log.warning(
            "gpu_metrics: of the GPUs of %d ranks only the %d on this machine are sampled, so "
            "the energy of the run is not known",
            ranks.world_size,
            len(gpus),
        )
    return GpuSampler(gpus, config.interval_ms, complete)


def why_no_nvml(device: torch.device) -> str | None:
    """The reason why NVML cannot be used on this device, or None if it can."""
    if device.type != "cuda":
        return f"this run is on {device.type}"
    return "this is an AMD GPU" if torch.version.hip else None


def uuids_of(ranks: Ranks) -> list[str]:
    """UUIDs of the GPUs that this machine's ranks use, in the order of the ranks."""
    local = ranks_here(ranks.world_size) or 1
    devices = [ranks.device] if local == 1 else [torch.device("cuda", i) for i in range(local)]
    return [str(torch.cuda.get_device_properties(device).uuid) for device in devices]


def open_gpus(uuids: list[str]) -> list[Gpu]:
    """Opens GPUs in NVML. Raises NVMLError if there is no NVML, or it does not know one of them."""
    pynvml.nvmlInit()
    return [Gpu(uuid) for uuid in uuids]
