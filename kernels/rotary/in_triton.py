"""The kernel of kernels.rotary in Triton, and its launch.

With TRITON_INTERPRET=1 in the environment the kernel runs on a CPU, slowly: for tests.
"""

import triton
import triton.language as tl
from torch import Tensor

WARPS = 4


@triton.jit
def rotary_triton(
    X, Y, TURNS, T, turns_stride, sign,
    C: tl.constexpr, HALF: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Rotate a token's query, key and value (3C). Numbers HALF apart in a head turn as one pair."""
    token = tl.program_id(0).to(tl.int64)
    pair = tl.arange(0, WIDTH)
    inside = pair < 3 * C // 2
    turning = pair < C  # pairs of values stay
    lane = pair % HALF
    first = token * 3 * C + pair // HALF * 2 * HALF + lane
    x = tl.load(X + first, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(X + first + HALF, mask=inside, other=0.0).to(tl.float32)
    # TURNS has (3, 2 HALF) for each token; the second half has positive angles
    place = TURNS + token % T * 6 * HALF + HALF + lane
    cos = tl.load(place, mask=turning, other=1.0)
    sin = tl.load(place + turns_stride, mask=turning, other=0.0) * sign
    tl.store(Y + first, (x * cos - y * sin).to(Y.dtype.element_ty), mask=inside)
    tl.store(Y + first + HALF, (y * cos + x * sin).to(Y.dtype.element_ty), mask=inside)


def launch(qkv: Tensor, turns: Tensor, heads: int, back: bool) -> Tensor:
    """Rotate qkv (B, T, 3C), which is contiguous, into a new tensor; backwards if `back`.

    turns is float32, and contiguous but for its first dimension.
    """
    B, T, width = qkv.shape
    C = width // 3
    out = qkv.new_empty(qkv.shape)
    rotary_triton[(B * T,)](
        qkv, out, turns, T, turns.stride(0), -1.0 if back else 1.0,
        C=C, HALF=C // heads // 2, WIDTH=triton.next_power_of_2(3 * C // 2), num_warps=WARPS,
    )  # fmt: skip
    return out
