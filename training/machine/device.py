"""Decides what `auto` means on this machine: device, dtype, CUDA graphs, scope of compilation.

Called by train.py and sample.py before the first tensor is made. Other decisions are made where
they are carried out: data.batches decides how tokens are stored, model.attention_in_force which
attention kernel runs, and training.machine.parallel how ranks share the run.
"""

from copy import copy

import torch

from configs.backends import BACKENDS
from configs.model import ModelConfig
from configs.schema import Config
from configs.sharing import SHARDED
from training.machine.kernel_choice import decide_compile, decide_kernels
from training.machine.parallel import (
    AUTO,
    Decision,
    decide_all_reduce,
    decide_parallel,
    decide_shard_update,
)

SWITCHES = ("compile", "shard_update")  # keys that are decided as "true" or "false"


def resolve_device(device: str, local_rank: int = 0, world_size: int = 1) -> torch.device:
    """The device of this rank. Raises ValueError naming `device` if it is not available."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == AUTO:
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
        mine = f"{world_size} ranks" if world_size > 1 else f"LOCAL_RANK={local_rank}"
        wanted = f"device={device}" if index else mine
        raise ValueError(f"{wanted}: this machine has cuda:0 to cuda:{gpus - 1}")
    return torch.device("cuda", number)


def resolve_dtype(dtype: str, device: torch.device) -> str:
    """The dtype that is used: for auto bfloat16 or float16 on a GPU and float32 elsewhere.

    Raises ValueError naming `dtype` if the device does not have it.
    """
    return decide_dtype(dtype, device).value


def decide_dtype(dtype: str, device: torch.device) -> Decision:
    on_cuda = device.type == "cuda"
    bfloat16 = on_cuda and torch.cuda.get_device_capability(device) >= (8, 0)
    if dtype == "float16" and not on_cuda:
        raise ValueError(
            f"dtype=float16: needs a CUDA GPU; on {device.type} use float32 or bfloat16"
        )
    if dtype == "bfloat16" and on_cuda and not bfloat16:
        name = torch.cuda.get_device_name(device)
        raise ValueError(f"dtype=bfloat16: {name} has no bfloat16 units; use dtype=float16")
    if dtype != AUTO:
        return Decision(dtype)
    if not on_cuda:
        return Decision(
            "float32", f"16-bit types are used only on CUDA GPUs, and this run is on {device.type}"
        )
    if bfloat16:
        return Decision("bfloat16", "this GPU has units for it")
    return Decision("float16", "this GPU has no bfloat16 units")


def graphs_obstacle(config: Config, device: torch.device, dtype: str) -> str | None:
    """Property of this run that rules out CUDA graphs, in words, or None."""
    if device.type != "cuda":
        return f"device={device.type}"
    if dtype == "float16":
        return "float16's loss scaler"
    if config.parallel in SHARDED:
        return f"parallel={config.parallel}"
    if config.activation_checkpointing != "none":
        return f"activation_checkpointing={config.activation_checkpointing}"
    if config.profile.shows_layers:
        return "profile.detail=layers"
    return None


def decide_cuda_graphs(
    config: Config, obstacle: str | None, kernels: str, compiled: bool
) -> Decision:
    if config.cuda_graphs == "true" and obstacle:
        raise ValueError(f"cuda_graphs=true: not with {obstacle}; use cuda_graphs=auto")
    if config.cuda_graphs != AUTO:
        return Decision(config.cuda_graphs)
    if obstacle:
        return Decision("false", f"not with {obstacle}")
    if compiled:
        return Decision("true", "compiled, on CUDA")
    if kernels == "fused":
        return Decision("true", "kernels=fused, on CUDA")
    return Decision("false", "not with compile=false")


def decide(config: Config, device: torch.device, world_size: int) -> dict[str, Decision]:
    """Decides each key that can be `auto` on `device`, by key. Raises ValueError naming a key."""
    # without the GPU's number: a resumed run may have other GPUs, or several ranks
    kind = device.type if config.device == AUTO else config.device
    dtype = decide_dtype(config.dtype, device)
    parallel = decide_parallel(config, world_size)
    obstacle = graphs_obstacle(config, device, dtype.value)
    without_graphs = "cuda_graphs=false" if config.cuda_graphs == "false" else obstacle
    kernels = decide_kernels(config, device, dtype.value, without_graphs)
    compiled = decide_compile(config, kernels.value, without_graphs)
    graphs = decide_cuda_graphs(config, obstacle, kernels.value, compiled.value == "true")
    decisions = {
        "device": Decision(kind, "the fastest kind of device that PyTorch finds here"),
        "dtype": dtype,
        "parallel": parallel,
        "all_reduce": decide_all_reduce(config, device, world_size),
        "kernels": kernels,
        "compile": compiled,
        "cuda_graphs": graphs,
        "compile_scope": decide_compile_scope(config, graphs.value, world_size),
    }
    decided = with_values(config, decisions)
    return decisions | {"shard_update": decide_shard_update(decided, device, world_size)}


def decide_compile_scope(config: Config, cuda_graphs: str, world_size: int) -> Decision:
    if config.compile_scope != AUTO:
        return Decision(config.compile_scope)
    if config.parallel in SHARDED:
        return Decision("block", "gathered block by block")
    if cuda_graphs == "true":
        return Decision("block", "starts sooner; CUDA graphs already save the launches")
    if world_size > 1:
        return Decision("block", "its gradients are averaged while the next block's are computed")
    return Decision("model", "fewer launches")


def reasons(asked: Config, device: torch.device, world_size: int = 1) -> dict[str, str]:
    """The reason for the value that `resolve` gives, for each key that was left at `auto`."""
    decisions = decide(asked, device, world_size)
    open_keys = (key for key in decisions if getattr(asked, key) in (AUTO, None))
    return {key: decisions[key].reason for key in open_keys}


def resolve(config: Config, device: torch.device, world_size: int = 1) -> Config:
    """A copy of the configuration with every `auto` replaced by its value on this machine."""
    return with_values(config, decide(config, device, world_size))


def with_values(config: Config, decisions: dict[str, Decision]) -> Config:
    """A copy of the configuration with the values that were decided."""
    resolved = copy(config)
    for key, decision in decisions.items():
        value = decision.value == "true" if key in SWITCHES else decision.value
        setattr(resolved, key, value)
    return resolved


def check_residual(config: ModelConfig, dtype: str) -> None:
    """Raises ValueError for a bfloat16 residual stream without dtype=bfloat16.

    Neither autocast nor our kernels mix the two: float16 and bfloat16 together give float32.
    """
    if config.residual_dtype == "bfloat16" and dtype != "bfloat16":
        raise ValueError(
            f"residual_dtype=bfloat16: needs dtype=bfloat16, but this run has dtype={dtype}; use "
            "residual_dtype=float32"
        )


def check_attention(config: ModelConfig, device: torch.device, dtype: str) -> None:
    """Raises ValueError for a backend that is known not to exist here.

    `training.step.attention_proof` tries the others for real.
    """
    backend = BACKENDS.get(config.attention)
    if device.type != "cuda" and backend and backend.cuda_only:
        raise ValueError(
            f"attention={backend.name}: runs only on CUDA, but this run is on {device.type}; use "
            "slow, math, flash or auto"
        )
    in_float32 = device.type == "cuda" and dtype == "float32"
    if in_float32 and backend and not backend.float32_on_cuda:
        raise ValueError(
            f"attention={backend.name}: its CUDA kernels do not support float32; use "
            "dtype=bfloat16, or attention=efficient"
        )
