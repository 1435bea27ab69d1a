"""A program of Triton: a kernel of one's own."""

import torch
import triton
import triton.language as tl

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE

ROWS, COLUMNS = size(65_536, 256), size(1_024, 256)


@triton.jit
def add_columns(x, out, rows, columns, LANES: tl.constexpr, TALL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums of LANES columns over `rows` rows, of which each program of the second axis has some."""
    at = tl.program_id(0) * LANES + tl.arange(0, LANES)
    begin = tl.program_id(1) * rows
    total = tl.zeros((LANES,), tl.float32)
    for row in range(0, rows, TALL):
        down = begin + row + tl.arange(0, TALL)
        total += tl.sum(tl.load(x + down[:, None] * columns + at[None, :]), 0)
    tl.atomic_add(out + at, total)


def triton_few_blocks(fault: bool, mark: Mark) -> None:
    """Sums columns with one program for 128 of them; without the fault with 64 for the same.

    Eight programs work on eight of the GPU's processors, and the others are idle.
    """
    x, out = torch.randn(ROWS, COLUMNS, device=DEVICE), torch.zeros(COLUMNS, device=DEVICE)
    shares = 1 if fault else size(64, 2)

    def step() -> None:
        for _ in range(8):
            add_columns[(COLUMNS // 128, shares)](
                x, out, ROWS // shares, COLUMNS, LANES=128, TALL=32
            )

    repeat(step, mark)
