"""One program with its memory recorded from the first allocation on. Started by memory_fit.

    python -m validation.recorded_memory KIND BATCH CONTEXT SNAPSHOT JSON [KEY=VALUE ...]

Writes PyTorch's snapshot and what `torch.cuda` says of the peak. Without a GPU there is no
snapshot, and sizes are small.
"""

import pickle
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from cli.files import write_text
from profiling.shared.json_records import to_json

STEPS = 3
MOST_EVENTS = 2_000_000
VOCABULARY = 50257
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"


@dataclass(frozen=True)
class Tried:
    """Bytes of a program as `torch.cuda` counts them; None without a GPU."""

    gpu: str | None
    memory_bytes: int | None  # of the GPU
    peak_bytes: int | None  # max_memory_allocated
    reserved_bytes: int | None  # max_memory_reserved


class PlainAdamW(torch.optim.Optimizer):
    """AdamW whose moments may be of another type than the weights."""

    def __init__(self, parameters: Iterable[Tensor], dtype: torch.dtype) -> None:
        super().__init__(parameters, {"dtype": dtype})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self.update(parameter, group["dtype"])

    def update(self, weight: Tensor, dtype: torch.dtype) -> None:
        if not self.state[weight]:
            self._init_group(weight, dtype)
        mean, square = self.state[weight]["mean"], self.state[weight]["square"]
        gradient = weight.grad.to(dtype) if weight.grad is not None else torch.zeros_like(mean)
        mean.lerp_(gradient, 0.1)
        square.lerp_(gradient * gradient, 0.001)
        weight.sub_(mean / (square.sqrt() + 1e-8), alpha=1e-4)

    def _init_group(self, weight: Tensor, dtype: torch.dtype) -> None:
        """Named as PyTorch's, by which a report knows moments."""
        for name in ("mean", "square"):
            self.state[weight][name] = torch.zeros_like(weight, dtype=dtype)


def train_ours(batch: int, context: int, folder: Path, keys: list[str]) -> None:
    """Train the trainer's model on one token again and again: no loss is better than the first.

    So no checkpoint is written.
    """
    data, size = folder / "tokens", VOCABULARY if ON_GPU else 65
    data.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        np.zeros(100_000, "<u2").tofile(data / f"{split}.bin")
    characters = {n: chr(n + 0x10000) for n in range(size)}
    ids = {character: n for n, character in characters.items()}
    meta = {"vocab_size": size, "itos": characters, "stoi": ids}
    (data / "meta.pkl").write_bytes(pickle.dumps(meta))
    sys.argv = ["train.py", *keys, f"batch_size={batch}", f"block_size={context}"]
    sys.argv += [f"dataset={data}", f"out_dir={folder / 'run'}", f"device={DEVICE}"]
    sys.argv += [f"max_iters={STEPS}", "learning_rate=0", "decay_lr=false", "eval_iters=1"]
    sys.argv += ["eval_interval=1000", "log_interval=1", "wandb.mode=disabled"]
    sys.argv += ["always_save_checkpoint=false"]
    from configs import command_line

    start = command_line.read()
    from train import train

    start(train, command_line.no_check)


def train_transformers(batch: int, context: int, folder: Path, keys: list[str]) -> None:
    """Train transformers' GPT-2 from its configuration."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size = {} if ON_GPU else {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 99}
    config = GPT2Config(n_positions=1024, use_cache=False, **size)
    model = GPT2LMHeadModel(config).to(DEVICE)
    ids = torch.zeros(batch, context, dtype=torch.long, device=DEVICE)
    dtype = torch.bfloat16 if "moments=bfloat16" in keys else torch.float32
    loop(model, PlainAdamW(model.parameters(), dtype), lambda: model(input_ids=ids, labels=ids)[0])


def train_torchvision(batch: int, context: int, folder: Path, keys: list[str]) -> None:
    """Train torchvision's ResNet-50 on pictures of `context` pixels a side."""
    from torchvision.models import resnet18, resnet50

    model = (resnet50 if ON_GPU else resnet18)().to(DEVICE)
    pictures = torch.zeros(batch, 3, context, context, device=DEVICE)
    classes = torch.zeros(batch, dtype=torch.long, device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    loop(model, optimizer, lambda: nn.functional.cross_entropy(model(pictures), classes))


def loop(model: nn.Module, optimizer: torch.optim.Optimizer, forward: Callable[[], Tensor]) -> None:
    model.train()
    for _ in range(STEPS):
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = forward()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


KINDS = {
    "trainer": train_ours,
    "transformers": train_transformers,
    "torchvision": train_torchvision,
}


def record(kind: str, batch: str, context: str, snapshot: str, json: str, *keys: str) -> None:
    tried = Tried(None, None, None, None)
    if ON_GPU:
        torch.cuda.memory._record_memory_history(max_entries=MOST_EVENTS, stacks="python")
    KINDS[kind](int(batch), int(context), Path(snapshot).with_suffix(""), list(keys))
    if ON_GPU:
        peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        facts = torch.cuda.get_device_properties(0)
        torch.cuda.memory._dump_snapshot(snapshot)
        tried = Tried(facts.name, facts.total_memory, peak, reserved)
    write_text(Path(json), to_json(tried))


if __name__ == "__main__":
    record(*sys.argv[1:])
