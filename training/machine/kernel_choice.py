"""Decides kernels=auto and compile=null: whose kernels run, and what is left to torch.compile.

speed=reference and speed=compiled decide both. With speed=fast, the default, this project's own
kernels run wherever they were tested and measured: on such a GPU, with such a Triton version, dtype
and width. Then the compiler runs only for work that they leave to it. Called by
training.machine.device.
"""

import torch

from configs.backends import leaves_work_to_the_compiler
from configs.optimizers import OPTIMIZERS
from configs.schema import Config
from configs.sharing import SHARDED
from kernels.gluon import HOPPER, is_proved, triton_version
from training.machine.parallel import AUTO, Decision

WIDEST = 1600  # n_embd of GPT-2 XL, the widest model that trained with them
DTYPE = "bfloat16"


def decide_kernels(
    config: Config, device: torch.device, dtype: str, graphs_obstacle: str | None
) -> Decision:
    """Decides `kernels`: for auto fused if there is no obstacle.

    `graphs_obstacle` says why there are no CUDA graphs; None if there are.
    """
    if config.kernels != AUTO:
        return Decision(config.kernels)
    if config.speed != "fast":
        return Decision("compiled", f"speed={config.speed}")
    if device.type != "cuda":
        return Decision("compiled", "this project's own kernels run only on CUDA GPUs")
    if OPTIMIZERS[config.optimizer].fused is None:
        return Decision("compiled", f"optimizer={config.optimizer} has no form with kernels=fused")
    if obstacle := obstacle_on_gpu(config, device, dtype, graphs_obstacle):
        return Decision(
            "compiled", f"{obstacle}; try this project's own kernels with kernels=fused"
        )
    return Decision("fused", f"proved on this GPU in {dtype} with Triton {triton_version()}")


def obstacle_on_gpu(
    config: Config, device: torch.device, dtype: str, graphs_obstacle: str | None
) -> str | None:
    """Property of this run that our kernels were not proved with, in words, or None."""
    if config.parallel in SHARDED:
        return f"not with parallel={config.parallel}"
    if torch.cuda.get_device_capability(device) != HOPPER:
        return f"our own kernels were not tested on {torch.cuda.get_device_name(device)}"
    triton = triton_version()
    if not is_proved(triton):
        with_what = f"Triton {triton}" if triton else "no Triton"
        return f"our own kernels were not tested with {with_what}"
    if dtype != DTYPE:
        return f"our own kernels were tested only in {DTYPE}, and this run uses {dtype}"
    if config.n_embd > WIDEST:
        return f"our own kernels were not tested with n_embd={config.n_embd}, above {WIDEST}"
    if graphs_obstacle:
        return f"without CUDA graphs, which do not work with {graphs_obstacle}"
    return None


def decide_compile(config: Config, kernels: str, graphs_obstacle: str | None) -> Decision:
    """Decides `compile`, as "true" or "false".

    A run that has nothing to compile does not even import the compiler.
    """
    if config.compile is not None:
        return Decision(str(config.compile).lower())
    if config.profile.shows_layers:
        return Decision("false", "profile.detail=layers shows each layer by itself")
    if config.speed != "fast":
        return Decision(str(config.speed == "compiled").lower(), f"speed={config.speed}")
    if kernels != "fused" or graphs_obstacle:
        return Decision("true", "it fuses kernels that PyTorch would launch one by one")
    if work := leaves_work_to_the_compiler(config.attention, config.activation):
        return Decision("true", f"kernels=fused leaves {work} to it")
    return Decision("false", "kernels=fused leaves nothing to compile")
