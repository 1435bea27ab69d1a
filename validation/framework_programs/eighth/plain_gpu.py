"""Programs of PyTorch alone whose time is the GPU's own."""

import torch
import torch.nn.functional as F
from torch import Tensor

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, bfloats, residual_mlp


def normalised(log_weights: Tensor) -> Tensor:
    weights = (log_weights - log_weights.max()).exp()
    return weights / weights.sum()


def plain_particles(fault: bool, mark: Mark) -> None:
    """Normalises the weights of eight million particles by F.softmax; without it by a sum.

    A softmax over one row is the work of one block, and most of the GPU is idle meanwhile.
    """
    count = size(8_000_000, 1_000)
    particles, log_weights = torch.randn(2, count, device=DEVICE)
    normalise = (lambda x: F.softmax(x, 0)) if fault else normalised

    def step() -> None:
        nonlocal particles, log_weights
        for seen in range(4):
            particles = 0.9 * particles + 0.1 * torch.randn_like(particles)
            weights = normalise(log_weights - (particles - 0.1 * seen).square())
            log_weights = 0.5 * weights.add(1e-12).log()

    with torch.no_grad():
        repeat(step, mark)


def plain_unpacks(fault: bool, mark: Mark) -> None:
    """Unpacks a language model's int8 weights at each use; without the fault once, at the start.

    For a few tokens each matrix is read and written several times, and multiplied once.
    """
    width, wide = size(4096, 32), size(11_008, 64)
    shapes = [(wide, width), (width, wide)] * size(16, 1)
    packed = [torch.randint(-128, 127, s, device=DEVICE, dtype=torch.int8) for s in shapes]
    scales = [bfloats(rows, 1) * 1e-4 for rows, _ in shapes]

    def unpacked(matrix: Tensor, scale: Tensor) -> Tensor:
        return matrix.to(torch.bfloat16) * scale

    weights = list(map(unpacked, packed, scales))
    tokens = bfloats(8, width)

    def step() -> None:
        h = tokens
        for matrix, scale, weight in zip(packed, scales, weights, strict=True):
            h = F.silu(F.linear(h, unpacked(matrix, scale) if fault else weight))

    with torch.no_grad():
        repeat(step, mark)


def plain_int8(fault: bool, mark: Mark) -> None:
    """Products of large int8 matrices, each rounded for the next."""
    width, rows = size(16_384, 32), size(4096, 32)
    shape = (width, width)
    weights = [torch.randint(-8, 8, shape, device=DEVICE, dtype=torch.int8) for _ in range(4)]
    x = torch.randint(-8, 8, (rows, width), device=DEVICE, dtype=torch.int8)

    def step() -> None:
        h = x
        for weight in weights:
            h = (torch._int_mm(h, weight.t()) >> 8).clamp_(-8, 7).to(torch.int8)

    with torch.no_grad():
        repeat(step, mark)


def plain_recommender(fault: bool, mark: Mark) -> None:
    """Serves a recommender: sums 32 rows of each of 16 tables, and scores their products."""
    batch, tables, width = size(32_768, 8), 16, size(64, 8)
    rows = size(1_000_000, 50)
    with torch.device(DEVICE):
        table = torch.randn(tables, rows, width)
        chosen = torch.randint(0, rows, (tables, batch, size(32, 2)))
        score = residual_mlp(tables * tables, 1)

    def step() -> None:
        sums = [F.embedding_bag(c, t, mode="sum") for c, t in zip(chosen, table, strict=True)]
        features = torch.stack(sums, 1)
        score((features @ features.transpose(1, 2)).flatten(1))

    with torch.no_grad():
        repeat(step, mark)
