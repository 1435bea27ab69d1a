"""Makes the optimizer of a configuration, by its row in configs.optimizers."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from configs.optimizers import OPTIMIZERS
from configs.schema import Config
from kernels.linear import Linear
from training.optimizers.optimizer import AdamW, ClippedAdamW
from training.optimizers.shared_update import SharedAdamW, SharedUpdate


def class_of(name: str) -> Any:
    """The class `name` of a row of configs.optimizers."""
    module, _, name = name.partition(":")
    return getattr(import_module(f"{__package__}.{module}"), name)


def check_optimizer(config: Config) -> None:
    """Raises ValueError for an optimizer that does not support `kernels` or `dtype`."""
    row = OPTIMIZERS[config.optimizer]
    if config.kernels == "fused" and row.fused is None:
        raise ValueError(
            f"optimizer={row.name}: does not support kernels=fused; use kernels=compiled"
        )
    if config.dtype == "float16" and not row.loss_scaler:
        raise ValueError(
            f"optimizer={row.name}: does not work with dtype=float16, whose loss scaler supports "
            "only AdamW; use dtype=bfloat16, dtype=float32 or optimizer=adamw"
        )


def make_optimizer(
    model: nn.Module, config: Config, device: torch.device, shared: SharedUpdate | None = None
) -> AdamW:
    """The optimizer that `config` names, in the form that its kernels ask for, for `model`.

    Matrices and embeddings decay, biases and norms do not. PyTorch's fused kernel is used where it
    exists. On CUDA the learning rate is a tensor, so that a captured graph reads its current value.
    With kernels=fused the optimizer clips, too, and keeps the 16-bit copies that the model's
    products read. With `shared` it updates this rank's part of the weights alone. Raises ValueError
    as `check_optimizer` does.
    """
    check_optimizer(config)
    row = OPTIMIZERS[config.optimizer]
    plain: type[AdamW] = class_of(row.plain)
    *decaying, others = plain.groups(model)
    groups = [
        *({"params": group, "weight_decay": config.weight_decay} for group in decaying),
        {"params": others, "weight_decay": 0.0},
    ]
    lr, betas = torch.tensor(config.learning_rate, device=device), (config.beta1, config.beta2)
    if config.kernels == "fused":
        assert row.fused is not None  # checked above
        copies = keep_copies(model, config.dtype)
        if shared is not None:
            return SharedAdamW(groups, copies, config.grad_clip, lr, betas, shared)
        fused: type[ClippedAdamW] = class_of(row.fused)
        return fused(groups, copies, config.grad_clip, lr, betas)
    on_cuda = device.type == "cuda"
    return plain(
        groups,
        config.grad_clip,
        lr=lr if on_cuda else config.learning_rate,
        betas=betas,
        fused=device.type in ("cuda", "cpu"),
        capturable=on_cuda,
    )


def keep_copies(model: nn.Module, dtype: str) -> dict[Tensor, Tensor]:
    """Copies in `dtype` of the weights that products read, by weight; empty for float32."""
    if dtype == "float32":
        return {}
    layers = [module for module in model.modules() if isinstance(module, Linear)]
    return {layer.weight: layer.keep_copy(getattr(torch, dtype)) for layer in layers}
