"""A program of Triton: connected parts of a picture."""

import torch
import triton
import triton.language as tl

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE

BLOCK, SWEEPS = 1024, size(64, 4)
NO_LABEL = 2**30  # larger than each label


@triton.jit
def spread_labels(labels, changed, edge, pixels, NO_LABEL: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Give each labelled pixel the least label around it, and note whether one has changed."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = at % edge
    mine = tl.load(labels + at)
    above = tl.load(labels + at - edge, mask=at >= edge, other=NO_LABEL)
    below = tl.load(labels + at + edge, mask=at + edge < pixels, other=NO_LABEL)
    left = tl.load(labels + at - 1, mask=column > 0, other=NO_LABEL)
    right = tl.load(labels + at + 1, mask=column < edge - 1, other=NO_LABEL)
    least = tl.minimum(tl.minimum(above, below), tl.minimum(left, right))
    least = tl.where(mine < NO_LABEL, tl.minimum(mine, least), mine)
    tl.store(labels + at, least)
    if tl.max((least < mine).to(tl.int32)) > 0:
        tl.store(changed, 1)


def triton_parts_of_picture(fault: bool, mark: Mark) -> None:
    """Asks after each of 64 sweeps whether a label has changed; without the fault at the end.

    The flag comes to the host before the next sweep is launched.
    """
    edge = size(3072, 64)
    pixels = edge * edge
    start = torch.arange(pixels, device=DEVICE, dtype=torch.int32)
    start[torch.rand(pixels, device=DEVICE) < 0.2] = NO_LABEL
    changed = torch.zeros(1, device=DEVICE, dtype=torch.int32)

    def step() -> None:
        labels = start.clone()
        for sweep in range(SWEEPS):
            asked = fault or sweep == SWEEPS - 1
            if asked:
                changed.zero_()
            spread_labels[(pixels // BLOCK,)](
                labels, changed, edge, pixels, NO_LABEL=NO_LABEL, BLOCK=BLOCK
            )
            if asked and not changed.item():
                break

    repeat(step, mark)
