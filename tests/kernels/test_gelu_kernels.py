"""Triton kernels of GELU, against float64 and autograd."""

import pytest

from tests.helpers.kernel_programs import DEVICES, needs_triton, run

pytestmark = needs_triton

PROGRAM = r"""
import math
import sys
import torch
from kernels.gelu import gelu

torch.set_default_device(sys.argv[1])


def exact(u):
    # erfc keeps the digits of a small share, which 1 + erf would lose
    return u * torch.special.erfc(-u / math.sqrt(2)) / 2


def compare(u, tolerance):
    ours, wide = u.clone().requires_grad_(), u.double().requires_grad_()
    g, expected = gelu(ours), exact(wide)
    dg = torch.randn(u.shape, dtype=u.dtype)
    g.backward(dg)
    expected.backward(dg.double())
    for a, b, size in ((g, expected, expected.abs()), (ours.grad, wide.grad, dg.double().abs())):
        off = ((a.double() - b).abs() / (size + 1e-35)).max().item()
        assert a.dtype == u.dtype and off < tolerance, (u.dtype, u.shape, off)


torch.manual_seed(0)
compare(torch.linspace(-6, 6, 5001), 4e-6)
compare(torch.linspace(-12, 12, 5001), 1e-5)  # as exact as float32 holds u^2
compare(torch.randn(3, 1, 7), 4e-6)
compare(torch.randn(8, 6).t(), 4e-6)
# every bfloat16 between -12 and 12 but those next to 0: its last digit, which the interpreter cuts
# off and a GPU rounds
bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
compare(bits[(bits.abs() < 12) & (bits.abs() > 1e-30)], 2**-7 * 1.15)

far = torch.tensor([-1e30, -60.0, 0.0, 60.0, 1e30, math.nan])
assert torch.equal(gelu(far)[:5], torch.tensor([0.0, 0, 0, 60, 1e30])) and gelu(far)[5].isnan()
u = torch.randn(2, 9, requires_grad=True)
torch.autograd.gradcheck(gelu, u, eps=1e-2, atol=5e-3, rtol=5e-2, fast_mode=True)
torch.library.opcheck(gelu, (u,))
print("right")
"""


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_values_and_gradients_are_those_of_float64(device):
    run(PROGRAM, device)
