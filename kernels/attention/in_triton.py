"""The kernels of kernels.attention in Triton, and their launches.

Names: i are queries, j keys; s scores, p their softmax; d before a name is its gradient. Exponents
have base 2, as the hardware's. `start` is the offset of a head's first row, `stride` that from one
row to the next. The kernels are right for any number of tokens; EVEN says that blocks end where the
tokens do. With TRITON_INTERPRET=1 in the environment they run on a CPU, slowly: for tests.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dropout.in_triton import keys_of_rows, stays, threshold
from kernels.gluon import has_gluon

WIDTHS = (16, 32, 64, 128)  # widths of a head that the kernels take

# rows of a block of queries (M) and of keys (N): measured on an H200 with 64 x 6 heads of 256
# tokens, width 64; docs/kernels.md has the alternatives
FORWARD_M, FORWARD_N = 64, 64
KEYS_M, KEYS_N = 16, 64  # in programs for the gradients of keys and values
QUERIES_M, QUERIES_N = 64, 32  # in programs for the gradients of queries
WARPS, STAGES = 4, 3

GLUON_TOKENS, GLUON_WIDTH = (128, 256), 64  # sequences and heads for kernels.attention.in_gluon
LONG_GLUON_TOKENS, LONG_GLUON_BLOCK = 512, 128  # least and step for kernels.attention.in_gluon_long


@triton.jit
def load(X, start, stride, first, rows, N: tl.constexpr, D: tl.constexpr, EVEN: tl.constexpr):
    """Load N rows from `first` on, (N, D), with zeros after the last row."""
    row = first + tl.arange(0, N)
    at = X + start + row[:, None] * stride + tl.arange(0, D)[None, :]
    return tl.load(at) if EVEN else tl.load(at, mask=row[:, None] < rows, other=0.0)


@triton.jit
def store(X, start, stride, first, rows, x, N: tl.constexpr, D: tl.constexpr, EVEN: tl.constexpr):
    row = first + tl.arange(0, N)
    at = X + start + row[:, None] * stride + tl.arange(0, D)[None, :]
    if EVEN:
        tl.store(at, x.to(X.dtype.element_ty))
    else:
        tl.store(at, x.to(X.dtype.element_ty), mask=row[:, None] < rows)


@triton.jit
def dot(a, b, sum):
    """Compute a @ b + sum in float32, with all bits of float32 operands and not TF32's ten."""
    return tl.dot(a, b, sum, input_precision="ieee")


@triton.jit
def forward_causal_attention_triton(
    Q, K, V, OUT, LSE, SEED, q_batch, q_head, q_stride, k_batch, k_head, k_stride, T, S, scale,
    H: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    THRESHOLD: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Attend from a block of queries, of the last T of S tokens, to all keys up to it, in one pass.

    OUT is (B, T, H, D), LSE (B * H, T) the logarithm of each row's sum of exponentials.
    """
    head = tl.program_id(0)
    first = (tl.num_programs(1) - 1 - tl.program_id(1)) * M  # programs with the longest rows first
    b, h = (head // H).to(tl.int64), head % H
    i = first + tl.arange(0, M)
    own = S - T + i  # the last key that a query sees
    q = load(Q, b * q_batch + h * q_head, q_stride, first, T, M, D, EVEN)
    k_start = b * k_batch + h * k_head
    keys = keys_of_rows(tl.load(SEED).to(tl.uint32), head * T + i) if THRESHOLD else i
    out = tl.zeros([M, D], tl.float32)
    most = tl.full([M], -float("inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    for past in range(0, min(S, S - T + first + M), N):
        j = past + tl.arange(0, N)
        k = load(K, k_start, k_stride, past, S, N, D, EVEN)
        s = dot(q, tl.trans(k), tl.zeros([M, N], tl.float32)) * scale
        if past + N > S - T + first:
            s = tl.where(own[:, None] >= j[None, :], s, -float("inf"))
        higher = tl.maximum(most, tl.max(s, 1))
        shrunk = tl.exp2(most - higher)
        p = tl.exp2(s - higher[:, None])
        total = total * shrunk + tl.sum(p, 1)
        most = higher
        if THRESHOLD:
            p = tl.where(stays(keys[:, None], j[None, :], THRESHOLD), p, 0.0)
        v = load(V, k_start, k_stride, past, S, N, D, EVEN)
        out = dot(p.to(v.dtype), v, out * shrunk[:, None])
    kept: tl.constexpr = 1 - THRESHOLD / 2**32
    out = out / (total * kept)[:, None]
    store(OUT, b * T * H * D + h * D, H * D, first, T, out, M, D, EVEN)
    tl.store(LSE + head * T + i, most + tl.log2(total), mask=i < T)


@triton.jit
def backward_causal_attention_triton(
    Q, K, V, OUT, DOUT, LSE, SEED, DQKV, batch, head_stride, stride, T, scale, to_logits,
    H: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    QUERIES_M: tl.constexpr, QUERIES_N: tl.constexpr,
    THRESHOLD: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of keys and values, or of a block of queries.

    The first needs all queries after the block, the second all keys before it. So the scores are
    computed twice, but each program's sums stay in its registers, and many short programs hide each
    other's waits. Q, K, V are (B, T, H, D) with strides, OUT and DOUT (B, T, H, D). DQKV
    (B, T, 3, H, D) has the gradients side by side, as backward of the product before needs them.
    """
    head = tl.program_id(0)
    b, h = (head // H).to(tl.int64), head % H
    start, out_start = b * batch + h * head_stride, b * T * H * D + h * D
    d_start = b * T * 3 * H * D + h * D
    seed = tl.load(SEED).to(tl.uint32) if THRESHOLD else 0
    blocks = tl.cdiv(T, N)
    if tl.program_id(1) < blocks:
        gradients_of_keys(
            Q, K, V, OUT, DOUT, LSE, DQKV, seed, head, start, stride, out_start, d_start,
            tl.program_id(1) * N, T, scale, to_logits, H, D, M, N, THRESHOLD, EVEN,
        )  # fmt: skip
    else:
        first = (tl.num_programs(1) - 1 - tl.program_id(1)) * QUERIES_M
        gradients_of_queries(
            Q, K, V, OUT, DOUT, LSE, DQKV, seed, head, start, stride, out_start, d_start,
            first, T, scale, to_logits, H, D, QUERIES_M, QUERIES_N, THRESHOLD, EVEN,
        )  # fmt: skip


@triton.jit
def queries(
    Q, OUT, DOUT, LSE, head, start, stride, out_start, first, T, kept: tl.constexpr,
    H: tl.constexpr, D: tl.constexpr, M: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Load M queries, the gradients of their outputs, the sums of output x gradient, and LSE."""
    i = first + tl.arange(0, M)
    q = load(Q, start, stride, first, T, M, D, EVEN)
    dout = load(DOUT, out_start, H * D, first, T, M, D, EVEN)
    out = load(OUT, out_start, H * D, first, T, M, D, EVEN)
    delta = tl.sum(out.to(tl.float32) * dout.to(tl.float32), 1) * kept
    lse = tl.load(LSE + head * T + i, mask=i < T, other=float("inf"))
    return q, dout, delta, lse


@triton.jit
def gradients_of_keys(
    Q, K, V, OUT, DOUT, LSE, DQKV, seed, head, start, stride, out_start, d_start,
    first, T, scale, to_logits,
    H: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    THRESHOLD: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Compute dK and dV of N keys. Scores lie transposed, (N, M): the left operand of both sums."""
    kept: tl.constexpr = 1 - THRESHOLD / 2**32
    j = first + tl.arange(0, N)
    k = load(K, start, stride, first, T, N, D, EVEN)
    v = load(V, start, stride, first, T, N, D, EVEN)
    dk = tl.zeros([N, D], tl.float32)
    dv = tl.zeros([N, D], tl.float32)
    for row in range(first, T, M):
        i = row + tl.arange(0, M)
        q, dout, delta, lse = queries(
            Q, OUT, DOUT, LSE, head, start, stride, out_start, row, T, kept, H, D, M, EVEN
        )  # fmt: skip
        s = dot(k, tl.trans(q), tl.zeros([N, M], tl.float32)) * scale
        p = tl.exp2(s - lse[None, :])
        if row < first + N:
            p = tl.where(i[None, :] >= j[:, None], p, 0.0)
        dp = dot(v, tl.trans(dout), tl.zeros([N, M], tl.float32))
        left = p
        if THRESHOLD:
            stay = stays(keys_of_rows(seed, head * T + i)[None, :], j[:, None], THRESHOLD)
            left = tl.where(stay, p, 0.0)
            dp = tl.where(stay, dp, 0.0)
        dv = dot(left.to(dout.dtype), dout, dv)
        dk = dot((p * (dp - delta[None, :])).to(q.dtype), q, dk)
    store(DQKV, d_start + H * D, 3 * H * D, first, T, dk * (to_logits / kept), N, D, EVEN)
    store(DQKV, d_start + 2 * H * D, 3 * H * D, first, T, dv / kept, N, D, EVEN)


@triton.jit
def gradients_of_queries(
    Q, K, V, OUT, DOUT, LSE, DQKV, seed, head, start, stride, out_start, d_start,
    first, T, scale, to_logits,
    H: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    THRESHOLD: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    kept: tl.constexpr = 1 - THRESHOLD / 2**32
    i = first + tl.arange(0, M)
    q, dout, delta, lse = queries(
        Q, OUT, DOUT, LSE, head, start, stride, out_start, first, T, kept, H, D, M, EVEN
    )  # fmt: skip
    keys = keys_of_rows(seed, head * T + i) if THRESHOLD else i
    dq = tl.zeros([M, D], tl.float32)
    for past in range(0, min(T, first + M), N):
        j = past + tl.arange(0, N)
        k = load(K, start, stride, past, T, N, D, EVEN)
        v = load(V, start, stride, past, T, N, D, EVEN)
        s = dot(q, tl.trans(k), tl.zeros([M, N], tl.float32)) * scale
        p = tl.exp2(s - lse[:, None])
        if past + N > first:
            p = tl.where(i[:, None] >= j[None, :], p, 0.0)
        dp = dot(dout, tl.trans(v), tl.zeros([M, N], tl.float32))
        if THRESHOLD:
            dp = tl.where(stays(keys[:, None], j[None, :], THRESHOLD), dp, 0.0)
        dq = dot((p * (dp - delta[:, None])).to(k.dtype), k, dq)
    store(DQKV, d_start, 3 * H * D, first, T, dq * (to_logits / kept), M, D, EVEN)


def launch_forward(
    q: Tensor, k: Tensor, v: Tensor, seed: Tensor, dropout: float
) -> tuple[Tensor, Tensor]:
    """Attention (B, T, H, D) of q (B, T, H, D) to k and v (B, S, H, D), and its LSE (B * H, T)."""
    (B, T, H, D), S = q.shape, k.size(1)
    refuse_width(D)
    (q,), (k, v) = make_readable(q), make_readable(k, v)
    out = torch.empty((B, T, H, D), dtype=q.dtype, device=q.device)
    lse = torch.empty((B * H, T), dtype=torch.float32, device=q.device)
    forward_causal_attention_triton[B * H, triton.cdiv(T, FORWARD_M)](
        q, k, v, out, lse, seed, *strides(q), *strides(k), T, S, math.log2(math.e) / math.sqrt(D),
        H=H, D=D, M=FORWARD_M, N=FORWARD_N, THRESHOLD=threshold(dropout),
        EVEN=T % FORWARD_M == 0 and S % FORWARD_N == 0, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out, lse


def launch_backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, seed: Tensor,
    dropout: float,
) -> Tensor:  # fmt: skip
    """Gradients of q, k and v, (B, T, 3, H, D); lse is (B * H, T), all else (B, T, H, D)."""
    B, T, H, D = q.shape
    assert k.size(1) == T, "gradients of a part of the queries"
    (q, k, v), dout = make_readable(q, k, v), dout.contiguous()
    dqkv = torch.empty((B, T, 3, H, D), dtype=q.dtype, device=q.device)
    if gluon_fits(q, k, v, dout):
        from kernels.attention import in_gluon

        in_gluon.launch_backward(dout, q, k, v, out, lse, seed, dqkv, threshold(dropout))
        return dqkv
    if dropout == 0 and long_gluon_fits(q, k, v, dout):
        from kernels.attention import in_gluon_long

        in_gluon_long.launch_backward(dout, q, k, v, out, lse, dqkv)
        return dqkv
    blocks = triton.cdiv(T, KEYS_N) + triton.cdiv(T, QUERIES_M)
    backward_causal_attention_triton[B * H, blocks](
        q, k, v, out, dout, lse, seed, dqkv, *strides(q), T,
        math.log2(math.e) / math.sqrt(D), 1 / math.sqrt(D),
        H=H, D=D, M=KEYS_M, N=KEYS_N, QUERIES_M=QUERIES_M, QUERIES_N=QUERIES_N,
        THRESHOLD=threshold(dropout), EVEN=T % KEYS_N == 0 and T % QUERIES_M == 0,
        num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return dqkv


def gluon_fits(q: Tensor, *others: Tensor) -> bool:
    """Whether kernels.attention.in_gluon takes these tensors, (B, T, H, D) each."""
    return q.size(1) in GLUON_TOKENS and fits_descriptors(q, *others)


def long_gluon_fits(q: Tensor, *others: Tensor) -> bool:
    """Whether kernels.attention.in_gluon_long takes these, (B, T, H, D) each, without dropout."""
    T = q.size(1)
    return T >= LONG_GLUON_TOKENS and T % LONG_GLUON_BLOCK == 0 and fits_descriptors(q, *others)


def fits_descriptors(q: Tensor, *others: Tensor) -> bool:
    """Whether Gluon is available and can read these tensors, (B, T, H, D) each, by descriptors.

    Heads have to lie side by side, sequences one after the other, and each row at a multiple of 16
    bytes.
    """
    B, T, H, D = q.shape
    return (
        D == GLUON_WIDTH
        and all(
            x.dtype == torch.bfloat16
            and x.shape == q.shape
            and x.stride()[2:] == (D, 1)
            and x.stride(0) == T * x.stride(1)
            and x.stride(1) % 8 == x.data_ptr() % 16 == 0
            for x in (q, *others)
        )
        and has_gluon(q.device)
    )


def refuse_width(D: int) -> None:
    if D not in WIDTHS:
        widths = ", ".join(map(str, WIDTHS))
        raise NotImplementedError(
            f"does not support heads of width n_embd/n_head = {D}, only {widths}"
        )


def make_readable(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors (B, T, H, D), or contiguous copies if the kernels cannot read them as they lie.

    The kernels need the same strides in all of them, and 1 in the last dimension.
    """
    if tensors[0].stride(3) == 1 and len({tensor.stride() for tensor in tensors}) == 1:
        return tensors
    return tuple(tensor.contiguous() for tensor in tensors)


def strides(x: Tensor) -> tuple[int, int, int]:
    """Strides of x (B, T, H, D) between sequences, heads and tokens, in elements."""
    return x.stride(0), x.stride(2), x.stride(1)
