"""Losses of both splits, in evaluation mode, without a host synchronisation per batch."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, repeat

import torch
from torch import Tensor

from configs.schema import Config
from configs.sharing import SHARDED
from data.batches import Batches
from model import GPT
from profiling.recording import dynamo
from training.ranks.distributed import Ranks
from training.step.scoring import Scoring
from training.step.step import autocast

SAMPLED = 8  # evaluated validation sequences for each training sequence
# measured: 2 to 8 MB are equally fast; one sequence at a time takes 3 times as long
CACHED_BYTES = 4 << 20
LOGITS_BYTES = 64 << 20
FLOAT_BYTES = 4


@torch.no_grad()
def evaluate(
    scoring: Scoring, train: Batches, val: Batches, iteration: int, config: Config, ranks: Ranks
) -> dict[str, float]:
    """Mean loss of the validation split and of a part of the training split, by metric name.

    With eval_iters=0 it is exact over the validation split; of the training split it is over a
    fixed sample, of an eighth of the validation split's size. Otherwise it is the mean over
    eval_iters random batches of each split, as in nanoGPT.
    """
    model = scoring.model
    model.eval()
    size = evaluation_batch_size(config, ranks.device, model.lm_head.out_features)
    with uncompiled(model), autocast(config.dtype, ranks.device):
        if config.eval_iters:
            count = config.eval_iters * config.batch_size
            both = [batches.sample(iteration, count, size) for batches in (val, train)]
        else:
            limit = -(-val.sequence_count // SAMPLED)
            both = [val.cover(batch_size=size), train.cover(limit, size)]
        if config.parallel in SHARDED:
            both = [pad_batches(batches, size, config, ranks) for batches in both]
        losses = torch.stack([mean_loss(scoring, batches, ranks) for batches in both])
    model.train()
    val_loss, train_loss = losses.tolist()  # the one synchronisation
    return {"val/loss": val_loss, "eval/train_loss": train_loss}


def evaluation_batch_size(config: Config, device: torch.device, vocab_size: int = 1) -> int:
    """Number of sequences that each rank evaluates at once.

    On a CPU it is small enough to keep the activations of an MLP in the caches, and the logits,
    which GPT-2's vocabulary makes far wider, within 64 MB. On a GPU it is that of a training batch:
    those fit, and FlexAttention is compiled for no other number. Raises ValueError naming
    eval_batch_size.
    """
    fixed = device.type != "cpu" and config.attention == "flex"
    if fixed and config.eval_batch_size not in (None, config.batch_size):
        raise ValueError(
            f"eval_batch_size={config.eval_batch_size}: attention=flex is compiled for "
            f"batch_size={config.batch_size}; leave it at null"
        )
    if config.eval_batch_size:
        return config.eval_batch_size
    if device.type != "cpu":
        return config.batch_size
    float_bytes = config.block_size * FLOAT_BYTES
    cached = CACHED_BYTES // (float_bytes * 4 * config.n_embd)
    return max(1, min(cached, LOGITS_BYTES // (float_bytes * vocab_size)))


def mean_loss(scoring: Scoring, batches: Iterator[tuple[Tensor, Tensor]], ranks: Ranks) -> Tensor:
    """Mean loss over all counted targets in the batches of all ranks, a scalar."""
    scoring.begin()
    for x, y in batches:
        scoring.add(x, y)
    total, count = ranks.sum(scoring.totals).unbind()
    return total / count


def pad_batches(
    batches: Iterator[tuple[Tensor, Tensor]], size: int, config: Config, ranks: Ranks
) -> Iterator[tuple[Tensor, Tensor]]:
    """Extends each rank's batches to the same number, with batches that have no target.

    A forward pass gathers weights from all ranks, so all ranks need as many forward passes.
    """
    mine = list(batches)
    most = max(int(count) for count in ranks.gather(torch.tensor(len(mine))))
    x = torch.zeros(size, config.block_size, dtype=torch.int64, device=ranks.device)
    return chain(mine, repeat((x, x - 1), most - len(mine)))


def uncompiled(model: GPT) -> AbstractContextManager[object]:
    """Context manager in which the model runs without torch.compile.

    Evaluation is a small part of the run, so compiling the model a second time for it does not pay.
    FlexAttention stays compiled, because it is fused only then.
    """
    if model.config.attention == "flex":
        return nullcontext()
    return dynamo.force_eager()
