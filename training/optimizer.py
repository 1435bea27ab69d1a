"""AdamW in nanoGPT's two groups, and the learning rate of an iteration."""

import math
from inspect import unwrap

import torch
from torch import nn
from torch.nn import Parameter
from torch.optim import Optimizer

from configs.training import TrainingConfig


class AdamW(torch.optim.AdamW):
    """PyTorch's, but that it brings no Dynamo into a run that compiles nothing.

    PyTorch keeps these methods out of compiled code, by decorators that import Dynamo when they are
    called: seconds, in the first step. Nothing here compiles the optimizer.
    """

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))

    def state_shapes(self) -> dict[int, dict[str, torch.Size]]:
        """What `state` holds once there was a step, by the parameter's number."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        return {
            number: {"exp_avg": p.shape, "exp_avg_sq": p.shape, "step": torch.Size()}
            for number, p in enumerate(parameters)
        }

    @staticmethod
    def groups(model: nn.Module) -> tuple[list[Parameter], ...]:
        """The parameters that decay, and last those that do not: biases and norms."""
        parameters = [p for p in model.parameters() if p.requires_grad]
        return [p for p in parameters if p.dim() >= 2], [p for p in parameters if p.dim() < 2]


def adamw(
    model: nn.Module, config: TrainingConfig, device: torch.device, kind: type[AdamW] = AdamW
) -> AdamW:
    """Matrices and embeddings decay, biases and norms do not. One fused kernel where it exists.

    The learning rate is a tensor on CUDA, so that a captured graph reads the one of the moment.
    """
    *decaying, others = kind.groups(model)
    on_cuda = device.type == "cuda"
    return kind(
        [
            *({"params": group, "weight_decay": config.weight_decay} for group in decaying),
            {"params": others, "weight_decay": 0.0},
        ],
        lr=torch.tensor(config.learning_rate, device=device) if on_cuda else config.learning_rate,
        betas=(config.beta1, config.beta2),
        fused=device.type in ("cuda", "cpu"),
        capturable=on_cuda,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Without a synchronisation: on CUDA it is filled in by a kernel, in order."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


def learning_rate(iteration: int, config: TrainingConfig) -> float:
    """Linear warm-up, then a cosine or a line from learning_rate to min_lr at lr_decay_iters."""
    if not config.decay_lr:
        return config.learning_rate
    if iteration < config.warmup_iters:
        return config.learning_rate * (iteration + 1) / (config.warmup_iters + 1)
    if iteration >= config.lr_decay_iters:
        return config.min_lr
    done = (iteration - config.warmup_iters) / (config.lr_decay_iters - config.warmup_iters)
    left = 1.0 - done if config.lr_decay == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return config.min_lr + left * (config.learning_rate - config.min_lr)
