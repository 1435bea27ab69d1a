"""A program of Triton: turns by places, in a kernel of one's own."""

import torch
import triton
import triton.language as tl

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE

HALF, HEADS = size(64, 16), size(32, 2)


@triton.jit
def turn_heads(x, cosines, sines, HEADS: tl.constexpr, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """Turn the halves of each head of a word by the angles of its place."""
    word = tl.program_id(0).to(tl.int64)
    pair = tl.arange(0, HALF)
    cosine, sine = tl.load(cosines + word * HALF + pair), tl.load(sines + word * HALF + pair)
    at = x + (word * HEADS + tl.arange(0, HEADS)[:, None]) * 2 * HALF + pair[None]
    left, right = tl.load(at), tl.load(at + HALF)
    tl.store(at, left * cosine[None] - right * sine[None])
    tl.store(at + HALF, right * cosine[None] + left * sine[None])


def triton_turns_control(fault: bool, mark: Mark) -> None:
    """Turns the queries and keys of 131,072 words by their places, in two layers."""
    words = size(131_072, 8)
    queries, keys = (torch.randn(words, HEADS, 2 * HALF, device=DEVICE) for _ in range(2))
    angles = torch.rand(words, HALF, device=DEVICE)
    cosines, sines = angles.cos(), angles.sin()

    def step() -> None:
        for x in (queries, keys) * 2:
            turn_heads[(words,)](x, cosines, sines, HEADS=HEADS, HALF=HALF)

    repeat(step, mark)
