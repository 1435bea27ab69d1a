"""A program of Triton: norms of rows, by a kernel of one's own."""

import torch
import triton
import triton.language as tl

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE

COLUMNS = size(4096, 64)


@triton.jit
def norm_row(x, out, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Divide a row by the root of its mean square."""
    at = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.load(x + at)
    tl.store(out + at, row / tl.sqrt(tl.sum(row * row, 0) / COLUMNS + 1e-6))


def triton_norms_control(fault: bool, mark: Mark) -> None:
    """Norms the rows of a gigabyte, six times."""
    rows = size(65_536, 8)
    x, out = (torch.randn(rows, COLUMNS, device=DEVICE) for _ in range(2))

    def step() -> None:
        for _ in range(6):
            norm_row[(rows,)](x, out, COLUMNS=COLUMNS)

    repeat(step, mark)
