"""The Triton kernel of rotary positions, against model.rotate_qk and autograd in float64."""

import pytest

from tests.helpers.kernel_programs import LONG_DEVICES, needs_triton, run

pytestmark = needs_triton

PROGRAM = r"""
import sys
import torch
from kernels.rotary import rotate, rotate_either_way
from model import rotate_qk, rotation

torch.set_default_device(sys.argv[1])


def compare(B, T, heads, D, dtype, tolerance, places=None):
    turns = rotation(places or T, D).to(sys.argv[1])[:, :T]
    ours = torch.randn(B, T, 3 * heads * D, dtype=dtype).requires_grad_()
    wide = ours.detach().double().requires_grad_()
    out, expected = rotate(ours, turns, heads), rotate_qk(wide, turns, heads)
    dout = torch.randn(out.shape, dtype=dtype)
    out.backward(dout)
    expected.backward(dout.double())
    for a, b in ((out, expected), (ours.grad, wide.grad)):
        off = (a.double() - b).abs().max().item()
        assert a.dtype == dtype and off < tolerance, (B, T, heads, D, dtype, off)
    values = slice(2 * heads * D, None)
    assert torch.equal(out[..., values], ours[..., values]), "values stay to the bit"


torch.manual_seed(0)
compare(2, 7, 3, 8, torch.float32, 1e-6)
compare(1, 5, 6, 64, torch.float32, 1e-6)
compare(3, 4, 1, 2, torch.float32, 1e-6, places=9)  # of a context that is longer
compare(2, 6, 2, 16, torch.float16, 4e-3)

turns = rotation(6, 4).to(sys.argv[1])
qkv = torch.randn(2, 6, 24).transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
assert not qkv.is_contiguous() and torch.allclose(
    rotate_either_way(rotate(qkv, turns, 2), turns, 2, True), qkv, atol=1e-6
)
torch.library.opcheck(rotate_either_way, (qkv, turns, 2, False))
print("right")
"""


@pytest.mark.parametrize("device", LONG_DEVICES)
def test_values_and_gradients_are_those_of_float64(device):
    run(PROGRAM, device)
