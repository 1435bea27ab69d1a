"""Programs of PyTorch alone whose host asks, launches, computes or allocates too much."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import (
    DEVICE,
    encoder,
    residual_mlp,
    training_step,
)


def plain_confuses_pair_by_pair(fault: bool, mark: Mark) -> None:
    """Adds answers to a matrix of confusions in a loop over pairs; without it by bincount.

    To index by a number of the GPU, the host reads it: four times for each of 256 pairs.
    """
    width, classes = size(512, 8), size(100, 4)
    model = nn.Sequential(residual_mlp(width, size(4, 1)), nn.Linear(width, classes)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    x = torch.randn(size(256, 4), width, device=DEVICE)
    names = torch.randint(0, classes, (len(x),), device=DEVICE)
    confusions = torch.zeros(classes, classes, dtype=torch.long, device=DEVICE)

    def loss() -> Tensor:
        chances = model(x)
        answers = chances.argmax(1)
        if fault:
            for name, answer in zip(names, answers, strict=True):
                confusions[name, answer] += 1
        else:
            counts = torch.bincount(names * classes + answers, minlength=classes**2)
            confusions.add_(counts.view(classes, classes))
        return F.cross_entropy(chances, names)

    repeat(training_step(optimizer, loss), mark)


def plain_cuts_patches_one_by_one(fault: bool, mark: Mark) -> None:
    """Cuts eight pictures into 196 patches each by three loops; without the fault by a view.

    A patch is two small copies.
    """
    count, patch, width = size(14, 2), size(16, 4), size(384, 64)
    pictures = torch.randn(size(8, 2), 3, count * patch, count * patch, device=DEVICE)
    embed, layers = nn.Linear(3 * patch * patch, width), encoder(width, size(4, 1))
    model = nn.Sequential(embed, layers).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def cut() -> Tensor:
        if not fault:
            grid = pictures.view(len(pictures), 3, count, patch, count, patch)
            return grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        patches = torch.empty(len(pictures), count * count, 3 * patch * patch, device=DEVICE)
        for number, picture in enumerate(pictures):
            for row in range(count):
                for column in range(count):
                    top, left = row * patch, column * patch
                    part = picture[:, top : top + patch, left : left + patch]
                    patches[number, row * count + column] = part.flatten()
        return patches

    repeat(training_step(optimizer, lambda: model(cut()).square().mean()), mark)


def plain_discounts_in_lists(fault: bool, mark: Mark) -> None:
    """Sums rewards of 512 times in 256 worlds in lists of Python; without it by a product."""
    times, worlds, width = size(512, 8), size(256, 4), size(256, 8)
    decay = 0.99
    seen = torch.randn(worlds, width, device=DEVICE)
    rewards = torch.rand(times, worlds, device=DEVICE)
    later = torch.arange(times, device=DEVICE) - torch.arange(times, device=DEVICE)[:, None]
    discounts = torch.where(later >= 0, decay**later, 0.0)
    critic = nn.Sequential(residual_mlp(width, size(4, 1)), nn.Linear(width, times)).to(DEVICE)
    optimizer = torch.optim.AdamW(critic.parameters(), 1e-4, fused=True)

    def returns() -> Tensor:
        if not fault:
            return discounts @ rewards
        sums, rows = [0.0] * worlds, []
        for row in reversed(rewards.tolist()):
            sums = [reward + decay * rest for reward, rest in zip(row, sums, strict=True)]
            rows.append(sums)
        return torch.tensor(rows[::-1], device=DEVICE)

    repeat(training_step(optimizer, lambda: F.mse_loss(critic(seen), returns().mT)), mark)


def plain_stream_of_each_step(fault: bool, mark: Mark) -> None:
    """Trains each step on a new stream, in 24 GB of the GPU; without the fault on one.

    What is cached for a stream serves no other: the steps of seven streams fill the memory, then
    all of it goes back to the driver.
    """
    width = size(512, 16)
    model = residual_mlp(width, size(12, 1)).to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    x = torch.randn(size(65_536, 8), width, device=DEVICE, dtype=torch.bfloat16)
    train = training_step(optimizer, lambda: model(x).float().square().mean())
    if DEVICE == "cpu":
        return repeat(train, mark)
    _, total_bytes = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(24e9 / total_bytes)
    train()  # the optimizer's state stays, and is in no step's stream
    one = torch.cuda.Stream()

    def train_on_stream() -> None:
        stream = torch.cuda.Stream() if fault else one
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            train()
        torch.cuda.current_stream().wait_stream(stream)

    repeat(train_on_stream, mark)
