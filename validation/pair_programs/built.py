"""Programs of PyTorch alone, built from what a step does; a plain change replaces one part of it.

A try on the CPU has small sizes, and neither CUDA graphs nor compiled models.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from validation.foreign_programs.parts import Step, graph_of
from validation.framework_programs.parts import size
from validation.framework_programs.plain import ResidualConvolutions
from validation.framework_programs.torch_parts import DEVICE, Made, residual_mlp

VOCAB, HEAD = size(8192, 64), 64  # words; channels of a head
ON_GPU = DEVICE == "cuda"


@dataclass(frozen=True)
class Parts:
    """Parts of a step: what it does."""

    model: Literal["encoder", "convolutions", "perceptron"]
    width: int  # or channels
    layers: int
    batch: int
    length: int = 1  # words of a text, edge of an image
    autocast: bool = False  # bfloat16
    tf32: bool = True
    doubles: bool = False
    optimizer: Literal["looped", "foreach", "fused"] = "foreach"
    written_out_attention: bool = False
    one_hot_loss: bool = False
    checkpointing: bool = False
    channels_last: bool = False
    graphs: bool = False
    compiled: bool = False
    reads_loss: bool = False  # .item() after each step
    checks_layers: bool = False  # an assertion behind each linear layer
    empties_cache: bool = False
    scratch: int = 0  # tensors of 4 MB, taken from the cache after each step
    sent: bool = False  # a kept batch from the host; without and without workers it is resident
    workers: int | None = None  # of a loader; 0: the main process makes the batches
    batch_ms: float = 0.0  # what the loader computes for a batch
    pinned: bool = False  # and copied without waiting
    pieces: int = 1  # copies in which a batch is sent
    logged: int = 0  # numbers written as JSON after each step
    evaluated: int = 0  # batches after each step, whose losses are read
    saves: bool = False  # the weights, after each step


# plain change -> the parts with it
CHANGES: dict[str, Callable[[Parts], Parts]] = {
    "graphs": lambda parts: replace(parts, graphs=True),
    "compiled": lambda parts: replace(parts, compiled=True),
    "bf16": lambda parts: replace(parts, autocast=True),
    "tf32": lambda parts: replace(parts, tf32=True),
    "no_doubles": lambda parts: replace(parts, doubles=False),
    "fused_optimizer": lambda parts: replace(parts, optimizer="fused"),
    "flash": lambda parts: replace(parts, written_out_attention=False),
    "fused_loss": lambda parts: replace(parts, one_hot_loss=False),
    "no_checkpointing": lambda parts: replace(parts, checkpointing=False),
    "channels_last": lambda parts: replace(parts, channels_last=True),
    "no_item": lambda parts: replace(parts, reads_loss=False),
    "no_checks": lambda parts: replace(parts, checks_layers=False),
    "no_empty_cache": lambda parts: replace(parts, empties_cache=False),
    "no_scratch": lambda parts: replace(parts, scratch=0),
    "workers": lambda parts: replace(parts, workers=8),
    "pinned": lambda parts: replace(parts, pinned=True),
    "one_copy": lambda parts: replace(parts, pieces=1),
    "no_log": lambda parts: replace(parts, logged=0),
    "no_eval": lambda parts: replace(parts, evaluated=0),
    "no_save": lambda parts: replace(parts, saves=False),
    "larger_batch": lambda parts: replace(parts, batch=4 * parts.batch),
}
WORK = {"larger_batch": 4.0}  # of a step with the change, in steps without


class Layer(nn.Module):
    """Transformer layer with causal attention, written out or as PyTorch chooses."""

    def __init__(self, width: int, written_out: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.written_out = written_out

    def forward(self, x: Tensor) -> Tensor:
        split = self.qkv(self.norms[0](x)).unflatten(-1, (3, -1, HEAD))  # (B, T, 3, heads, HEAD)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        out: Tensor = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return out

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not self.written_out:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = q @ k.mT / HEAD**0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        weights: Tensor = scores.masked_fill(future, float("-inf")).softmax(-1)
        return weights @ v


class Encoder(nn.Module):
    """Texts (B, T) to scores of words (B, T, VOCAB)."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCAB, parts.width), nn.Linear(parts.width, VOCAB)
        written_out, layers = parts.written_out_attention, range(parts.layers)
        self.layers = nn.ModuleList(Layer(parts.width, written_out) for _ in layers)
        self.checkpointing = parts.checkpointing

    def forward(self, words: Tensor) -> Tensor:
        x = self.embedding(words)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointing else layer(x)
        out: Tensor = self.head(x)
        return out


def make_model(parts: Parts) -> nn.Module:
    if parts.model == "encoder":
        return Encoder(parts)
    if parts.model == "convolutions":
        return ResidualConvolutions(parts.width, parts.layers)
    return residual_mlp(parts.width, parts.layers)


def make_batch(parts: Parts) -> Tensor:
    """A batch on the host, which is its own target."""
    if parts.model == "encoder":
        return torch.randint(0, VOCAB, (parts.batch, parts.length))
    shape = (parts.width, parts.length, parts.length) if parts.model == "convolutions" else ()
    batch = torch.randn(parts.batch, *(shape or (parts.width,)))
    return batch.double() if parts.doubles else batch


def loss_function(parts: Parts, model: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def loss_of(x: Tensor) -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=parts.autocast):
            out = model(x)
            if parts.model != "encoder":
                return F.mse_loss(out.to(x.dtype), x)
            if not parts.one_hot_loss:
                return F.cross_entropy(out.flatten(0, 1), x.flatten())
            targets = F.one_hot(x, VOCAB).float()
            return -(targets * out.float().log_softmax(-1)).sum(-1).mean()

    return loss_of


def batches_of(parts: Parts) -> Iterator[Tensor]:
    """Batches without end: resident, from the host, or from a loader."""
    ready = make_batch(parts)

    def make(_: int) -> Tensor:
        end = time.perf_counter() + parts.batch_ms / 1000
        while time.perf_counter() < end:
            pass
        return ready

    if parts.workers is not None:
        pinned = parts.pinned and ON_GPU
        loader: DataLoader[Tensor] = DataLoader(
            Made(make), batch_size=None, num_workers=parts.workers, pin_memory=pinned
        )
        while True:
            yield from loader
    kept = ready if parts.sent else ready.to(DEVICE)
    if parts.sent and parts.pinned and ON_GPU:
        kept = kept.pin_memory()
    while True:
        yield kept


def send(batch: Tensor, parts: Parts) -> Tensor:
    if parts.pieces == 1:
        return batch.to(DEVICE, non_blocking=parts.pinned)
    pieces = batch.tensor_split(parts.pieces)
    return torch.cat([piece.to(DEVICE, non_blocking=parts.pinned) for piece in pieces])


def graphed(train: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[Tensor], Tensor]:
    """The training of a batch as one CUDA graph, into whose input batches are copied."""
    place, losses = x.clone(), list[Tensor]()
    graph = graph_of(lambda: losses.append(train(place)), training=True)

    def replay(batch: Tensor) -> Tensor:
        place.copy_(batch)
        graph.replay()
        return losses[-1]

    return replay


def check(module: nn.Module, inputs: object, output: Tensor) -> None:
    assert torch.isfinite(output).all(), module


def build(parts: Parts) -> Step:
    """The program's step."""
    parts = parts if ON_GPU else shrink(parts)
    torch.set_float32_matmul_precision("high" if parts.tf32 else "highest")
    model = make_model(parts).to(DEVICE, torch.float64 if parts.doubles else torch.float32)
    if parts.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if parts.checks_layers:
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(check)
    loss_of = loss_function(parts, torch.compile(model) if parts.compiled else model)
    foreach, fused = (parts.optimizer == way for way in ("foreach", "fused"))
    optimizer = AdamW(model.parameters(), 1e-4, foreach=foreach, fused=fused, capturable=ON_GPU)

    def train(x: Tensor) -> Tensor:
        loss = loss_of(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    batches = batches_of(parts)
    known = send(next(batches), parts)
    return with_rest(parts, batches, graphed(train, known) if parts.graphs else train, model)


def with_rest(
    parts: Parts, batches: Iterator[Tensor], train: Callable[[Tensor], Tensor], model: nn.Module
) -> Step:
    """Step that loads a batch, trains, and does what comes after an update."""
    folder, values = TemporaryDirectory(prefix="built-"), [random.random()] * parts.logged
    loss_of, known = loss_function(parts, model), make_batch(parts).to(DEVICE)

    def step() -> None:
        loss = train(send(next(batches), parts))
        if parts.reads_loss:
            loss.item()
        for _ in range(parts.evaluated):
            with torch.no_grad():
                loss_of(known).item()
        for _ in range(parts.scratch):
            torch.empty(1 << 20, device=DEVICE)
        if parts.logged:
            json.dumps(values)
        if parts.saves:
            torch.save(model.state_dict(), Path(folder.name, "weights.pt"))
        if parts.empties_cache:
            torch.cuda.empty_cache()

    return step


def shrink(parts: Parts) -> Parts:
    """Sizes for the CPU."""
    small = replace(parts, width=8 if parts.model == "convolutions" else HEAD, layers=1, batch=2)
    small = replace(small, length=min(parts.length, 8), batch_ms=min(parts.batch_ms, 1.0))
    return replace(small, graphs=False, compiled=False, workers=parts.workers and 1)
