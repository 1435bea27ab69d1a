"""Triton kernels of a norm after a sum, against float64 and autograd."""

import pytest

from tests.helpers.kernel_programs import LONG_DEVICES, needs_triton, run

pytestmark = needs_triton

PROGRAM = r"""
import sys
import torch
from torch.nn import functional as F
import kernels.norm.in_triton
from kernels.dropout.in_triton import threshold
from kernels.norm import norm_of_sum, sum_and_norm
from tests.helpers.dropout_hash import dropout_mask

torch.set_default_device(sys.argv[1])


def compare(B, T, C, dropout, biased, read=slice(0, 2), stream=torch.float32, kind=torch.float32):
    given = [torch.randn(B, T, C, dtype=stream), torch.randn(B, T, C, dtype=kind)]
    given += [torch.randn(C) for _ in range(1 + biased)]
    ours = [each.clone().requires_grad_() for each in given]
    exact = [each.double().requires_grad_() for each in given]
    seed = torch.tensor([77 + C])
    total, h, _, _ = sum_and_norm(*ours[:3], ours[3] if biased else None, seed, dropout)
    x, y, weight, *bias = exact
    if dropout:
        kept = dropout_mask(int(seed), dropout, B * T, C).view(B, T, C)
        y = y * kept / (1 - threshold(dropout) / 2**32)
    expected = x + y
    stored = expected + (total.detach() - expected.detach())  # what is normed, and read in backward
    normed = F.layer_norm(stored, (C,), weight, bias[0] if bias else None, 1e-5)
    dsum, dh = torch.randn(2, B, T, C)
    dsum, dh = dsum.to(stream), dh.to(kind)
    torch.autograd.backward((h, total)[read], (dh, dsum)[read])
    torch.autograd.backward((normed, expected)[read], (dh.double(), dsum.double())[read])
    pairs = [(total, expected), (h, normed)]
    pairs += [(a.grad, b.grad) for a, b in zip(ours, exact)]
    for number, (a, b) in enumerate(pairs):
        error = ((a - b).norm() / b.norm()).item()
        limit = 2e-6 if a.dtype == torch.float32 else 2**-8  # of bfloat16; interpreted it cuts off
        assert error < limit, (number, B, T, C, dropout, biased, stream, kind, error)
    x, y = ours[:2]
    assert (total.dtype, h.dtype, x.grad.dtype, y.grad.dtype) == (stream, kind, stream, kind)


torch.manual_seed(0)
for case in ((1, 1, 16, 0.0, False), (2, 7, 24, 0.2, True), (3, 13, 48, 0.6, False)):
    compare(*case)
compare(1, 9, 24, 0.2, True, read=slice(0, 1))  # the norm alone
kernels.norm.in_triton.BACKWARD_PROGRAMS = 3  # each takes six blocks of rows, or seven
compare(3, 13, 48, 0.6, True)

x, y, weight = torch.randn(1, 3, 16), torch.randn(1, 3, 16), torch.randn(16)
gradient = torch.autograd.grad(
    norm_of_sum(x.requires_grad_(), y, weight, None, 0.0)[0].sum(), x
)
assert torch.equal(gradient[0], torch.ones(1, 3, 16)), "the sum alone"
for each in (x, y, weight):
    each.requires_grad_()
call = lambda x, y, weight: sum_and_norm(x, y, weight, None, torch.tensor([5]), 0.25)[:2]
torch.autograd.gradcheck(call, (x, y, weight), eps=1e-2, atol=5e-3, rtol=5e-2, fast_mode=True)
torch.library.opcheck(sum_and_norm, (x, y, weight, None, torch.tensor([5]), 0.25))
same = [norm_of_sum(x, y, weight, None, 0.5)[1] for _ in range(2)]
assert not torch.equal(*same), "dropout drew the same again"

half = torch.bfloat16
for stream in (torch.float32, half):  # each with and without dropout, and a bias
    compare(3, 7, 48, 0.0, stream == half, stream=stream, kind=half)
    compare(3, 7, 48, 0.2, stream != half, stream=stream, kind=half)
compare(2, 9, 24, 0.0, True, slice(0, 1), stream=half, kind=half)


def written_once(x, y, dropout):
    given = x.requires_grad_(), y.requires_grad_()
    dx, dy = torch.autograd.grad(norm_of_sum(*given, weight, None, dropout)[1].sum(), given)
    return dx.data_ptr() == dy.data_ptr()


x, y = torch.randn(2, 2, 3, 16).to(half)
assert written_once(x, y, 0.0)
assert not written_once(x, y, 0.5) and not written_once(x.float(), y, 0.0)
torch.library.opcheck(sum_and_norm, (x, y, weight, None, torch.tensor([5]), 0.0))
compiled = torch.compile(lambda x, y: norm_of_sum(x, y, weight, None, 0.0), backend="aot_eager")
both = [torch.autograd.grad(f(x, y)[1].float().square().sum(), (x, y)) for f in (
    compiled, lambda x, y: norm_of_sum(x, y, weight, None, 0.0))]
assert all(torch.equal(a, b) for a, b in zip(*both))
print("right")
"""


@pytest.mark.parametrize("device", LONG_DEVICES)
def test_sums_norms_and_gradients_are_those_of_float64(device):
    run(PROGRAM, device)
