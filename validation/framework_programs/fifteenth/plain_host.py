"""Programs of PyTorch alone whose host asks, writes, copies or allocates too much."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import Tensor

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, residual_mlp, training_step


def plain_keeps_numbers_in_dictionary(fault: bool, mark: Mark) -> None:
    """Keeps how hard each of 1,024 samples was in a dictionary; without the fault in a tensor.

    The values are numbers of the GPU, and torch.tensor of a list of them reads each.
    """
    width, batch = size(512, 8), size(1024, 4)
    x = torch.randn(batch, width, device=DEVICE)
    samples = torch.arange(batch, device=DEVICE)
    numbers = range(batch)
    model = residual_mlp(width, size(4, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    by_number = dict(zip(numbers, torch.ones(batch, device=DEVICE), strict=True))
    by_sample = torch.ones(batch, device=DEVICE)

    def loss() -> Tensor:
        if fault:
            hard = torch.tensor([by_number[number] for number in numbers], device=DEVICE)
        else:
            hard = by_sample[samples]
        errors: Tensor = model(x).square().mean(1)
        if fault:
            by_number.update(zip(numbers, errors.detach(), strict=True))
        else:
            by_sample[samples] = errors.detach()
        return (errors * hard.softmax(0)).sum()

    repeat(training_step(optimizer, loss), mark)


def plain_writes_whole_history(fault: bool, mark: Mark) -> None:
    """Writes all of a run's history by json.dump after each step; without it a line more.

    The run was resumed behind 3,000 steps, of eight numbers each.
    """
    width = size(512, 8)
    x = torch.randn(size(1024, 4), width, device=DEVICE)
    model = residual_mlp(width, size(4, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    names = "loss", "error", "bound", "speed", "rate", "decay", "momentum"
    history = [
        {"step": step, **{name: step / 7 for name in names}} for step in range(size(3000, 4))
    ]

    with TemporaryDirectory(prefix="history-") as folder:
        file = Path(folder, "history.json")

        def step() -> None:
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            row = {"step": len(history), **dict.fromkeys(names, loss.item())}
            history.append(row)
            with open(file, "w" if fault else "a") as opened:
                json.dump(history if fault else row, opened)

        repeat(step, mark)


def plain_swaps_reference(fault: bool, mark: Mark) -> None:
    """Moves the policy's reference to the GPU for each step, and home; without it it stays.

    It is 17 million float32 weights.
    """
    width = size(1024, 8)
    seen = torch.randn(size(1024, 4), width, device=DEVICE)
    policy, reference = (residual_mlp(width, size(8, 1)) for _ in range(2))
    policy.to(DEVICE)
    reference.requires_grad_(False).to("cpu" if fault else DEVICE)
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-5, fused=True)

    def wanted() -> Tensor:
        if fault:
            reference.to(DEVICE)
        logits: Tensor = reference(seen)
        if fault:
            reference.to("cpu")
        return logits.log_softmax(1)

    def divergence() -> Tensor:
        chances = policy(seen).log_softmax(1)
        return F.kl_div(chances, wanted(), log_target=True, reduction="batchmean")

    repeat(training_step(optimizer, divergence), mark)


def plain_tries_whole_batch_first(fault: bool, mark: Mark) -> None:
    """Tries 65,536 rows in 2.7 GB of the GPU, then two halves; without the fault halves at once.

    The forward pass fills the memory until it fails, and all of it goes back to the driver.
    """
    width, rows = size(512, 16), size(65_536, 8)
    if DEVICE == "cuda":
        _, total_bytes = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction(2.7e9 / total_bytes)
    model = residual_mlp(width, size(12, 1)).to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    x = torch.randn(rows, width, device=DEVICE, dtype=torch.bfloat16)
    parts_first = 1 if fault else 2

    def backward(parts: int) -> None:
        for part in x.chunk(parts):
            loss: Tensor = model(part).float().square().mean() / parts
            loss.backward()

    def fits(parts: int) -> bool:
        try:
            backward(parts)
        except torch.OutOfMemoryError:
            return False
        return True

    def step() -> None:
        parts = parts_first
        while not fits(parts):
            optimizer.zero_grad()
            torch.cuda.empty_cache()
            parts *= 2
        optimizer.step()
        optimizer.zero_grad()

    repeat(step, mark)
