"""Programs of PyTorch alone: the host is late, copies, waits or allocates, and one control."""

import random
import tempfile
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import (
    DEVICE,
    Made,
    bfloats,
    encoder,
    endless,
    regression_step,
    residual_mlp,
    training_step,
)


def plain_table_rows(fault: bool, mark: Mark) -> None:
    """The loop's own process reads a mapped file row by row; without the fault batch by batch.

    Thousands of small Python calls make each batch while the GPU has nothing to do.
    """
    batch, columns, width = size(8192, 64), size(64, 2), size(2048, 64)
    with tempfile.TemporaryFile() as file:
        made = Made(lambda index: torch.from_numpy(np.asarray(table[index])))
        table = np.memmap(file, "float32", "w+", shape=(len(made), columns))
        table[:] = 1
        loader = DataLoader(made, batch)
        if not fault:
            slices = BatchSampler(SequentialSampler(made), batch, drop_last=True)
            loader = DataLoader(made, batch_size=None, sampler=slices)
        model = nn.Sequential(nn.Linear(columns, width), residual_mlp(width, size(6, 1)))
        optimizer = torch.optim.AdamW(model.to(DEVICE).parameters(), 1e-4)
        batches = endless(loader)

        def loss() -> Tensor:
            with torch.autocast(DEVICE, torch.bfloat16):
                out: Tensor = model(next(batches).to(DEVICE))
            return out.float().square().mean()

        repeat(training_step(optimizer, loss), mark)


def plain_replay(fault: bool, mark: Mark) -> None:
    """A deep Q network whose replay buffer is a list of tuples; without the fault of tensors.

    Python draws the tuples and NumPy joins thousands of small arrays before each update.
    """
    count, batch, width = size(100_000, 200), size(8192, 16), size(512, 32)
    seen = np.random.rand(count, 64).astype("float32")
    buffer = [(seen[i], i % 4, float(i % 2), seen[i - 1]) for i in range(count)]
    resident = torch.from_numpy(seen).to(DEVICE)
    number = torch.arange(count, device=DEVICE)
    network, target = (
        nn.Sequential(nn.Linear(64, width), residual_mlp(width, 2), nn.Linear(width, 4)).to(DEVICE)
        for _ in range(2)
    )
    optimizer = torch.optim.Adam(network.parameters(), 1e-4)

    def from_tuples() -> list[Tensor]:
        columns = zip(*random.sample(buffer, batch), strict=True)
        return [torch.from_numpy(np.array(column)).to(DEVICE) for column in columns]

    def from_tensors() -> list[Tensor]:
        at = torch.randint(1, count, (batch,), device=DEVICE)
        return [resident[at], number[at] % 4, number[at] % 2, resident[at - 1]]

    def loss() -> Tensor:
        state, action, reward, following = from_tuples() if fault else from_tensors()
        with torch.no_grad():
            goal = (reward + 0.99 * target(following).amax(-1)).float()
        return F.smooth_l1_loss(network(state).gather(1, action[:, None])[:, 0], goal)

    repeat(training_step(optimizer, loss), mark)


def plain_experts(fault: bool, mark: Mark) -> None:
    """Picks each expert's tokens by `nonzero`; without the fault in sorted shares of one size.

    `nonzero` has to know how many there are: the host waits for the GPU, which then waits for it.
    """
    width, experts = size(1024, 16), size(64, 4)
    rises = bfloats(size(6, 1), experts, width, 2 * width) * width**-0.5
    falls = bfloats(size(6, 1), experts, 2 * width, width) * width**-0.5
    tokens = bfloats(size(65_536, 64), width)
    choice = torch.randint(0, experts, (len(tokens),), device=DEVICE)

    def step() -> None:
        x = tokens
        for rise, fall in zip(rises, falls, strict=True):
            shares = choice.argsort().chunk(experts)
            out = torch.empty_like(x)
            for expert in range(experts):
                rows = (choice == expert).nonzero()[:, 0] if fault else shares[expert]
                out[rows] = F.gelu(x[rows] @ rise[expert]) @ fall[expert]
            x = F.layer_norm(x + out, (width,))

    with torch.no_grad():
        repeat(step, mark)


def plain_saves_on_cpu(fault: bool, mark: Mark) -> None:
    """Keeps what the backward pass needs on the host, where the GPU has room for all of it.

    Each tensor goes to pageable memory and comes back, and nothing else runs meanwhile.
    """
    width = size(1024, 64)
    x = torch.randn(4, size(256, 4), width, device=DEVICE)
    step = regression_step(encoder(width, size(2, 1)), x, x)

    def saving() -> None:
        with torch.autograd.graph.save_on_cpu() if fault else nullcontext():
            step()

    repeat(saving, mark)


def plain_no_caching(fault: bool, mark: Mark) -> None:
    """Transformer layers under PYTORCH_NO_CUDA_MEMORY_CACHING=1, left over from a search for a bug.

    Each tensor is a cudaMalloc and a cudaFree, and the latter waits for the GPU.
    """
    width = size(768, 64)
    x = torch.randn(16, size(256, 4), width, device=DEVICE)
    repeat(regression_step(encoder(width, size(4, 1)), x, x), mark)


def plain_physics(fault: bool, mark: Mark) -> None:
    """A small network learns a wave equation; its many kernels are shorter than their launches."""
    width = 64
    layers = [nn.Linear(2, width), nn.Tanh()]
    for _ in range(4):
        layers += [nn.Linear(width, width), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(width, 1)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def loss() -> Tensor:
        points = torch.rand(1_000, 2, device=DEVICE, requires_grad=True)
        u = model(points)
        (first,) = torch.autograd.grad(u.sum(), points, create_graph=True)
        in_x, in_t = (
            torch.autograd.grad(first[:, axis].sum(), points, create_graph=True)[0][:, axis]
            for axis in range(2)
        )
        return (in_t - in_x).square().mean()

    repeat(training_step(optimizer, loss), mark)
