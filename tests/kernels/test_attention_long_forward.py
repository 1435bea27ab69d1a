"""When attention=triton takes the long forward in Gluon; and on a Hopper GPU what it computes."""

import sys
from types import SimpleNamespace

import pytest
import torch

from kernels import gluon
from tests.helpers.kernel_programs import needs_gpu, needs_triton, run


@pytest.fixture
def attention(monkeypatch):
    """kernels.attention_triton where there is Gluon, and a kernel that writes what it was given."""
    from kernels import attention_triton

    def forward(q, k, v, out, lse):
        out.copy_(q + k + v)
        lse.fill_(q.size(1))

    ours = SimpleNamespace(launch_forward=forward)
    monkeypatch.setattr(attention_triton, "has_gluon", lambda device: True)
    monkeypatch.setitem(sys.modules, "kernels.attention_long_forward_gluon", ours)
    monkeypatch.setattr("kernels.attention_long_forward_gluon", ours, raising=False)
    return attention_triton


def packed(B=1, T=512, H=2, D=64, dtype=torch.bfloat16):
    return torch.ones(B, T, 3, H, D, dtype=dtype).unbind(2)


@needs_triton
def test_what_the_long_forward_takes(attention):
    for T in (512, 640, 1024, 2048):
        assert attention.gluon_fits_forward(*packed(T=T)), T
    for other in (dict(T=128), dict(T=256), dict(T=384), dict(T=576), dict(T=1000), dict(D=32)):
        assert not attention.gluon_fits_forward(*packed(**other)), other
    assert not attention.gluon_fits_forward(*packed(dtype=torch.float16))
    assert not attention.gluon_fits_forward(packed()[0], *packed(T=1024)[1:])


@needs_triton
def test_the_launch_takes_it_without_dropout_alone(attention, monkeypatch):
    q, k, v = packed(B=2)
    out, lse = attention.launch_forward(q, k, v, torch.tensor([1]), 0.0)
    assert out.shape == (2, 512, 2, 64) and out.is_contiguous() and bool((out == 3).all())
    assert lse.shape == (4, 512) and lse.dtype == torch.float32 and bool((lse == 512).all())

    def launched(*grid):
        raise ZeroDivisionError

    class Launch:
        __getitem__ = launched

    monkeypatch.setattr(attention, "forward_causal_attention_triton", Launch())
    for given in ((q, k, v, 0.1), (q[:, -128:], k, v, 0.0), (*packed(T=256), 0.0)):
        *tensors, dropout = given
        with pytest.raises(ZeroDivisionError):
            attention.launch_forward(*tensors, torch.tensor([1]), dropout)


PROGRAM = r"""
import math
import torch
from kernels import attention_triton

torch.set_default_device("cuda")
torch.manual_seed(0)
D = 64
seed = torch.tensor([1])


def attended(q, k, v):
    assert attention_triton.gluon_fits_forward(q, k, v)
    return attention_triton.launch_forward(q, k, v, seed, 0.0)


def expected(q, k, v):
    q, k, v = (x.transpose(1, 2).double() for x in (q, k, v))
    s = q @ k.transpose(2, 3) * (math.log2(math.e) / math.sqrt(D))
    T = s.size(-1)
    s.masked_fill_(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
    lse = torch.logsumexp(s * math.log(2), -1) * math.log2(math.e)
    return (torch.exp2(s - lse[..., None]) @ v).transpose(1, 2), lse.flatten(0, 1)


def check_numbers(B, T, H, gain):
    qkv = torch.randn(B, T, 3, H, D)
    qkv[:, :, 0] *= gain  # softmax with few large weights
    q, k, v = qkv.bfloat16().unbind(2)
    out, lse = attended(q, k, v)
    right, right_lse = expected(q, k, v)
    off = ((out - right).norm() / right.norm()).item()
    assert off < 0.004, (B, T, H, gain, off)  # bfloat16 rounds weights and outputs by 0.0017 each
    assert (lse - right_lse).abs().max() < 1e-3 * gain, (B, T, H, gain)
    for _ in range(20):  # a race does not come each time
        again, again_lse = attended(q, k, v)
        assert torch.equal(out, again) and torch.equal(lse, again_lse), (B, T, H, gain)


def check_mask(T):
    '''What lies behind a query changes no bit of its output.'''
    q, k, v = torch.randn(2, T, 3, 2, D).bfloat16().unbind(2)
    out, lse = attended(q, k, v)
    for seen in (1, 63, 64, 65, 127, 128, 300, T - 1):
        k2, v2 = k.clone(), v.clone()
        k2[:, seen:], v2[:, seen:] = 100, 1e30
        q2, k2, v2 = torch.stack((q, k2, v2), 2).unbind(2)
        other, other_lse = attended(q2, k2, v2)
        assert torch.equal(out[:, :seen], other[:, :seen]), (T, seen)
        assert torch.equal(lse[:, :seen], other_lse[:, :seen]), (T, seen)


# fewer tiles than programs, tiles that are not full, programs with a tile more than others
for B, T, H in ((1, 512, 1), (2, 640, 3), (1, 1152, 5), (12, 1024, 12), (3, 2048, 12)):
    check_numbers(B, T, H, 1)
check_numbers(2, 1024, 12, 20)
for T in (512, 1024):
    check_mask(T)
print("right")
"""


@pytest.mark.gpu
@needs_gpu
def test_the_long_forward_is_that_of_float64_and_has_the_same_bits_each_time():
    if not gluon.has_gluon(torch.device("cuda")):
        pytest.skip("needs a Hopper GPU and Triton 3.6")
    run(PROGRAM, "cuda")
