"""How a model lies on the ranks of a run: whole on one, whole on each, or a share on each.

training.parallel decides which; what is made here is what training.step.Step computes with.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from configs.schema import Config
from model import GPT
from training.activation_checkpointing import recompute_activations
from training.compilation import compile_model
from training.distributed import Ranks
from training.embedding_rows import EmbeddingRows
from training.parallel import SHARDED, rows_travel
from training.replicas import Replicas
from training.shared_update import SharedUpdate


class Layout(Protocol):
    """What differs between the ways of sharing a run."""

    model: Callable[..., tuple[Tensor, Tensor]]  # x, y -> logits, loss
    waits_at_end: bool  # gradients on their way are waited for in one place, behind backward

    @property
    def shared(self) -> SharedUpdate | None:
        """The update, where the ranks share that, and the model is whole on each."""

    def begin_micro_step(self, last: bool) -> None:
        """Behind the `last` one of an iteration its gradients are averaged over the ranks."""

    def wait_for_gradients(self) -> None:
        """Until that is done, where `waits_at_end`."""

    def in_stream(self) -> AbstractContextManager[None]:
        """Around micro-steps before the first that is captured, and that one."""

    def shares(self, tensors: list[Tensor]) -> list[Tensor]:
        """What this rank has of each of them, in the same memory."""

    def total_norm(self, norm: Tensor) -> Tensor:
        """Of this rank's shares of gradients, to that of the whole model's, on each rank."""


class Alone:
    """One rank."""

    waits_at_end, shared = False, None

    def __init__(self, model: Callable[..., tuple[Tensor, Tensor]]):
        self.model = model

    def begin_micro_step(self, last: bool) -> None:
        pass

    def wait_for_gradients(self) -> None:
        pass

    def in_stream(self) -> AbstractContextManager[None]:
        return nullcontext()

    def shares(self, tensors: list[Tensor]) -> list[Tensor]:
        return tensors

    def total_norm(self, norm: Tensor) -> Tensor:
        return norm


def make_layout(model: GPT, config: Config, ranks: Ranks) -> Layout:
    """The model, compiled and with its activations recomputed where that is asked for.

    Blocks are compiled before they are shared: what gathers and sends stays out of compiled code.
    With fsdp and hsdp the parameters of `model` are others afterwards: make the optimizer of them.
    """
    recompute_activations(model, config.activation_checkpointing)
    forward = compile_model(model, config)
    if ranks.world_size == 1:
        return Alone(forward)
    if config.parallel in SHARDED:
        from training.shards import Shards  # DTensor takes a second to import

        return Shards(model, config, ranks)
    return Replicas(forward, config, ranks, rows_of(model, config, ranks))


def rows_of(model: GPT, config: Config, ranks: Ranks) -> EmbeddingRows | None:
    """Where the ranks exchange these and not the embedding's dense gradient."""
    embedding, by_kernels = model.transformer.wte, model.transformer.embeds
    if by_kernels or not rows_travel(config, ranks.world_size, embedding.num_embeddings):
        return None
    # without dropout the gradient of a row is one of the residual stream's, and no longer
    exact = config.residual_dtype if config.dropout == 0 else "float32"
    return EmbeddingRows(embedding, ranks.world_size, getattr(torch, exact))
