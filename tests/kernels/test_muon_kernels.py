"""Triton kernels of Muon, against Muon in PyTorch."""

import pytest

from tests.helpers.kernel_programs import LONG_DEVICES, needs_triton, run

pytestmark = needs_triton

PROGRAM = r"""
import copy
import math
import sys
import torch
import kernels.optimizers.muon_triton
from configs.schema import Config
from kernels.linear import Linear
from kernels.fused_model import make_model
from training.ranks.distributed import Ranks
from training.optimizers.muon import ClippedMuon, Muon
from training.optimizers.kinds import make_optimizer
from training.step.step import Step

torch.set_default_device(sys.argv[1])
device = torch.device(sys.argv[1])
kernels.optimizers.muon_triton.SIDE = 32  # several squares to a matrix, the last ones cut
kernels.optimizers.muon_triton.SCALED = 1024
kernels.optimizers.muon_triton.SUM = 4
LR = 0.02


def make_step(width, kernels, dtype="bfloat16", weights=None, **keys):
    config = Config(
        n_layer=1, n_head=2, n_embd=width, block_size=8, dropout=0.0, attention="math",
        compile=False, kernels=kernels, dtype=dtype, optimizer="muon", learning_rate=LR,
        min_lr=0.0, weight_decay=0.3, device=device.type, **keys,
    )
    torch.manual_seed(0)
    model = make_model(config, 17)
    if weights is not None:
        model.load_state_dict(weights)
    step = Step(model, make_optimizer(model, config, device), config, Ranks(0, 1, device))
    assert type(step.optimizer) is (ClippedMuon if kernels == "fused" else Muon)
    return model, step


def give(model, seed, size=1.0):
    torch.manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn(p.shape) * size


def check(ours, theirs, moved):
    for (name, mine), other in zip(ours[0].named_parameters(), theirs[0].parameters()):
        # an orthogonal update is of bfloat16, and rounded in other places
        assert (mine - other).norm() <= moved * LR * math.sqrt(mine.numel()), name
    mine, theirs = (step.optimizer.state_dict()["state"] for _, step in (ours, theirs))
    assert mine.keys() == theirs.keys()
    for number, state in theirs.items():
        for name, value in state.items():
            atol = 2e-6 * value.abs().max().item()  # sums of products in another order
            torch.testing.assert_close(mine[number][name], value, rtol=0, atol=atol)


def copies_are_right(model, dtype):
    for layer in model.modules():
        if isinstance(layer, Linear):
            copy = layer.copy
            if dtype == "float32":
                assert copy is None
                continue
            # a GPU rounds as autocast does; the interpreter cuts off
            rtol = 0 if copy.is_cuda else 2**-7
            weight = layer.weight.to(copy.dtype)
            torch.testing.assert_close(copy[: len(weight)], weight, rtol=rtol, atol=0)


# of 24 and 96 rows and of 34 and 136: whole fours, and none; clipped, not, and never
for width, dtype, clip, size in (
    (24, "bfloat16", 1.0, 3.0), (34, "bfloat16", 1.0, 1e-5), (24, "float32", 0.0, 3.0)
):
    ours, theirs = (make_step(width, each, dtype, grad_clip=clip) for each in ("fused", "compiled"))
    for seed in (1, 2):
        for model, step in (ours, theirs):
            give(model, seed, size)
            step.update(LR / seed)
    check(ours, theirs, 0.02)
    copies_are_right(ours[0], dtype)
    assert ours[1].optimizer.skipped == theirs[1].optimizer.skipped == 0

# a state goes from either to the other
for first, then in (("fused", "compiled"), ("compiled", "fused")):
    model, step = make_step(24, first)
    give(model, 1)
    step.update(LR)
    halves = []
    for kernels in (first, then):
        other, after = make_step(24, kernels, weights=model.state_dict())
        kept = copy.deepcopy(step.optimizer.state_dict()["state"])
        groups = after.optimizer.state_dict()["param_groups"]
        after.optimizer.load_state_dict({"state": kept, "param_groups": groups})
        for group in after.optimizer.param_groups:
            group["lr"] = after.optimizer.defaults["lr"]
        give(other, 2)
        after.update(LR)
        halves.append((other, after))
    check(*halves, 0.02)
    shapes = {
        n: {name: value.shape for name, value in state.items()}
        for n, state in halves[1][1].optimizer.state_dict()["state"].items()
    }
    assert shapes == step.optimizer.state_shapes()

# what is not finite changes nothing, nor does anything behind it, nor does a rehearsal
model, step = make_step(24, "fused")
step.optimizer.rehearse()
state = step.optimizer.state_dict()["state"].values()
assert not any(value.any() for each in state for value in each.values())
give(model, 1)
step.update(LR)
kept = [p.detach().clone() for p in model.parameters()]
state = copy.deepcopy(step.optimizer.state_dict()["state"])
step.optimizer.rehearse()
for seed in (2, 3):
    give(model, seed)
    if seed == 2:
        model.transformer.h[0].mlp.c_fc.weight.grad[0, 0] = math.nan
    step.update(LR)
assert step.optimizer.skipped == 2
assert all(torch.equal(p, was) for p, was in zip(model.parameters(), kept, strict=True))
for number, each in step.optimizer.state_dict()["state"].items():
    assert all(torch.equal(each[name], state[number][name]) for name in each)
print("right")
"""


@pytest.mark.parametrize("device", LONG_DEVICES)
def test_updates_momentum_and_copies_are_those_of_pytorch_s_kernels(device):
    run(PROGRAM, device)
