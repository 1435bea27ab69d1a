"""Matrix products with a copy of the weight: autocast's numbers, without its casts."""

import pytest
import torch
from torch import nn

from kernels.linear import Linear, product


def trained(layer: nn.Linear, x: torch.Tensor, dy: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    y.backward(dy)
    gradients = [x.grad, *(p.grad for p in layer.parameters())]
    return [y.detach(), *(g for g in gradients if g is not None)]


def test_numbers_are_those_of_autocast_to_the_bit():
    for bias in (False, True):
        torch.manual_seed(1)
        plain, ours = nn.Linear(24, 40, bias=bias), Linear(24, 40, bias=bias)
        ours.load_state_dict(plain.state_dict())
        ours.keep_copy(torch.bfloat16)
        x, dy = torch.randn(2, 5, 24), torch.randn(2, 5, 40).bfloat16()
        expected, found = trained(plain, x, dy), trained(ours, x, dy)
        assert all(g.dtype == torch.float32 for g in found[2:])
        for a, b in zip(found[:3], expected[:3], strict=True):
            assert torch.equal(a, b)
        # autocast rounds the bias's gradient, ours does not
        torch.testing.assert_close(found[3:], expected[3:], rtol=2**-7, atol=0)


def test_a_copy_follows_a_state_that_is_loaded():
    layer = Linear(8, 4, bias=False)
    copy = layer.keep_copy(torch.bfloat16)
    assert list(layer.state_dict()) == ["weight"]
    layer.load_state_dict({"weight": torch.full((4, 8), 3.0)})
    assert torch.equal(copy, torch.full((4, 8), 3.0).bfloat16())


def test_the_copy_is_what_is_read_in_evaluation_too():
    layer = Linear(8, 4, bias=False)
    layer.keep_copy(torch.bfloat16).zero_()
    assert not layer(torch.ones(1, 8)).any()
    assert not layer.eval()(torch.ones(1, 8)).any()


@pytest.mark.slow
def test_gradients_and_fake_tensors_are_right():
    x, weight, bias = torch.randn(2, 3, 8), torch.randn(4, 8), torch.randn(4)
    inputs = [each.requires_grad_() for each in (x, weight, bias)]

    def call(x, weight, bias):
        return product(x, weight, weight.detach(), bias)

    torch.autograd.gradcheck(call, inputs, eps=1e-2, atol=5e-3, rtol=5e-2, fast_mode=True)
    torch.library.opcheck(product, (x, weight, weight.detach(), bias))
