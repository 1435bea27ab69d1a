"""GELU between two matrix products, against float64; and our own products, where they run."""

import pytest
import torch

from tests.helpers.kernel_programs import LONG_DEVICES, needs_gpu, needs_triton, run

pytestmark = needs_triton

PROGRAM = r"""
import sys
import torch
from torch.nn import functional as F
from kernels.linear import Linear
from kernels.mlp import gelu_between, product_and_gelu, product_of_gelu

torch.set_default_device(sys.argv[1])


def trained(call, first, second, x, dy):
    x = x.clone().requires_grad_()
    y = call(x, first, second)
    y.backward(dy.to(y.dtype))
    return [y.detach(), x.grad, *(p.grad for layer in (first, second) for p in layer.parameters())]


def exact(x, first, second):
    return second(F.gelu(first(x)))


for bias in (False, True):
    torch.manual_seed(1)
    layers = Linear(24, 96, bias), Linear(96, 24, bias)
    wide = torch.nn.Linear(24, 96, bias).double(), torch.nn.Linear(96, 24, bias).double()
    for ours, theirs in zip(layers, wide):
        theirs.load_state_dict(ours.state_dict())
        ours.keep_copy(torch.float32)
    x, dy = torch.randn(3, 5, 24), torch.randn(3, 5, 24)  # 15 rows: no tile has so few
    expected = trained(exact, *wide, x.double(), dy)
    for call in (gelu_between, torch.compile(gelu_between, backend="aot_eager", fullgraph=True)):
        for layer in layers:
            layer.zero_grad()
        for a, b in zip(trained(call, *layers, x, dy), expected, strict=True):
            assert a.dtype == torch.float32
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)

x, w, v = torch.randn(2, 3, 8), torch.randn(16, 8), torch.randn(8, 16)
x, w, v = (each.requires_grad_() for each in (x, w, v))


def both(x, w, v):
    u, g = product_and_gelu(x, w, w.detach(), None)
    assert u.requires_grad and not g.requires_grad
    return product_of_gelu(u, g, v, v.detach(), None)


torch.autograd.gradcheck(both, (x, w, v), eps=1e-2, atol=1e-2, rtol=5e-2, fast_mode=True)
torch.library.opcheck(product_and_gelu, (x, w, w.detach(), None))
u, g = product_and_gelu(x.detach(), w, w.detach(), None)
torch.library.opcheck(product_of_gelu, (u.detach().requires_grad_(), g, v, v.detach(), None))
print("right")
"""

OWN = r"""
import torch
from torch.nn import functional as F
from kernels import linear
from kernels.gluon import has_gluon
from kernels.linear import own_product
from kernels.linear.tiles import GELU, GELU_BACKWARD, PLAIN, Stream, Tile

torch.set_default_device("cuda")
torch.manual_seed(0)


def compare(rows, C, O, transposed, kind, tile):
    linear.TILES[C, O, transposed, kind] = tile
    x = torch.randn(rows, C).bfloat16()
    w = (torch.randn(*((O, C) if transposed else (C, O))) * C**-0.5).bfloat16()
    u = torch.randn(rows, O).bfloat16() if kind == GELU_BACKWARD else None
    found = own_product(x, w, None, transposed, kind, u)
    if rows % (64 if isinstance(tile, Tile) else 128):
        assert found is None
        return
    y = x.double() @ (w.t() if transposed else w).double()
    expected = y, y
    if kind == GELU:
        expected = y, F.gelu(y)
    if kind == GELU_BACKWARD:
        wide = u.double().requires_grad_()
        F.gelu(wide).backward(y)
        expected = wide.grad, wide.grad
    for a, b in zip(found, expected):  # bfloat16 itself is 0.0017 off, twice rounded 0.0024
        off = ((a.double() - b).norm() / b.norm()).item()
        assert off < 0.003, (rows, C, O, transposed, kind, tile, off)
    for _ in range(20):  # a race does not come each time
        again = own_product(x, w, None, transposed, kind, u)
        assert all(torch.equal(a, b) for a, b in zip(found, again)), (C, O, kind, tile)


assert own_product(torch.ones(64, 48), torch.ones(32, 48), None, True) is None
if has_gluon(torch.device("cuda")):
    measured = dict(linear.TILES)
    for (C, O, transposed, kind), tile in measured.items():
        for rows in (64, 100, 128, 64 * 133, 16_384):
            compare(rows, C, O, transposed, kind, tile)
    for kind in (PLAIN, GELU, GELU_BACKWARD):  # a ring shorter than a tile, and a last tile cut
        for rows in (64, 64 * 3, 64 * 301):
            compare(rows, 384, 512, True, kind, Tile(128, 64, 3))
    compare(64 * 301, 256, 512, False, PLAIN, Tile(256, 32, 5))
    compare(64 * 301, 128, 512, True, PLAIN, Tile(256, 64, 2))
    tiles = [Stream(128, 64, 5, 2), Stream(128, 32, 9, 4), Stream(64, 64, 3, 1)]
    for tile in tiles:  # one tile, fewer than there are programs, and many
        for rows in (64, 128, 128 * 3, 128 * 151):
            compare(rows, 256, 512, True, GELU, tile)
            compare(rows, 384, 256, False, GELU_BACKWARD, tile)
            compare(rows, 1024, 512, False, PLAIN, tile)
print("right")
"""


@pytest.mark.parametrize("device", LONG_DEVICES)
def test_two_products_and_their_gradients_are_those_of_float64(device):
    run(PROGRAM, device)


def test_a_stream_takes_what_its_tiles_divide():
    pytest.importorskip("triton.experimental.gluon.nvidia.hopper")
    from kernels.linear.in_gluon import fits
    from kernels.linear.tiles import Stream

    def taken(tile, rows=256, C=256, N=512, transposed=True, dtype=torch.bfloat16):
        x = torch.zeros(2, rows // 2, C, dtype=dtype)
        weight = torch.zeros((N, C) if transposed else (C, N), dtype=torch.bfloat16)
        return fits(x, weight, transposed, tile, None)

    tile = Stream(128, 64, 5, 2)
    assert taken(tile) and taken(tile, transposed=False) and taken(tile, rows=384, C=64)
    assert not taken(tile, rows=320) and not taken(tile, rows=0)  # 64 rows are half of a tile
    assert not taken(tile, N=448) and not taken(tile, C=288)
    assert not taken(tile, dtype=torch.float32)
    x, weight = torch.zeros(2, 128, 64).bfloat16(), torch.zeros(128, 64).bfloat16()
    assert fits(x, weight, True, tile, None) and not fits(x.mT, weight, True, tile, None)
    apart = torch.zeros(2 * 128 * 64 + 1).bfloat16()[1:].view(2, 128, 64)
    assert not fits(apart, weight, True, tile, None)  # not at a multiple of 16 bytes


@pytest.mark.gpu
@needs_gpu
def test_our_own_products_are_those_of_float64():
    run(OWN, "cuda")
