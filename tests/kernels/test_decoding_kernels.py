"""Triton kernels for single tokens, against float64 and PyTorch's way to decode one."""

import pytest

from tests.helpers.kernel_programs import LONG_DEVICES, needs_triton, run

pytestmark = needs_triton

KERNELS = r"""
import sys
import torch
from torch.nn import functional as F
import kernels.decoding.in_triton
from kernels.decoding import attend_newest, draw_newest, linear_of_norm
from model import attend

torch.set_default_device(sys.argv[1])


def assert_near(ours, exact, *case):
    error = ((ours - exact).norm() / exact.norm()).item()
    assert error < 2e-6, (error, *case)


def attention(B, H, D, S, there):
    qkv, kept = 2 * torch.randn(B, 3 * H * D), torch.randn(B, S, 2 * H * D)
    kept[:, there:] = torch.nan  # what is not there yet is not read
    before = kept.clone()
    out = attend_newest(qkv, kept, torch.tensor([there]), H)
    assert torch.equal(kept[:, there], qkv[:, H * D :]), "the newest is not stored"
    kept[:, there] = torch.nan
    assert torch.equal(kept.nan_to_num(), before.nan_to_num()), "another key was written"
    kept[:, there] = qkv[:, H * D :]
    q = qkv[:, : H * D].double().view(B, 1, H, D).transpose(1, 2)
    k, v = kept[:, : there + 1].double().view(B, there + 1, 2, H, D).permute(2, 0, 3, 1, 4)
    seen = torch.ones(1, there + 1, dtype=torch.bool)
    exact = attend(q, k, v, "slow", 0.0, seen)
    assert_near(out.view(B, H, 1, D), exact, B, H, D, S, there)


def linear(B, C, outputs, norm_bias, bias, gelu):
    x, weight = 3 * torch.randn(B, C) + 1, torch.randn(outputs, C)
    norm = [torch.randn(C), torch.randn(C) if norm_bias else None]
    added = torch.randn(outputs) if bias else None
    wide = [None if each is None else each.double() for each in (*norm, weight, added)]
    exact = F.linear(F.layer_norm(x.double(), (C,), *wide[:2], 1e-5), *wide[2:])
    ours = linear_of_norm(x, *norm, weight, added, gelu)
    assert_near(ours, F.gelu(exact) if gelu else exact, B, C, outputs, norm_bias, bias, gelu)


def draw(B, V, N, index, at):
    logits, noise = torch.randn(B, V), torch.randn(B, N, V)
    logits[:, V // 2] = logits[:, -1] = 9  # a tie, but for noise
    noise[:, index, V // 2] = noise[:, index, -1] = 5
    logits[:, 1] = -torch.inf
    token, context = torch.full((B, 1), -1), torch.full((B, 7), -1)
    for _ in range(2):
        expected = (logits / 0.7 + noise[:, index]).argmax(-1)
        places = torch.tensor([index]), 0.7, torch.tensor([at])
        draw_newest(logits, noise, *places, token, context)
        assert torch.equal(token[:, 0], expected) and torch.equal(context[:, at], expected)
        assert (context >= 0).sum() == B, "another place was written"
        logits[:, V // 2] = logits[:, -1] = -9


torch.manual_seed(0)
draw(3, 5, 2, 1, 6)
draw(2, 65, 4, 0, 0)
kernels.decoding.in_triton.VOCABULARY = 16  # several blocks to a row
draw(2, 70, 3, 2, 4)
for case in ((1, 1, 16, 1, 0), (2, 3, 32, 9, 1), (2, 2, 16, 200, 64), (3, 2, 64, 256, 199)):
    attention(*case)
attention(1, 1, 128, 130, 129)  # the last one that fits
linear(1, 24, 72, False, False, False)
linear(2, 48, 65, True, True, False)
linear(17, 32, 40, True, False, True)
linear(3, 80, 16, False, True, True)

half = linear_of_norm(
    torch.randn(2, 32).bfloat16(), torch.ones(32).bfloat16(), None,
    torch.randn(20, 32).bfloat16(), None,
)
assert half.dtype == torch.bfloat16 and half.shape == (2, 20)
wide = torch.zeros(1, 600)
for reason, call in (
    ("n_head = 24", lambda: attend_newest(wide[:, :72], wide[None, :, :48], wide[0].long(), 1)),
    ("n_embd = 600 is too wide", lambda: linear_of_norm(wide, wide[0], None, wide, None)),
):
    try:
        call()
    except NotImplementedError as error:
        assert reason in str(error), error
    else:
        raise AssertionError(f"{reason} was taken")
print("right")
"""

MODEL = r"""
import sys
import torch
from configs.model import ModelConfig
from kernels.fused_model import make_model
from training.sampling.decode import KeyValueCache, read, try_own_kernels
from training.sampling.generation import Writer

torch.set_default_device(sys.argv[1])


@torch.no_grad()
def compare(heads, n_layer=1, **keys):
    config = ModelConfig(
        n_layer=n_layer, n_head=heads, n_embd=32, block_size=8, dropout=0.0, **keys
    )
    torch.manual_seed(1)
    model = make_model(config, 65).eval()
    for parameter in model.parameters():
        parameter += 0.2 * torch.randn_like(parameter)
    try_own_kernels(model, 3)
    idx = torch.randint(65, (3, 8))
    cache = KeyValueCache(model, 3, own=True)
    for prompt in (1, 4):  # the second text must not see what the first one left
        cache.clear()
        logits = read(model, idx[:, :prompt], cache)
        for length in range(prompt, 9):
            expected = model(idx[:, :length])[0][:, -1]
            torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
            assert cache.length == cache.position.item() == length and cache.keys == 8
            if length < 8:
                logits = read(model, idx[:, length : length + 1], cache)
    return model


def text(own, model):
    # the prompt, single tokens, and behind a full context its half again
    writer = Writer(model, 2, 1.0, 20, own)
    writer.begin([3, 1], seed=1)
    tokens = []
    for _ in range(11):
        writer.step()
        tokens.append(writer.token.clone())
    return torch.cat(tokens, 1).tolist()


model = compare(2, n_layer=2)
assert text(True, model) == text(False, model)
compare(1, bias=True, activation="gelu_tanh")
compare(2, positions="rotary")
try:
    try_own_kernels(make_model(ModelConfig(n_layer=1, n_head=2, n_embd=48, dropout=0.0), 65), 1)
except ValueError as error:
    assert "n_embd/n_head = 24" in str(error), error
else:
    raise AssertionError("a width of 24 was taken")
print("right")
"""


@pytest.mark.parametrize("device", LONG_DEVICES)
def test_attention_and_products_are_those_of_float64(device):
    run(KERNELS, device)


@pytest.mark.slow
@pytest.mark.parametrize("device", LONG_DEVICES)
def test_a_model_read_by_them_has_the_logits_of_the_model(device):
    run(MODEL, device)
