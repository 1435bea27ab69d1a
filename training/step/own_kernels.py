"""Checks kernels=fused: refuses it where our kernels cannot run, and proves that they ran."""

from contextlib import AbstractContextManager, nullcontext

import torch

from cli.errors import one_line
from configs.model import ModelConfig
from configs.schema import Config
from kernels.cross_entropy import linear_cross_entropy
from kernels.embedding import MOST_IDS, embedding_and_norm
from kernels.fused_model import FusedMLP
from kernels.gelu import gelu
from kernels.linear import product
from kernels.norm import norm_of_sum
from kernels.rotary import rotate
from kernels.triton_hash import hash_triton_meanwhile
from training.step.compile_ahead import launches_own_kernels
from training.step.step import autocast

# our kernels, by a part of their names; a training step has all of them, but for those below, and
# those of the MLP, which fused_model.FusedMLP names
NAMES = (
    "forward_embedding_triton",
    "backward_embedding_triton",
    "forward_layer_norm_of_sum_triton",
    "backward_layer_norm_of_sum_triton",
    "cross_entropy_triton",
)
EMBEDDING = NAMES[:2]  # only for a vocabulary of few ids
ROTARY = "rotary_triton"  # only with positions=rotary
TOKENS = 16  # of the trial, also its number of sequences


def check_kernels(config: ModelConfig, device: torch.device) -> None:
    """Raises ValueError for kernels=fused without CUDA; `try_kernels` runs the kernels for real."""
    if config.kernels == "fused" and device.type != "cuda":
        raise ValueError(
            f"kernels=fused: runs only on CUDA, but this run is on {device.type}; use "
            "kernels=compiled"
        )


def prepare_triton(config: Config) -> AbstractContextManager[None]:
    """Context in which a thread readies Triton for the first launch while the host does other work.

    It does nothing in a run that compiles: torch.compile does the same while it is imported.
    """
    launched = launches_own_kernels(config)
    return hash_triton_meanwhile() if launched and not config.compile else nullcontext()


def try_kernels(config: ModelConfig, device: torch.device, dtype: str, vocab_size: int) -> None:
    """Runs each of our kernels of a micro-step once, on a few tokens, with kernels=fused.

    Raises ValueError with the reason if one cannot run.
    """
    if config.kernels != "fused":
        return
    # Rows and types are as in training, so that what Triton compiles here serves there, too.
    x = torch.ones(TOKENS, config.n_embd, device=device, requires_grad=True)
    weight = torch.ones(TOKENS, config.n_embd, device=device, requires_grad=True)
    targets = torch.zeros(TOKENS, dtype=torch.int64, device=device)
    kind = getattr(torch, dtype)
    try:
        copy = weight.detach().to(kind)
        stream = x.to(getattr(torch, config.residual_dtype))
        total, h = norm_of_sum(stream, gelu(x.to(kind)), weight[0], None, config.dropout)
        loss = linear_cross_entropy(h, weight, copy, targets)
        (loss + total.mean() + product(h, weight, copy, None).float().mean()).backward()
        if config.positions == "rotary":
            turns = torch.ones(2, TOKENS, 3, 1, config.n_embd // config.n_head, device=device)
            rotate(x.detach().to(kind).repeat(1, 3)[None], turns, config.n_head)
        if vocab_size <= MOST_IDS:
            try_embedding(config, device, dtype, vocab_size)
    except (RuntimeError, ImportError, OSError) as error:
        raise ValueError(
            f"kernels=fused: does not run here: {one_line(error)}; use kernels=compiled"
        ) from error


def try_embedding(config: ModelConfig, device: torch.device, dtype: str, vocab_size: int) -> None:
    T, C = config.block_size, config.n_embd
    idx = torch.zeros(TOKENS, T, dtype=torch.int64, device=device)
    table = torch.ones(vocab_size, C, device=device, requires_grad=True)
    places = torch.ones(T, C, device=device) if config.positions == "learned" else None
    with autocast(dtype, device):
        stream = getattr(torch, config.residual_dtype)
        x, h = embedding_and_norm(idx, table, places, table[0], None, config.dropout, dtype=stream)
    (x.float().mean() + h.float().mean()).backward()


def seen_kernels(config: ModelConfig, kernels: list[str] | None, vocab_size: int) -> str | None:
    """Text that says which of our kernels ran in a captured training step; None if not fused.

    `kernels` are the names in that step, or None if they could not be read. Raises ValueError if
    one of ours is missing.
    """
    if config.kernels != "fused":
        return None
    if kernels is None:
        return "not checked: needs PyTorch 2.8 or newer"
    left, names = [], [*NAMES, *FusedMLP.own_kernels(config)]  # what PyTorch computes; our kernels
    if not FusedMLP.own_kernels(config):
        left.append("the MLP's activation")
    if vocab_size > MOST_IDS:
        left.append(f"the embedding of {vocab_size:,} ids")
        names = [name for name in names if name not in EMBEDDING]
    if config.positions == "rotary":
        names.append(ROTARY)
    missing = [name for name in names if not any(name in kernel for kernel in kernels)]
    if missing:
        raise ValueError(
            f"kernels=fused: {', '.join(missing)} did not run ({len(kernels)} kernels did)"
        )
    return "; ".join([f"{', '.join(names)} ran", *(f"{each} is PyTorch's" for each in left)])
