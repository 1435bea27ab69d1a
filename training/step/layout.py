"""Layout of a model on the ranks of a run: whole on one, whole on each, or a share on each.

training.machine.parallel decides which; training.step.step.Step computes with the layout that is
made here.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from configs.schema import Config
from configs.sharing import SHARDED
from kernels.embedding import MOST_IDS
from model import GPT
from training.machine.parallel import rows_travel
from training.optimizers.shared_update import SharedUpdate
from training.ranks.distributed import Ranks
from training.ranks.embedding_rows import EmbeddingRows
from training.step.activation_checkpointing import recompute_activations
from training.step.compilation import compile_model
from training.step.replicas import Replicas


class Layout(Protocol):
    """Interface to the ways in which ranks share a run."""

    model: Callable[..., tuple[Tensor, Tensor]]  # x, y -> logits, loss
    waits_at_end: bool  # whether a wait for gradients follows backward

    @property
    def shared(self) -> SharedUpdate | None:
        """The update that ranks share while each has the whole model, or None without one."""

    def begin_micro_step(self, last: bool) -> None:
        """Prepares a micro-step; after the `last` of an iteration the ranks average gradients."""

    def wait_for_gradients(self) -> None:
        """Waits until the gradients are averaged, if `waits_at_end`."""

    def in_stream(self) -> AbstractContextManager[None]:
        """Runs a block in the stream of the capture: all micro-steps up to the captured one."""


class Alone:
    """Layout of a run with one rank."""

    waits_at_end, shared = False, None

    def __init__(self, model: Callable[..., tuple[Tensor, Tensor]]):
        self.model = model

    def begin_micro_step(self, last: bool) -> None:
        pass

    def wait_for_gradients(self) -> None:
        pass

    def in_stream(self) -> AbstractContextManager[None]:
        return nullcontext()


def make_layout(model: GPT, config: Config, ranks: Ranks) -> Layout:
    """Lays the model out on the ranks, compiled and with activations recomputed if asked for.

    Blocks are compiled before they are shared, so that gathering and sending stays out of compiled
    code. With fsdp and hsdp this replaces the parameters of `model`: make the optimizer afterwards.
    """
    recompute_activations(model, config.activation_checkpointing)
    forward = compile_model(model, config)
    if ranks.world_size == 1:
        return Alone(forward)
    if config.parallel in SHARDED:
        from training.step.shards import Shards  # DTensor takes a second to import

        return Shards(model, config, ranks)
    return Replicas(forward, config, ranks, rows_of(model, config, ranks))


def rows_of(model: GPT, config: Config, ranks: Ranks) -> EmbeddingRows | None:
    """The exchange of the embedding's gradient by rows, or None if it is dense."""
    embedding = model.transformer.wte
    by_kernels = config.kernels == "fused" and embedding.num_embeddings <= MOST_IDS
    if by_kernels or not rows_travel(config, ranks.world_size, embedding.num_embeddings):
        return None
    # without dropout a row's gradient is one of the residual stream, with no more digits than that
    exact = config.residual_dtype if config.dropout == 0 else "float32"
    return EmbeddingRows(embedding, ranks.world_size, getattr(torch, exact))
