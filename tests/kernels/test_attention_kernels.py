"""Triton kernels of attention=triton, interpreted on a CPU, against float64 and autograd."""

import pytest

from tests.helpers.kernel_programs import needs_triton, run

pytestmark = needs_triton

PROGRAM = r"""
import math, sys
import torch
from kernels.attention import causal_attention, packed_attention, packed_causal_attention
from kernels.dropout.in_triton import threshold
from tests.helpers.dropout_hash import dropout_mask

torch.set_default_device(sys.argv[1])

B, H = 2, 2


def exact(q, k, v, dropout, seed):
    T, S = q.size(2), k.size(2)
    scores = q @ k.transpose(2, 3) / math.sqrt(q.size(3))
    seen = torch.ones(S, S, dtype=torch.bool).tril()[S - T :]
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    if dropout:
        kept = dropout_mask(seed, dropout, B * H * T, S).view(B, H, T, S)
        weights = weights * kept / (1 - threshold(dropout) / 2**32)
    return weights @ v


def gradients(T, D, dropout):
    qkv = torch.randn(B, T, 3 * H * D, requires_grad=True)
    dout, seed = torch.randn(B, T, H * D), torch.tensor([20261122 + T])
    out, _ = packed_attention(qkv, H, seed, dropout)
    out.backward(dout)
    wide = qkv.detach().double().requires_grad_()
    q, k, v = wide.view(B, T, 3, H, D).permute(2, 0, 3, 1, 4)
    expected = exact(q, k, v, dropout, int(seed)).transpose(1, 2).flatten(2)
    expected.backward(dout.double())
    for name, ours, theirs in (("out", out, expected), ("gradient", qkv.grad, wide.grad)):
        error = ((ours - theirs).norm() / theirs.norm()).item()
        assert error < 1e-6, (name, T, D, dropout, error)


torch.manual_seed(0)
for T, D, dropout in ((1, 16, 0.0), (5, 32, 0.2), (64, 16, 0.7), (100, 16, 0.1)):
    gradients(T, D, dropout)

for T, S in ((1, 70), (1, 1), (3, 67)):  # as sampling with a cache asks
    q, k, v = torch.randn(B, H, T, 16), *torch.randn(2, B, S, H, 16).transpose(2, 3)
    out = causal_attention(q, k, v, 0.0)
    torch.testing.assert_close(out, exact(q, k, v, 0.0, 0), atol=1e-6, rtol=1e-5)

# apart and packed: the same numbers, by torch's generator
qkv = torch.randn(B, 70, 3 * H * 16)
results = []
for attend in ("apart", "packed"):
    x = qkv.clone().requires_grad_()
    torch.manual_seed(1)
    if attend == "packed":
        out = packed_causal_attention(x, H, 0.3)
    else:
        q, k, v = x.view(B, 70, 3, H, 16).permute(2, 0, 3, 1, 4)
        out = causal_attention(q, k, v, 0.3).transpose(1, 2).flatten(2)
    out.square().sum().backward()
    results.append((out, x.grad))
assert all(torch.equal(a, b) for a, b in zip(*results)), "apart and packed differ"
again = packed_causal_attention(qkv, H, 0.3)
assert not torch.equal(again, results[0][0]), "dropout drew the same again"

x = torch.randn(1, 6, 3 * H * 16, requires_grad=True)
call = lambda x: packed_attention(x, H, torch.tensor([5]), 0.25)[0]
torch.autograd.gradcheck(call, x, eps=1e-2, atol=5e-3, rtol=5e-2, fast_mode=True)
torch.library.opcheck(packed_attention, (x, H, torch.tensor([5]), 0.25))

try:
    packed_causal_attention(torch.randn(1, 4, 3 * 24), 1, 0.0)
except NotImplementedError as error:
    assert "n_embd/n_head = 24" in str(error), error
else:
    raise AssertionError("a width of 24 was taken")
print("right")
"""


@pytest.mark.slow
def test_results_and_gradients_are_those_of_float64_and_dropout_is_drawn_twice_alike():
    run(PROGRAM, "cpu")  # a GPU runs them in 16 bits: there the lab compares
