"""Steps of a tiny model on one rank, and batches for them."""

import torch

from kernels.fused_model import make_model
from training.optimizers.kinds import make_optimizer
from training.ranks.distributed import Ranks
from training.step.step import Step

RANKS = Ranks(0, 1, torch.device("cpu"))
VOCAB = 13


def make_step(config, **keys) -> Step:
    tiny = config(**keys)
    torch.manual_seed(0)
    model = make_model(tiny, VOCAB)
    return Step(model, make_optimizer(model, tiny, RANKS.device), tiny, RANKS)


def batch(size: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.randint(VOCAB, (2, size, 32), generator=torch.Generator().manual_seed(seed))
    return x, y


def iterate(step: Step, x: torch.Tensor, y: torch.Tensor, lr: float = 1e-3) -> list[float]:
    """Run an iteration over equal shares of a batch. Returns the undivided loss of each."""
    losses = []
    for micro_x, micro_y in zip(x.chunk(step.micro_steps), y.chunk(step.micro_steps), strict=True):
        share = step.forward(micro_x, micro_y)
        losses.append(share.item() * step.micro_steps)
        step.backward(share)
    step.average_gradients()
    step.update(lr)
    return losses
