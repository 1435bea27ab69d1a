"""Programs whose memory is known beforehand, started by `python -m validation memory_judged`.

    python -m validation.memory_programs NAME FOLDER

Runs one of them in this process with the allocator's history from the first allocation on, and
writes its snapshot and what is true of it to FOLDER. A line that is planted ends in a comment that
says so, by which it is found. On a CPU there is no history, and only the program is tried.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cli.files import write_text
from profiling.shared.json_records import to_json
from validation.framework_programs.parts import size

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS = 6
MIB = 1 << 20
NANOGPT = "NANOGPT"  # variable of the environment: a checkout of it


@dataclass(frozen=True)
class Known:
    """Facts about a program's memory that are known beforehand."""

    answer: str  # of the report
    kind: str | None  # the one with the most bytes at the peak; None: any
    planted: str | None  # mark of the line that the report must name first; None: none is planted


@dataclass(frozen=True)
class Truth:
    """Facts about a snapshot."""

    program: str
    answer: str
    kind: str | None
    planted: str | None  # FILE:LINE
    peak_bytes: int | None  # torch.cuda.max_memory_allocated(); None: without a GPU
    torch: str
    device: str


@dataclass(frozen=True)
class Program:
    """A program: its packages, and what is set in its environment."""

    run: Callable[[], Known]
    packages: str = ""
    environ: tuple[tuple[str, str], ...] = ()


class Attention(nn.Module):
    """Attention that keeps its scores, which are most of the memory."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.all = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.all(x).chunk(3, -1)
        weights = torch.softmax(q @ k.transpose(1, 2) / q.size(-1) ** 0.5, -1)  # planted: scores
        out: Tensor = self.out(weights @ v)
        return out


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        out: Tensor = x + self.mlp(self.norm(x))
        return out


def blocks(width: int, count: int) -> nn.Module:
    return nn.Sequential(*(Block(width) for _ in range(count))).to(DEVICE)


def long_text() -> Tensor:
    return torch.randn(1, size(8192, 8), size(256, 8), device=DEVICE)


def train(model: nn.Module, x: Tensor, steps: int = STEPS) -> Iterator[Tensor]:
    """Train the model to give its input back; yield its output behind each step."""
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        out = model(x)
        (out - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield out.detach()


def transformers() -> Known:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": size(6, 1), "n_head": 12, "n_embd": size(768, 48)}
    model: Any = GPT2LMHeadModel(GPT2Config(vocab_size=size(50_257, 100), **sizes)).to(DEVICE)
    words = torch.randint(0, size(50_257, 100), (size(8, 1), size(512, 16)), device=DEVICE)
    fit(model, lambda: model(words, labels=words).loss)  # planted: language model
    return Known("peak", "activations", "language model")


def vision() -> Known:
    from torchvision.models import resnet50

    model = resnet50().to(DEVICE)
    edge = size(224, 64)
    x = torch.randn(size(64, 2), 3, edge, edge, device=DEVICE)
    y = torch.zeros(len(x), dtype=torch.long, device=DEVICE)
    fit(model, lambda: F.cross_entropy(model(x), y))  # planted: convolutions
    return Known("peak", "activations", "convolutions")


def fit(model: nn.Module, loss: Callable[[], Tensor]) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()


def nanogpt() -> Known:
    sys.path.insert(0, os.environ[NANOGPT])  # before this project, which has a model.py too
    theirs: Any = import_module("model")
    make = theirs.GPT

    sizes = {"n_layer": size(12, 1), "n_head": 12, "n_embd": size(768, 48)}
    config = theirs.GPTConfig(block_size=size(1024, 16), vocab_size=size(50_304, 100), **sizes)
    model = make(config).to(DEVICE)
    words = torch.randint(0, config.vocab_size, (size(8, 1), config.block_size), device=DEVICE)
    optimizer = model.configure_optimizers(0.1, 1e-4, (0.9, 0.95), DEVICE)
    for _ in range(STEPS):
        model(words, words)[1].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return Known("peak", "activations", None)


def out_of_memory() -> Known:
    """Runs out of memory in the third step, and goes on."""
    if DEVICE == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((2 << 30) / total)
    model, x = blocks(size(256, 8), 2), torch.randn(8, size(512, 8), size(256, 8), device=DEVICE)
    for step, _ in enumerate(train(model, x, 4)):
        if step == 2 and DEVICE == "cuda":
            try:
                torch.empty(3 << 30, dtype=torch.uint8, device=DEVICE)  # planted: too much
            except torch.OutOfMemoryError:
                return Known("out_of_memory", None, "too much")
    return Known("peak", None, None)


def leak() -> Known:
    """Keeps a copy of each step's output."""
    model, kept = blocks(size(256, 8), 2), []
    for out in train(model, torch.randn(8, size(512, 8), size(256, 8), device=DEVICE)):
        kept.append(out.clone())  # planted: leak
    return Known("leak", None, "leak")


def kept_activations() -> Known:
    """Keeps the loss of each batch with its graph, and all that forward kept for backward."""
    model = blocks(size(256, 8), 2)
    losses, optimizer = [], torch.optim.SGD(model.parameters())
    for _ in range(STEPS):
        x = long_text()
        losses.append((model(x) - x).square().mean())
        losses[-1].backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()
    return Known("leak", "activations", "scores")


def fragmentation() -> Known:
    """Leaves a small tensor amid each of many segments, and then asks for a large one."""
    kept, fillers = [], []
    for _ in range(size(40, 2)):  # segments of 20 MiB
        fillers.append(torch.empty(9 * MIB, dtype=torch.uint8, device=DEVICE))
        kept.append(torch.empty(2 * MIB, dtype=torch.uint8, device=DEVICE))  # planted: amid
        fillers.append(torch.empty(9 * MIB, dtype=torch.uint8, device=DEVICE))
    fillers.clear()
    torch.empty(size(256, 1) * MIB, dtype=torch.uint8, device=DEVICE)
    return Known("fragmented", None, "amid")


def fsdp() -> Known:
    """Shards over one rank; most are the optimizer's two moments of each weight."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    backend = "nccl" if DEVICE == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    model = blocks(size(1024, 8), 8)
    for block in model.children():
        fully_shard(block)
    fully_shard(model)
    for _ in train(model, torch.randn(1, size(64, 8), size(1024, 8), device=DEVICE)):
        pass
    dist.destroy_process_group()
    return Known("peak", "moments", None)


def compiled() -> Known:
    model = torch.compile(blocks(size(256, 8), 2))
    for _ in train(model, long_text()):  # type: ignore[arg-type]
        pass
    return Known("peak", "activations", None)


def expandable() -> Known:
    """Has as many scores in backward as forward keeps, so that either kind may be the most."""
    model = blocks(size(256, 8), 2)
    for _ in train(model, long_text()):
        pass
    return Known("peak", None, "scores")


PROGRAMS = {
    "transformers": Program(transformers, "transformers"),
    "vision": Program(vision, "torchvision"),
    "nanogpt": Program(nanogpt),
    "out_of_memory": Program(out_of_memory),
    "leak": Program(leak),
    "fragmentation": Program(fragmentation),
    "fsdp": Program(fsdp),
    "compiled": Program(compiled),
    "expandable": Program(
        expandable, environ=(("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),)
    ),
    "kept_activations": Program(kept_activations),
}


def planted_line(mark: str) -> str:
    """FILE:LINE of the line of this file that ends in the mark."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = (n for n, line in enumerate(lines, 1) if line.endswith(f"# planted: {mark}"))
    return f"{Path(__file__).name}:{number}"


def record(words: list[str]) -> None:
    name, folder = words[0], Path(words[1])
    torch.manual_seed(0)
    on_gpu = DEVICE == "cuda"
    if on_gpu:
        torch.cuda.memory._record_memory_history(stacks="python")
    known = PROGRAMS[name].run()
    peak_bytes = torch.cuda.max_memory_allocated() if on_gpu else None
    if on_gpu:
        torch.cuda.memory._dump_snapshot(str(folder / f"{name}.pickle"))
    truth = Truth(
        name,
        known.answer,
        known.kind,
        planted_line(known.planted) if known.planted else None,
        peak_bytes,
        str(torch.__version__),
        torch.cuda.get_device_name() if on_gpu else "cpu",
    )
    write_text(folder / f"{name}.json", to_json(truth))


if __name__ == "__main__":
    record(sys.argv[1:])
