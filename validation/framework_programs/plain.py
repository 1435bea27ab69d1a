"""Programs of PyTorch alone, without ranges."""

import json
import random
import threading
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import (
    DEVICE,
    encoder,
    regression_step,
    residual_mlp,
)


def plain_blocks(fault: bool, mark: Mark) -> None:
    """Transformer layers whose launches return behind their kernels: CUDA_LAUNCH_BLOCKING=1."""
    width = size(768, 64)
    x = torch.randn(32, size(256, 4), width, device=DEVICE)
    repeat(regression_step(encoder(width, size(6, 1)), x, x), mark)


class ResidualConvolutions(nn.Module):
    """Residual blocks of two convolutions with batch norms."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                nn.BatchNorm2d(channels),
            )
            for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = F.relu(x + block(x))
        return x


def plain_channels_first(fault: bool, mark: Mark) -> None:
    """Convolutions in bfloat16 on NCHW, which cuDNN transposes; without the fault channels_last."""
    channels, layout = size(128, 8), torch.contiguous_format if fault else torch.channels_last
    model = ResidualConvolutions(channels, size(8, 1)).to(memory_format=layout)  # type: ignore[call-overload]
    x = torch.randn(size(64, 2), channels, size(56, 8), size(56, 8), device=DEVICE)
    x = x.to(memory_format=layout)
    repeat(regression_step(model, x, x), mark)


def plain_second_thread(fault: bool, mark: Mark) -> None:
    """A thread formats telemetry in Python again and again, and holds the interpreter's lock."""
    values = {str(i): random.random() for i in range(12_000)}

    def format_telemetry() -> None:
        while True:
            json.dumps(values, indent=1)  # with an indent, the encoder is Python
            time.sleep(0.005)

    if fault:
        threading.Thread(target=format_telemetry, daemon=True).start()
    width = size(2048, 64)
    x = torch.randn(width, width, device=DEVICE)
    repeat(regression_step(residual_mlp(width, size(16, 2)), x, x), mark)


class Gridworld:
    """A walker on a grid in Python, seen as the squares around it."""

    def __init__(self) -> None:
        self.walls = {(random.randrange(32), random.randrange(32)) for _ in range(200)}
        self.place = (0, 0)

    def advance(self, action: int) -> list[float]:
        dx, dy = ((0, 1), (1, 0), (0, -1), (-1, 0))[action]
        x, y = (self.place[0] + dx) % 32, (self.place[1] + dy) % 32
        if (x, y) not in self.walls:
            self.place = (x, y)
        near = [(self.place[0] + i, self.place[1] + j) for i in range(-4, 4) for j in range(-4, 4)]
        return [float(square in self.walls) for square in near]


def plain_gridworld(fault: bool, mark: Mark) -> None:
    """A policy whose 512 worlds advance in Python between updates; without it, seen ones."""
    worlds = [Gridworld() for _ in range(size(512, 8))]
    width = size(1024, 64)
    policy = nn.Sequential(nn.Linear(64, width), residual_mlp(width, size(8, 1))).to(DEVICE)
    head = nn.Linear(width, 4).to(DEVICE)
    optimizer = torch.optim.Adam([*policy.parameters(), *head.parameters()])

    def observe() -> Tensor:
        actions = random.choices(range(4), k=len(worlds))
        seen = [world.advance(a) for world, a in zip(worlds, actions, strict=True)]
        return torch.tensor(seen, device=DEVICE)

    known = observe()

    def step() -> None:
        seen = observe() if fault else known
        chances = head(policy(seen.repeat(size(8, 1), 1))).log_softmax(-1)
        loss = -(chances * chances.exp()).sum(-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    repeat(step, mark)


def plain_control(fault: bool, mark: Mark) -> None:
    """Transformer layers on a resident batch."""
    width = size(1024, 64)
    x = torch.randn(16, size(1024, 4), width, device=DEVICE)
    repeat(regression_step(encoder(width, size(8, 1)), x, x), mark)
