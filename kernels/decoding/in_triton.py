"""The kernels of kernels.decoding in Triton, and their launches.

With TRITON_INTERPRET=1 in the environment they run on a CPU, slowly: for tests.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attention.in_triton import refuse_width
from kernels.gelu.in_triton import share_below

KEYS, KEY_WARPS, KEY_STAGES = 32, 4, 4  # keys at a time in a program of attention
# in a program of a product: the least that a GPU multiplies, so that there are many programs
ROWS, OUTPUTS, LINEAR_WARPS = 16, 16, 4
MANY_OUTPUTS = 32  # if there are more rows, and so enough programs
MOST_BYTES = 32 * 1024  # most bytes of weights in a program; with more its registers spill
VOCABULARY, DRAW_WARPS = 1024, 4  # logits at a time in a program that draws, or all
EPSILON = 1e-5  # in the norm


@triton.jit
def decode_attention_triton(
    QKV, KEPT, POSITION, OUT, S, scale,
    H: tl.constexpr, D: tl.constexpr, N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Attend from the newest query of one head of a sequence to all keys up to its own.

    Each of N lanes has every Nth key and a softmax of its own over these, so that no lane waits in
    the loop; at the end the lanes and the newest key are combined. Exponents have base 2.
    """
    b, h = tl.program_id(0), tl.program_id(1)
    position = tl.load(POSITION).to(tl.int32)
    column = tl.arange(0, D)
    newest = QKV + b * 3 * H * D + h * D + column
    q = tl.load(newest).to(tl.float32) * scale
    newest_k, newest_v = tl.load(newest + H * D), tl.load(newest + 2 * H * D)
    first = KEPT + b.to(tl.int64) * S * 2 * H * D + h * D + column
    tl.store(first + position * 2 * H * D, newest_k)
    tl.store(first + position * 2 * H * D + H * D, newest_v)
    lane = tl.arange(0, N)
    most = tl.full([N], -1e30, tl.float32)  # finite: a lane may have no key
    total = tl.zeros([N], tl.float32)
    out = tl.zeros([N, D], tl.float32)
    for past in tl.range(0, position, N, num_stages=STAGES):
        there = past + lane < position
        at = first[None, :] + (past + lane)[:, None] * 2 * H * D
        k = tl.load(at, mask=there[:, None], other=0.0).to(tl.float32)
        v = tl.load(at + H * D, mask=there[:, None], other=0.0).to(tl.float32)
        s = tl.where(there, tl.sum(k * q[None, :], 1), -1e30)
        higher = tl.maximum(most, s)
        shrunk, p = tl.exp2(most - higher), tl.where(there, tl.exp2(s - higher), 0.0)
        total = total * shrunk + p
        out = out * shrunk[:, None] + p[:, None] * v
        most = higher
    newest_s = tl.sum(newest_k.to(tl.float32) * q, 0)
    highest = tl.maximum(tl.max(most, 0), newest_s)
    share, newest_share = tl.exp2(most - highest), tl.exp2(newest_s - highest)
    mixed = tl.sum(out * share[:, None], 0) + newest_v.to(tl.float32) * newest_share
    mixed = mixed / (tl.sum(total * share, 0) + newest_share)
    tl.store(OUT + b * H * D + h * D + column, mixed.to(OUT.dtype.element_ty))


@triton.jit
def gemm_of_norm_triton(
    X, NORM_WEIGHT, NORM_BIAS, WEIGHT, BIAS, OUT, rows, outputs,
    C: tl.constexpr, WIDTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    HAS_NORM_BIAS: tl.constexpr, HAS_BIAS: tl.constexpr, GELU: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Multiply M rows of X, normed, by N rows of WEIGHT; C columns in a block of WIDTH.

    Each program norms its rows itself: they are few, and it does not wait for another kernel.
    """
    row = tl.program_id(1) * M + tl.arange(0, M)
    output = tl.program_id(0) * N + tl.arange(0, N)
    column = tl.arange(0, WIDTH)
    inside = column < C
    # all loads are started before the first sum waits for one
    at = output.to(tl.int64)[None, :] * C + column[:, None]
    weight = tl.load(WEIGHT + at, mask=inside[:, None] & (output < outputs)[None, :], other=0.0)
    there = (row < rows)[:, None] & inside[None, :]
    x = tl.load(X + row[:, None] * C + column[None, :], mask=there, other=0.0).to(tl.float32)
    norm_weight = tl.load(NORM_WEIGHT + column, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, 1) / C
    centered = tl.where(there, x - mean[:, None], 0.0)
    rstd = tl.rsqrt(tl.sum(centered * centered, 1) / C + EPS)
    h = centered * rstd[:, None] * norm_weight[None, :]
    if HAS_NORM_BIAS:
        h += tl.load(NORM_BIAS + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    out = tl.dot(h.to(weight.dtype), weight, tl.zeros([M, N], tl.float32), input_precision="ieee")
    if HAS_BIAS:
        out += tl.load(BIAS + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    if GELU:
        share, _ = share_below(out)
        out *= share
    kept = (row < rows)[:, None] & (output < outputs)[None, :]
    to = OUT + row.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(to, out.to(OUT.dtype.element_ty), mask=kept)


@triton.jit
def draw_token_triton(
    LOGITS, NOISE, INDEX, POSITION, TOKEN, CONTEXT, V, N, places, colder, WIDTH: tl.constexpr
):
    """Draw a token from a row of LOGITS (B, V); the first of equal scores wins.

    NOISE is (B, N, V), CONTEXT (B, places).
    """
    row = tl.program_id(0).to(tl.int64)
    noise = NOISE + (row * N + tl.load(INDEX)) * V
    lane = tl.arange(0, WIDTH)
    best = tl.full([WIDTH], -float("inf"), tl.float32)
    token = lane
    for first in range(0, V, WIDTH):
        inside = first + lane < V
        logits = tl.load(LOGITS + row * V + first + lane, mask=inside, other=-float("inf"))
        score = logits.to(tl.float32) * colder
        score += tl.load(noise + first + lane, mask=inside, other=0.0)
        token = tl.where(score > best, first + lane, token)
        best = tl.maximum(best, score)
    drawn = tl.min(tl.where(best == tl.max(best, 0), token, V - 1), 0)
    tl.store(TOKEN + row, drawn)
    tl.store(CONTEXT + row * places + tl.load(POSITION), drawn)


def launch_attention(qkv: Tensor, kept: Tensor, position: Tensor, heads: int) -> Tensor:
    """Launch the kernel of kernels.decoding.attend_newest."""
    (B, S, _), D = kept.shape, kept.size(2) // 2 // heads
    refuse_width(D)
    out = torch.empty((B, heads * D), dtype=qkv.dtype, device=qkv.device)
    decode_attention_triton[B, heads](
        qkv.contiguous(), kept, position, out, S, math.log2(math.e) / math.sqrt(D),
        H=heads, D=D, N=KEYS, STAGES=KEY_STAGES, num_warps=KEY_WARPS,
    )  # fmt: skip
    return out


def launch_linear(
    x: Tensor, norm_weight: Tensor, norm_bias: Tensor | None,
    weight: Tensor, bias: Tensor | None, gelu: bool,
) -> Tensor:  # fmt: skip
    """Launch the kernel of kernels.decoding.linear_of_norm."""
    (B, C), outputs = x.shape, weight.size(0)
    width = triton.next_power_of_2(C)
    most = MOST_BYTES // (width * weight.itemsize)
    if most < OUTPUTS:
        raise NotImplementedError(f"n_embd = {C} is too wide in {weight.dtype}")
    columns = MANY_OUTPUTS if B > ROWS and most >= MANY_OUTPUTS else OUTPUTS
    out = torch.empty((B, outputs), dtype=x.dtype, device=x.device)
    gemm_of_norm_triton[triton.cdiv(outputs, columns), triton.cdiv(B, ROWS)](
        x.contiguous(), norm_weight, norm_bias, weight, bias, out, B, outputs,
        C=C, WIDTH=width, M=ROWS, N=columns,
        HAS_NORM_BIAS=norm_bias is not None, HAS_BIAS=bias is not None, GELU=gelu, EPS=EPSILON,
        num_warps=LINEAR_WARPS,
    )  # fmt: skip
    return out


def launch_draw(
    logits: Tensor, noise: Tensor, index: Tensor, temperature: float, position: Tensor,
    token: Tensor, context: Tensor,
) -> None:  # fmt: skip
    """Launch the kernel of kernels.decoding.draw_newest."""
    B, V = logits.shape
    draw_token_triton[(B,)](
        logits.contiguous(), noise, index, position, token, context,
        V, noise.size(1), context.size(1), 1 / temperature,
        WIDTH=min(triton.next_power_of_2(V), VOCABULARY), num_warps=DRAW_WARPS,
    )  # fmt: skip
