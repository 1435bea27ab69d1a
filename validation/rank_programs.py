"""Programs of several ranks that are not ours, with a fault in one rank that goes on and off.

    torchrun --nproc-per-node=2 -m validation.rank_programs NAME SOCKET

`python -m validation foreign_ranks` starts them. Each rank answers commands, lines that come by the
socket; each but `end` names the fault that the late rank has from then on and how much of it, and
goes on as validation.framework_programs.session has it:

    FAULT AMOUNT time STEPS SETTLE
    FAULT AMOUNT nsys STEPS
    FAULT AMOUNT torch STEPS FILE     with {rank} in the file's name
    end

A step ends with the optimizer's. It is an NVTX range, `iteration N`, as of the hook of `run`.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from validation.framework_programs.parts import size
from validation.framework_programs.session import Finished, Session, device_of
from validation.framework_programs.torch_parts import DEVICE, Made, encoder, endless

LATE = 1  # the rank with the fault
NANOGPT = "NANOGPT"  # variable of the environment: a folder with its files, and data/made
ROWS = [{"step": number, "loss": number / 7, "tags": ["a", "b"]} for number in range(40)]
BATCH, LENGTH, VOCABULARY = size(8, 2), size(1024, 16), size(50_304, 100)
# in a try on the CPU, which nanoGPT's ranks cannot use
ON_CPU = (
    ("f'cuda:{ddp_local_rank}'", "'cpu'"),
    ("torch.cuda.set_device(device)", "pass"),
    ("device_ids=[ddp_local_rank]", "device_ids=None"),
)


class Planted:
    """The fault that this rank has at present: `products`, `loader` or `host`, or another word for
    none."""

    def __init__(self) -> None:
        self.rank = int(os.environ["RANK"])
        self.name, self.amount = "none", 0.0
        self.matrix: Tensor | None = None

    def follow(self, lines: Iterable[str]) -> Iterator[str]:
        """The session's commands, each once its fault is there."""
        for line in lines:
            name, _, rest = line.strip().partition(" ")
            amount, _, command = rest.partition(" ")
            if not command:
                return
            self.name, self.amount = name if self.rank == LATE else "none", float(amount)
            yield command.replace("{rank}", str(self.rank))

    def load(self, share: float = 1) -> None:
        """Called where a share of a batch is read: wait so many milliseconds of a slow disk."""
        if self.name == "loader":
            time.sleep(share * self.amount / 1000)

    def before_update(self, *_: object) -> None:
        if self.name == "products":
            if self.matrix is None:
                width, dtype = size(4096, 256), size(torch.bfloat16, torch.float32)
                self.matrix = torch.randn(width, width, device=DEVICE, dtype=dtype)
            for _number in range(round(self.amount)):
                torch.mm(self.matrix, self.matrix)
        if self.name == "host":
            end_s = time.perf_counter() + self.amount / 1000
            while time.perf_counter() < end_s:
                json.dumps(ROWS, indent=1)  # with an indent, the encoder is Python


def nanogpt(planted: Planted) -> None:
    """nanoGPT's train.py as it is, 124M; it opens its file for each batch."""
    folder = Path(os.environ[NANOGPT])
    os.chdir(folder)
    sys.path.insert(0, str(folder))  # before this project, which has a model.py too
    keys = {
        "dataset": "made",
        "batch_size": BATCH,
        "block_size": LENGTH,
        "gradient_accumulation_steps": os.environ["WORLD_SIZE"],
        "compile": False,
        "eval_interval": 10**9,
        "eval_iters": 1,
        "log_interval": 10,
        "max_iters": 10**9,
    }
    keys |= size({}, {"n_layer": 1, "n_head": 2, "n_embd": 32, "dtype": "float32"})
    keys |= size({}, {"backend": "gloo"})
    sys.argv = ["train.py", *(f"--{key}={value}" for key, value in keys.items())]
    open_file: Callable[..., Any] = np.memmap

    def slowly(*arguments: object, **more: object) -> object:
        planted.load()
        return open_file(*arguments, **more)

    np.memmap = slowly  # type: ignore[assignment, misc]
    text = Path("train.py").read_text(encoding="utf-8")
    for theirs, on_cpu in size((), ON_CPU):
        text = text.replace(theirs, on_cpu)
    exec(compile(text, str(folder / "train.py"), "exec"), {"__name__": "__main__"})


def words_loader(planted: Planted, batch: int, length: int, vocabulary: int) -> DataLoader[Any]:
    """Batches of `input_ids` and `labels`, in this process."""
    words = torch.randint(0, vocabulary, (length,))

    def read(_: int) -> dict[str, Tensor]:
        planted.load(1 / batch)
        return {"input_ids": words, "labels": words}

    return DataLoader(Made(read), batch, pin_memory=DEVICE == "cuda")


def accelerate(planted: Planted) -> None:
    """A GPT-2 of transformers, in a loop whose objects accelerate prepares."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from accelerate import Accelerator
    from transformers import GPT2Config, GPT2LMHeadModel

    accelerator = Accelerator(mixed_precision=size("bf16", "no"), cpu=size(False, True))
    sizes = {"n_layer": size(12, 1), "n_head": size(12, 2), "n_embd": size(768, 32)}
    made: Any = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, **sizes))
    adam = torch.optim.AdamW(made.parameters(), 1e-4)
    model, optimizer, loader = accelerator.prepare(
        made, adam, words_loader(planted, BATCH, LENGTH, VOCABULARY)
    )
    for batch in endless(loader):
        accelerator.backward(model(**batch).loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def fsdp(planted: Planted, compiled: bool = False) -> None:
    """Layers that FSDP2 shards, each gathered for its forward and again for its backward."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dist.init_process_group(size("nccl", "gloo"))
    width, vocabulary = size(1024, 64), size(8192, 100)
    blocks = encoder(width, size(12, 2))
    model = nn.Sequential(nn.Embedding(vocabulary, width), blocks, nn.Linear(width, vocabulary))
    model.to(DEVICE)
    policy = MixedPrecisionPolicy(size(torch.bfloat16, torch.float32), torch.float32)
    layers: Any = blocks.layers
    for number, layer in enumerate(layers):
        layers[number] = torch.compile(layer) if compiled else layer
        fully_shard(layers[number], mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    loader = words_loader(planted, size(32, 2), size(512, 16), vocabulary)
    for batch in endless(loader):
        words, labels = (batch[name].to(DEVICE, non_blocking=True) for name in batch)
        F.cross_entropy(model(words).flatten(0, 1).float(), labels.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def fsdp_compiled(planted: Planted) -> None:
    """The same, each layer compiled."""
    fsdp(planted, compiled=True)


PROGRAMS: dict[str, Callable[[Planted], None]] = {
    program.__name__: program for program in (nanogpt, accelerate, fsdp, fsdp_compiled)
}


def mark_steps(planted: Planted, session: Session) -> None:
    """Let each step of an optimizer begin with the fault, and end a step of the session."""
    count, on_gpu = 0, torch.cuda.is_available()

    def after_update(*_: object) -> None:
        nonlocal count
        if on_gpu and count:
            torch.cuda.nvtx.range_pop()
        session.mark()
        count += 1
        if on_gpu:
            torch.cuda.nvtx.range_push(f"iteration {count}")

    register_optimizer_step_pre_hook(planted.before_update)
    register_optimizer_step_post_hook(after_update)


def serve(words: list[str]) -> None:
    name, address = words
    torch.manual_seed(0)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    planted = Planted()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        lines = connection.makefile("rw")
        session = Session(
            device_of("torch.profiler"),
            planted.follow(lines),
            lambda line: print(line, file=lines, flush=True),
        )
        mark_steps(planted, session)
        try:
            PROGRAMS[name](planted)
        except Finished:
            dist.destroy_process_group()


if __name__ == "__main__":
    serve(sys.argv[1:])
