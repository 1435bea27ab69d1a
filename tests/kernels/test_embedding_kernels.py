"""Triton kernels of embeddings, dropout and norm, against float64 and autograd."""

import pytest

from tests.helpers.kernel_programs import LONG_DEVICES, needs_triton, run

pytestmark = needs_triton

PROGRAM = r"""
import sys
import torch
from torch.nn import functional as F
import kernels.embedding.in_triton
from kernels.dropout.in_triton import threshold
from kernels.embedding import embed_and_norm, embedding_and_norm
from tests.helpers.dropout_hash import dropout_mask

torch.set_default_device(sys.argv[1])


def compare(
    B, T, C, V, dropout, L=None, biased=False, read=slice(0, 2), stream=torch.float32
):
    '''L: rows of the table of positions, None: there is none.'''
    idx = torch.randint(V, (B, T))
    table, positions = torch.randn(V, C), torch.randn(L or 1, C)
    given = [table, torch.randn(C), *([torch.randn(C)] * biased), *([positions] * bool(L))]
    ours = [each.clone().requires_grad_() for each in given]
    exact = [each.double().requires_grad_() for each in given]
    seed = torch.tensor([77 + C])

    def split(tensors):
        table, weight, *rest = tensors
        bias = rest.pop(0) if biased else None
        return table, (rest[0] if L else None), weight, bias

    x, h, _, _ = embed_and_norm(idx, *split(ours), seed, dropout, stream, torch.float32)
    table, positions, weight, bias = split(exact)
    expected = table[idx] if positions is None else table[idx] + positions[:T]
    if dropout:
        kept = dropout_mask(int(seed), dropout, B * T, C).view(B, T, C)
        expected = expected * kept / (1 - threshold(dropout) / 2**32)
    normed = F.layer_norm(expected, (C,), weight, bias, 1e-5)
    dx, dh = torch.randn(2, B, T, C)
    assert x.dtype == stream
    dx = dx.to(stream)
    torch.autograd.backward((h, x)[read], (dh, dx)[read])
    torch.autograd.backward((normed, expected)[read], (dh.double(), dx.double())[read])
    pairs = [(x, expected), (h, normed)] + [(a.grad, b.grad) for a, b in zip(ours, exact)]
    for number, (a, b) in enumerate(pairs):
        error = ((a - b).norm() / b.norm()).item()
        limit = 2e-6 if a.dtype == torch.float32 else 2**-8  # of bfloat16; interpreted it cuts off
        assert error < limit, (number, B, T, C, V, dropout, L, biased, read, stream, error)


torch.manual_seed(0)
compare(1, 1, 16, 3, 0.0)
compare(2, 7, 24, 17, 0.2, L=7, biased=True)
compare(3, 9, 48, 65, 0.6, L=11)  # shorter than the model could
compare(17, 5, 80, 33, 0.1, L=5)  # more sequences and columns than a program takes at once
compare(2, 6, 16, 250, 0.3, biased=True)
compare(2, 6, 32, 9, 0.2, L=6, read=slice(0, 1))  # the norm alone
kernels.embedding.in_triton.SUM_ROWS = 2
compare(2, 20, 16, 5, 0.5, L=20)  # sums of more programs than are added at once
kernels.embedding.in_triton.BACKWARD_PROGRAMS = 3
compare(5, 20, 16, 5, 0.5, L=20)  # eight places of each program, of two sequences at a time
compare(2, 50, 16, 5, 0.5, L=50)  # more places than it takes at once

idx, table = torch.randint(5, (2, 3)), torch.randn(5, 16)
positions, weight = torch.randn(3, 16), torch.randn(16)
gradient = torch.autograd.grad(
    embedding_and_norm(idx, table.requires_grad_(), None, weight, None, 0.0)[0].sum(), table
)
counts = torch.bincount(idx.flatten(), minlength=5).float()
assert torch.equal(gradient[0], counts[:, None].expand(5, 16)), "x alone"
for each in (positions, weight):
    each.requires_grad_()
rest = (None, torch.tensor([5]), 0.25, torch.float32, torch.float32)
call = lambda *tables: embed_and_norm(idx, *tables, *rest)[:2]
every = (table, positions, weight)
torch.autograd.gradcheck(call, every, eps=1e-2, atol=5e-3, rtol=5e-2, fast_mode=True)
torch.library.opcheck(embed_and_norm, (idx, *every, *rest))
torch.library.opcheck(embed_and_norm, (idx, table, None, weight, weight, *rest[1:]))
same = [embedding_and_norm(idx, *every, None, 0.5)[1] for _ in range(2)]
assert not torch.equal(*same), "dropout drew the same again"

kind = table.device.type
with torch.autocast(kind, torch.bfloat16):
    x, h = embedding_and_norm(idx, *every, None, 0.0)
    assert embedding_and_norm(idx, *every, None, 0.0, dtype=torch.bfloat16)[0].dtype == h.dtype
assert x.dtype == torch.float32 and h.dtype == torch.bfloat16
dx, dh = torch.randn(2, 2, 3, 16)
loss = (x * dx).sum() + (h * dh).sum()
first, second = (torch.autograd.grad(loss, every, retain_graph=True) for _ in range(2))
assert all(torch.equal(a, b) for a, b in zip(first, second)), "another sum"
compare(2, 7, 24, 17, 0.2, L=7, stream=torch.bfloat16)  # normed is what was not rounded yet
print("right")
"""


@pytest.mark.parametrize("device", LONG_DEVICES)
def test_what_is_embedded_its_norm_and_gradients_are_those_of_float64(device):
    run(PROGRAM, device)
