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
from configs.schema import Config
from profiling.capture.spans import NoSpans
from training.distributed import Ranks
from training.optimizer import ClippedAdamW, adamw, keep_copies
from training.own_kernels import try_kernels
from training.step import Step

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


for bias in (False, True):
    plain = replace(small, bias=bias)
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

# what products read the optimizer keeps: autocast's numbers without its casts, to the bit
def in_16_bits(copies, compiled):
    torch.manual_seed(0)
    model = GPT(replace(small, kernels="fused", n_embd=64), 17)
    if copies:
        assert len(keep_copies(model, "bfloat16")) == 9
    call = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    with torch.autocast(x.device.type, torch.bfloat16):
        _, loss = call(x, y)
    loss.backward()
    return loss, {name: p.grad for name, p in model.named_parameters()}


for compiled in (False, True):
    expected, theirs = in_16_bits(False, compiled)
    loss, ours = in_16_bits(True, compiled)
    assert torch.equal(loss, expected), compiled
    for name, gradient in theirs.items():
        assert ours[name].dtype == torch.float32 and ours[name].is_contiguous()
        if x.is_cuda:  # where the product of a gradient leaves float32, it is not rounded first
            torch.testing.assert_close(ours[name], gradient, rtol=2e-2, atol=2e-3, msg=name)
        else:
            assert torch.equal(ours[name], gradient), (name, compiled)


# four updates of two micro-batches each, as PyTorch makes them
def losses_of(kernels, dtype):
    torch.manual_seed(0)
    keys = dict(n_layer=2, n_head=2, n_embd=32, block_size=8, batch_size=2, dropout=0.0)
    config = Config(
        **keys, attention="math", compile=False, kernels=kernels, dtype=dtype,
        gradient_accumulation_steps=2, learning_rate=1e-2, device=x.device.type,
    )
    model = GPT(config, 17)
    ranks = Ranks(0, 1, x.device)
    step = Step(model, adamw(model, config, x.device), config, ranks, NoSpans())
    assert isinstance(step.optimizer, ClippedAdamW) == (kernels == "fused")
    seen = []
    for _ in range(4):
        for half in (slice(0, 1), slice(1, 2)):
            step.backward(step.forward(x[half], y[half]))
        seen.append(step.loss.item())
        step.update(1e-2)
    return model, seen, step


for dtype, rtol in (("float32", 1e-4), ("bfloat16", 1e-2), ("float16", 1e-2)):
    _, expected, _ = losses_of("compiled", dtype)
    model, seen, step = losses_of("fused", dtype)
    assert expected[-1] < expected[0] - 0.1, expected
    torch.testing.assert_close(torch.tensor(seen), torch.tensor(expected), rtol=rtol, atol=0)
    kept = [layer.copy for layer in model.modules() if getattr(layer, "copy", None) is not None]
    assert len(kept) == (0 if dtype == "float32" else 9)
    assert dtype == "float16" or step.skipped == 0

try_kernels(replace(small, kernels="fused"), x.device, "bfloat16")
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
