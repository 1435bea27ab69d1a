"""Triton kernel of the head's cross-entropy, against float64."""

import pytest

from tests.helpers.kernel_programs import LONG_DEVICES, needs_triton, run

pytestmark = needs_triton

PROGRAM = r"""
import sys
import torch
from torch.nn import functional as F
import kernels.cross_entropy.in_triton
from kernels.cross_entropy import linear_cross_entropy, losses_and_gradients

torch.set_default_device(sys.argv[1])


def compare(N, C, columns, padding=0, ignored=0, size=1.0):
    h, weight = torch.randn(N, C) * size, torch.randn(columns, C)
    targets = torch.randint(columns, (N,))
    targets[:ignored] = -1
    ours = [each.clone().requires_grad_() for each in (h, weight)]
    exact = [each.double().requires_grad_() for each in (h, weight)]
    copy = F.pad(weight, (0, 0, 0, padding))
    loss = linear_cross_entropy(*ours, copy, targets)
    expected = F.cross_entropy(exact[0] @ exact[1].t(), targets, ignore_index=-1)
    (loss * 3).backward()
    (expected * 3).backward()
    for a, b in ((loss, expected), *((a.grad, b.grad) for a, b in zip(ours, exact))):
        error = ((a - b).norm() / b.norm()).item()
        assert error < 1e-5, (N, C, columns, padding, ignored, error)


torch.manual_seed(0)
compare(1, 4, 2)
compare(9, 8, 65, padding=63, ignored=3)
compare(5, 8, 64, size=40.0)  # exponents far from 0
compare(40, 8, 101, padding=27, ignored=1)  # two whole programs and a part of one
compare(3, 8, 250, padding=6)
kernels.cross_entropy.in_triton.NARROW = 0  # from here on a program has one row
compare(9, 8, 65, padding=63, ignored=3)
compare(5, 8, 64, size=40.0)
compare(3, 8, 1000, padding=24)  # threads with several logits
kernels.cross_entropy.in_triton.BLOCK = 32  # several blocks to a row, the last one cut
compare(7, 8, 101, padding=27, ignored=1)
compare(7, 200, 101, padding=27, ignored=1)  # wider than the vocabulary
compare(3, 8, 64)

h, weight = torch.ones(2, 1), torch.ones(101, 1)
weight[:40] = -float("inf")  # a whole block, and a part
ours = linear_cross_entropy(h, weight, weight, torch.tensor([40, 100]))
torch.testing.assert_close(ours, torch.tensor(61.0).log())

logits = torch.randn(4, 50_304).bfloat16() * 3  # wide: in Gluon, where that is
logits[:, 50_257:] = 7.0  # nobody's
logits[2, :20_000] = -float("inf")
targets = torch.tensor([50_256, -1, 30_000, 5])
exact = logits[:, :50_257].double().requires_grad_()
expected = F.cross_entropy(exact, targets, ignore_index=-1, reduction="none")
expected.sum().backward()
losses = kernels.cross_entropy.in_triton.launch(logits, targets, 50_257, -1)
torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=1e-5)
torch.testing.assert_close(logits[:, :50_257].double(), exact.grad, rtol=2**-7, atol=1e-6)
assert not logits[:, 50_257:].any()

weight = torch.randn(9, 4)
nothing = linear_cross_entropy(torch.randn(2, 4), weight, weight, torch.tensor([-1, -1]))
assert nothing.isnan(), nothing
h, weight, targets = torch.randn(3, 4), torch.randn(6, 4), torch.tensor([5, -1, 0])
inputs = (h.requires_grad_(), weight.requires_grad_())
call = lambda h, weight: linear_cross_entropy(h, weight, weight.detach(), targets)
torch.autograd.gradcheck(call, inputs, eps=1e-2, atol=5e-3, rtol=5e-2, fast_mode=True)
torch.library.opcheck(losses_and_gradients, (*inputs, weight.detach(), targets))
print("right")
"""


@pytest.mark.parametrize("device", LONG_DEVICES)
def test_losses_and_gradients_are_those_of_float64(device):
    run(PROGRAM, device)
