"""Choice of the Gluon kernel by attention=triton; on a Hopper GPU, that it equals Triton's."""

import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest
import torch

from kernels import gluon
from tests.helpers.kernel_programs import needs_gpu, needs_triton, run

CUDA = torch.device("cuda")


@pytest.fixture
def hopper(monkeypatch):
    """Simulated Hopper GPU with a Triton that was proved."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(gluon, "version", lambda name: "3.6.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    gluon.has_gluon.cache_clear()
    yield
    gluon.has_gluon.cache_clear()


def test_gluon_is_for_hopper_and_the_triton_that_was_proved(hopper):
    assert gluon.has_gluon(CUDA)
    assert not gluon.has_gluon(torch.device("cpu"))


@pytest.mark.parametrize("version", ("3.6.0", "3.7.1", "3.9.0"))
def test_gluon_is_taken_from_each_triton_that_was_proved(hopper, monkeypatch, version):
    monkeypatch.setattr(gluon, "version", lambda name: version)
    assert gluon.has_gluon(CUDA)


@pytest.mark.parametrize("version", ("3.5.1", "3.8.0", "3.60.0", "4.0"))
def test_gluon_is_not_taken_from_another_triton(hopper, monkeypatch, version):
    monkeypatch.setattr(gluon, "version", lambda name: version)
    assert not gluon.has_gluon(CUDA)


@pytest.mark.parametrize("capability", ((8, 0), (8, 9), (10, 0), (12, 0)))
def test_gluon_is_not_taken_on_other_gpus(hopper, monkeypatch, capability):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert not gluon.has_gluon(CUDA)


def test_gluon_is_not_taken_interpreted_or_without_triton(hopper, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert not gluon.has_gluon(CUDA)
    monkeypatch.delenv("TRITON_INTERPRET")
    gluon.has_gluon.cache_clear()

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(gluon, "version", missing)
    assert not gluon.has_gluon(CUDA)


@pytest.fixture
def attention(monkeypatch):
    """kernels.attention.in_triton where there is Gluon."""
    from kernels.attention import in_triton

    monkeypatch.setattr(in_triton, "has_gluon", lambda device: True)
    return in_triton


def packed(B=2, T=128, H=3, D=64, dtype=torch.bfloat16, first=0):
    flat = torch.zeros(B * T * 3 * H * D + first, dtype=dtype)[first:]
    return flat.view(B, T, 3, H, D).unbind(2)


@needs_triton
def test_what_gluon_takes(attention):
    assert attention.gluon_fits(*packed()) and attention.gluon_fits(*packed(T=256))
    assert attention.gluon_fits(*packed(B=1, H=1), torch.zeros(1, 128, 1, 64).bfloat16())
    for other in (dict(T=64), dict(T=192), dict(T=512), dict(D=32), dict(D=128), dict(first=1)):
        assert not attention.gluon_fits(*packed(**other)), other
    for dtype in (torch.float16, torch.float32):
        assert not attention.gluon_fits(*packed(dtype=dtype)), dtype


@needs_triton
def test_what_gluon_does_not_take_of_other_shapes_and_places(attention, monkeypatch):
    q, k, v = packed()
    _, longer, _ = packed(T=256)
    assert not attention.gluon_fits(q, longer, longer)  # a part of the queries
    assert not attention.gluon_fits(q, k, v, torch.zeros_like(q, dtype=torch.float32))
    apart = torch.zeros(2, 3, 128, 64, dtype=torch.bfloat16).transpose(1, 2)
    assert not attention.gluon_fits(apart, apart, apart)
    assert not attention.gluon_fits(*(each[:, :128] for each in packed(T=256)))  # with gaps
    monkeypatch.setattr(attention, "has_gluon", lambda device: False)
    assert not attention.gluon_fits(q, k, v)


@needs_triton
def test_what_gluon_takes_of_long_sequences(attention, monkeypatch):
    fits = attention.long_gluon_fits
    for T in (512, 640, 1024, 4096):
        assert fits(*packed(B=1, T=T)), T
    for T in (128, 256, 384, 511, 513, 576, 1000):
        assert not fits(*packed(B=1, T=T)), T
    for other in (dict(D=32), dict(D=128), dict(first=1), dict(dtype=torch.float16)):
        assert not fits(*packed(T=512, **other)), other
    monkeypatch.setattr(attention, "has_gluon", lambda device: False)
    assert not fits(*packed(T=512))


@needs_triton
@pytest.mark.parametrize("dropout", (0.0, 0.2))
def test_long_sequences_go_to_gluon_where_nothing_drops(attention, monkeypatch, dropout):
    taken = []

    def of_gluon(dout, q, k, v, out, lse, dqkv):
        assert dout.is_contiguous() and dqkv.shape == (1, 512, 3, 3, 64)
        taken.append("gluon")

    class OfTriton:
        def __getitem__(self, grid):
            return lambda *given, **constants: taken.append("triton")

    ours = SimpleNamespace(launch_backward=of_gluon)
    monkeypatch.setitem(sys.modules, "kernels.attention.in_gluon_long", ours)
    monkeypatch.setattr("kernels.attention.in_gluon_long", ours, raising=False)
    monkeypatch.setattr(attention, "backward_causal_attention_triton", OfTriton())
    q, k, v = packed(B=1, T=512)
    out, lse = torch.zeros_like(q), torch.zeros(3, 512)
    attention.launch_backward(out, q, k, v, out, lse, torch.tensor([1]), dropout)
    assert taken == ["triton" if dropout else "gluon"]


@needs_triton
def test_the_launch_hands_over_what_gluon_writes(attention, monkeypatch):
    def backward(dout, q, k, v, out, lse, seed, dqkv, threshold):
        assert dout.is_contiguous()
        dqkv.fill_(threshold / 2**31)

    ours = SimpleNamespace(launch_backward=backward)
    monkeypatch.setitem(sys.modules, "kernels.attention.in_gluon", ours)
    monkeypatch.setattr("kernels.attention.in_gluon", ours, raising=False)
    q, k, v = packed()
    out, lse = torch.zeros_like(q), torch.zeros(6, 128)
    dout = torch.ones(2, 3, 128, 64, dtype=torch.bfloat16).transpose(1, 2)
    dqkv = attention.launch_backward(dout, q, k, v, out, lse, torch.tensor([1]), 0.25)
    assert dqkv.shape == (2, 128, 3, 3, 64) and bool((dqkv == 0.5).all())


PROGRAM = r"""
import torch
from kernels.attention import in_triton
from kernels.attention import packed_attention, unpack
from tests.helpers.dropout_hash import dropout_mask

torch.set_default_device("cuda")
torch.manual_seed(0)
D = 64


def attended(gluon, qkv, heads, seed, dropout, dout):
    in_triton.GLUON_TOKENS = (128, 256) if gluon else ()
    x = qkv.clone().requires_grad_()
    out, _ = packed_attention(x, heads, seed, dropout)
    out.backward(dout)
    return x.grad.chunk(3, 2)


def check_numbers(B, T, H, dropout):
    qkv = torch.randn(B, T, 3 * H * D).bfloat16()
    dout, seed = torch.randn(B, T, H * D).bfloat16(), torch.tensor([20261122 + T])
    assert in_triton.gluon_fits(*unpack(qkv, H))
    given = qkv, H, seed, dropout, dout
    ours, triton = attended(True, *given), attended(False, *given)
    for name, a, b in zip(("dq", "dk", "dv"), ours, triton):
        a, b = a.double(), b.double()
        off = ((a - b).norm() / b.norm()).item()  # bfloat16 rounds each of both by 0.0017
        assert off < 0.005, (name, B, T, H, dropout, off)
        worst = ((a - b).abs().max() / b.abs().max()).item()
        assert worst < 0.02, (name, B, T, H, dropout, worst)
    for _ in range(20):  # a race does not come each time
        again = attended(True, *given)
        assert all(torch.equal(a, b) for a, b in zip(ours, again)), (B, T, H, dropout)


def check_mask(B, T, H, dropout):
    '''Of equal scores, outputs' gradients that are 1 at a query each show its weights.'''
    seed = torch.tensor([7])
    left = dropout_mask(7, dropout, B * H * T, T).view(B, H, T, T)
    left &= torch.ones(T, T, dtype=torch.bool).tril()
    for first in range(0, T, D):
        one = torch.zeros(T, D)
        one[first : first + D] = torch.eye(D)
        one = one.bfloat16()[None, :, None].expand(B, T, H, D)
        zero = torch.zeros_like(one)
        qkv = torch.stack((zero, zero, one), 2).flatten(2)
        _, _, dv = attended(True, qkv, H, seed, dropout, one.flatten(2))
        seen = dv.view(B, T, H, D).permute(0, 2, 3, 1) > 0  # (B, H, 64 queries, keys)
        assert torch.equal(seen, left[:, :, first : first + D]), (T, dropout)


# fewer heads than programs, some programs with a head more than others, and many turns
for T in (128, 256):
    for B, H, dropout in ((1, 1, 0.2), (2, 3, 0.5), (23, 6, 0.2), (5, 6, 0.0), (160, 6, 0.2)):
        check_numbers(B, T, H, dropout)
    for dropout in (0.0, 0.2, 0.5):
        check_mask(3, T, 2, dropout)
print("right")
"""


@pytest.mark.gpu
@needs_gpu
def test_gluon_s_gradients_are_triton_s_with_the_same_mask_and_the_same_bits_each_time():
    if not gluon.has_gluon(CUDA):
        pytest.skip("needs a Hopper GPU and Triton 3.6, 3.7 or 3.9")
    run(PROGRAM, "cuda")


LONG_PROGRAM = r"""
import math
import torch
from kernels.attention import in_triton
from kernels.attention import packed_attention, unpack

torch.set_default_device("cuda")
torch.manual_seed(0)
D = 64


def gradients(qkv, heads, dout):
    x = qkv.clone().requires_grad_()
    out, _ = packed_attention(x, heads, torch.tensor([1]), 0.0)
    out.backward(dout)
    return x.grad


def gradients_in_float64(qkv, heads, dout):
    q, k, v = (x.double().transpose(1, 2).requires_grad_() for x in unpack(qkv, heads))
    later = torch.ones(q.size(2), q.size(2), dtype=torch.bool).triu(1)
    p = (q @ k.mT / math.sqrt(D)).masked_fill(later, -math.inf).softmax(-1)
    given = torch.autograd.grad((p @ v).transpose(1, 2).flatten(2), (q, k, v), dout.double())
    return torch.cat([x.transpose(1, 2).flatten(2) for x in given], 2)


# fewer blocks than programs, some programs with a block more than others, and many turns
for B, T, H in ((1, 512, 1), (2, 640, 3), (3, 1024, 12), (1, 2048, 5), (12, 1024, 12)):
    qkv, dout = torch.randn(B, T, 3 * H * D).bfloat16(), torch.randn(B, T, H * D).bfloat16()
    assert in_triton.long_gluon_fits(*unpack(qkv, H))
    ours = gradients(qkv, H, dout)
    for name, a, b in zip(
        ("dq", "dk", "dv"),
        ours.double().chunk(3, 2),
        gradients_in_float64(qkv, H, dout).chunk(3, 2),
    ):
        off = ((a - b).norm() / b.norm()).item()
        assert off < 0.005, (name, B, T, H, off)
        worst = ((a - b).abs().max() / b.abs().max()).item()
        assert worst < 0.02, (name, B, T, H, worst)
    for _ in range(20):  # a race does not come each time
        assert torch.equal(gradients(qkv, H, dout), ours), (B, T, H)
print("right")
"""


@pytest.mark.gpu
@needs_gpu
def test_gluon_s_gradients_of_long_sequences_are_those_of_float64_and_the_same_bits_each_time():
    if not gluon.has_gluon(CUDA):
        pytest.skip("needs a Hopper GPU and Triton 3.6, 3.7 or 3.9")
    run(LONG_PROGRAM, "cuda")
