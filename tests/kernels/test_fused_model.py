"""The model with kernels=fused: the same loss and gradients as without."""

import pytest

from tests.helpers.kernel_programs import DEVICES, needs_triton, run

pytestmark = needs_triton

PROGRAM = r"""
from dataclasses import replace
import sys
import torch
from configs.model import ModelConfig
from model import GPT
from training.own_kernels import try_kernels

torch.set_default_device(sys.argv[1])

small = ModelConfig(n_layer=2, n_head=2, n_embd=32, block_size=8, dropout=0.0, attention="math")
x, y = torch.randint(17, (2, 2, 8))
y[0, :3] = -1


def trained(config, compiled=False):
    torch.manual_seed(0)
    model = GPT(config, 17)
    call = torch.compile(model, backend="aot_eager") if compiled else model
    logits, loss = call(x, y)
    loss.backward()
    return model, logits, loss, {name: p.grad for name, p in model.named_parameters()}


ways = (
    {},
    {"bias": True, "positions": "rotary"},
    {"bias": True, "activation": "gelu_tanh"},
)
for way in ways:
    plain = replace(small, **way)
    _, _, expected, theirs = trained(plain)
    for compiled in (False, True):
        model, logits, loss, ours = trained(replace(plain, kernels="fused"), compiled)
        assert logits.shape == (2, 0, 17)
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
        for name, gradient in theirs.items():
            torch.testing.assert_close(ours[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
    logits, loss = model.eval()(x, y)
    assert logits.shape == (2, 8, 17)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)

for places in ("learned", "rotary"):
    try_kernels(replace(small, kernels="fused", positions=places), x.device, "bfloat16", 17)
dropping = GPT(replace(small, kernels="fused", dropout=0.5), 17)
with torch.no_grad():
    assert dropping(x, y)[1] != dropping(x, y)[1]
    dropping.eval()
    assert dropping(x, y)[1] == dropping(x, y)[1]
print("right")
"""


@pytest.mark.parametrize("device", DEVICES)
def test_loss_and_gradients_are_those_of_pytorch_s_kernels(device):
    run(PROGRAM, device)
