"""Losses of both splits, in evaluation mode, without a host synchronisation per batch."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from configs.training import TrainingConfig
from data.batches import Batches
from model import GPT
from profiling.capture import dynamo
from training.distributed import Ranks
from training.step import autocast


@torch.no_grad()
def evaluate(
    model: GPT, train: Batches, val: Batches, iteration: int, config: TrainingConfig, ranks: Ranks
) -> dict[str, float]:
    """Mean loss of the validation split, and of as much of the training split.

    eval_iters=0: exact over the validation split, over a fixed sample of the training split of the
    same size. Otherwise the mean of eval_iters random batches each, as nanoGPT estimates it.
    """
    model.eval()
    with uncompiled(model), autocast(config.dtype, ranks.device):
        if config.eval_iters:
            number = iteration // config.eval_interval
            val_batches = random_batches(val, number, config, ranks)
            train_batches = random_batches(train, number, config, ranks)
        else:
            val_batches = val.cover()
            train_batches = train.cover(limit=val.sequence_count)
        both = (val_batches, train_batches)
        losses = torch.stack([mean_loss(model, batches, ranks) for batches in both])
    model.train()
    val_loss, train_loss = losses.tolist()  # the one synchronisation
    return {"val/loss": val_loss, "eval/train_loss": train_loss}


def mean_loss(model: GPT, batches: Iterator[tuple[Tensor, Tensor]], ranks: Ranks) -> Tensor:
    """Mean over every counted target of every rank's batches."""
    totals = torch.zeros(2, device=ranks.device, dtype=torch.float64)  # sum of losses, targets
    if ranks.device.type == "mps":
        totals = totals.float()  # Metal has no float64
    for x, y in batches:
        _, loss = model(x, y)
        counted = (y != -1).sum()
        totals += torch.stack([loss * counted, counted])
    total, count = ranks.sum(totals)
    return total / count


def random_batches(
    batches: Batches, number: int, config: TrainingConfig, ranks: Ranks
) -> Iterator[tuple[Tensor, Tensor]]:
    """eval_iters batches, dealt to the ranks, from behind those that training will ever draw."""
    share = -(-config.eval_iters // ranks.world_size)
    first = config.max_iters + 1 + number * share
    return (batches.draw(iteration, 0) for iteration in range(first, first + share))


def uncompiled(model: GPT) -> AbstractContextManager[object]:
    """Evaluation is a sliver of the run: compiling the model a second time for it does not pay.

    FlexAttention alone stays compiled, because it is only fused when it is.
    """
    if model.config.attention == "flex":
        return nullcontext()
    return dynamo.eager()
