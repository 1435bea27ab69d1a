"""Settles what `auto` means on this machine: device, dtype, CUDA graphs, scope of compilation.

Called by train.py and sample.py before the first tensor is made.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from configs.data import DataConfig
from configs.model import ModelConfig
from configs.training import TrainingConfig

FUSED_ON_CUDA_ONLY = ("efficient", "cudnn")


def resolve_device(device: str, local_rank: int = 0, world_size: int = 1) -> torch.device:
    """The device of this rank. Raises ValueError naming `device` when it is not to be had."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        device = "cuda" if gpus else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, index = device.partition(":")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ValueError("device=mps: this PyTorch has no Metal backend here; use device=cpu")
    if kind != "cuda":
        return torch.device(kind)
    if not gpus:
        raise ValueError(
            f"device={device}: PyTorch sees no GPU here; use device=cpu or device=auto"
        )
    if index and world_size > 1:
        raise ValueError(f"device={device}: each rank takes its own GPU; use device=cuda")
    number = int(index or local_rank)
    if number >= gpus:
        wanted = f"device={device}" if index else f"{world_size} ranks"
        raise ValueError(f"{wanted}: this machine has cuda:0 to cuda:{gpus - 1}")
    return torch.device("cuda", number)


def resolve_dtype(dtype: str, device: torch.device) -> str:
    """auto becomes bfloat16 or float16 on a GPU and float32 elsewhere."""
    bfloat16 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if dtype == "auto":
        return (
            {True: "bfloat16", False: "float16"}[bfloat16] if device.type == "cuda" else "float32"
        )
    if dtype == "float16" and device.type != "cuda":
        raise ValueError(
            f"dtype=float16: needs a CUDA GPU; on {device.type} use float32 or bfloat16"
        )
    if dtype == "bfloat16" and device.type == "cuda" and not bfloat16:
        name = torch.cuda.get_device_name(device)
        raise ValueError(f"dtype=bfloat16: {name} has no bfloat16 units; use dtype=float16")
    return dtype


def check_attention(config: ModelConfig, device: torch.device, dtype: str) -> None:
    """Refuses what is known not to exist; `training.attention` tries the rest for real."""
    if device.type != "cuda" and config.attention in FUSED_ON_CUDA_ONLY:
        raise ValueError(
            f"attention={config.attention}: exists on CUDA only, this run is on {device.type}; "
            "use slow, math, flash or auto"
        )
    if device.type == "cuda" and dtype == "float32" and config.attention in ("flash", "cudnn"):
        raise ValueError(
            f"attention={config.attention}: its CUDA kernels have no float32; "
            "use dtype=bfloat16, or attention=efficient"
        )


def resolve(config: TrainingConfig, device: torch.device) -> TrainingConfig:
    """A copy of the configuration in which every `auto` has become what it means here."""
    dtype = resolve_dtype(config.dtype, device)
    graphs_possible = device.type == "cuda" and dtype != "float16"
    if config.cuda_graphs == "true" and not graphs_possible:
        reason = "float16's loss scaler" if device.type == "cuda" else f"device={device.type}"
        raise ValueError(f"cuda_graphs=true: not with {reason}; use cuda_graphs=auto")
    graphs = config.cuda_graphs == "true" or (
        config.cuda_graphs == "auto" and config.compile and graphs_possible
    )
    scope = config.compile_scope
    if scope == "auto":
        scope = "block" if graphs else "model"
    return dataclasses.replace(
        config,
        device=str(device),
        dtype=dtype,
        cuda_graphs=str(graphs).lower(),
        compile_scope=scope,
    )


@contextmanager
def explained_out_of_memory(config: DataConfig) -> Iterator[None]:
    """Turns the allocator's error into a ValueError that names the key to change."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        what = str(error).partition(" GPU ")[0]
        raise ValueError(
            f"batch_size={config.batch_size}: does not fit into the GPU's memory ({what}); take a "
            "smaller one with more gradient_accumulation_steps; profile=memory shows what fills it"
        ) from error
