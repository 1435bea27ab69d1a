"""Triton kernels of clipping and AdamW, against PyTorch's in float64."""

import pytest

from tests.helpers.kernel_programs import LONG_DEVICES, needs_triton, run

pytestmark = needs_triton

PROGRAM = r"""
import copy
import math
import sys
import torch
import kernels.optimizers.adamw_triton
from training.optimizers.optimizer import AdamW, ClippedAdamW, set_learning_rate

torch.set_default_device(sys.argv[1])
device = torch.device(sys.argv[1])
kernels.optimizers.adamw_triton.BLOCK = 64  # several blocks to a parameter, the last one cut
kernels.optimizers.adamw_triton.SUM = 4
SHAPES = ((20, 9), (33,), (3, 64), (7,))
BETAS = (0.9, 0.95)


def groups(parameters):
    return [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


def ours(values, max_norm, dtype=torch.bfloat16):
    parameters = [value.clone().requires_grad_() for value in values]
    copies = {p: torch.zeros(len(p) + 2, p.size(1), dtype=dtype) for p in parameters if p.dim() > 1}
    made = ClippedAdamW(groups(parameters), copies, max_norm, torch.tensor(0.0), BETAS)
    return parameters, made


def exact(values):
    parameters = [value.double().requires_grad_() for value in values]
    return parameters, AdamW(groups(parameters), lr=0.0, betas=BETAS)


def give(parameters, gradients):
    for p, g in zip(parameters, gradients):
        p.grad = g.to(p.dtype, copy=True)


def update(parameters, optimizer, gradients, lr, max_norm=0.0):
    give(parameters, gradients)
    if max_norm:
        torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    set_learning_rate(optimizer, lr)
    optimizer.step()


def check(a, b, made_of):
    for p, q in zip(a[0], b[0]):
        torch.testing.assert_close(p.double(), q, rtol=0, atol=4e-7 * p.abs().max().item())
        for name in ("exp_avg", "exp_avg_sq", "step"):
            ours, theirs = a[1].state[p][name], b[1].state[q][name]
            atol = 1e-6 * theirs.abs().max().item()
            # PyTorch counts the steps of its plain AdamW on the host
            ours, theirs = ours.double().cpu(), theirs.double().cpu()
            torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)
        if p in a[1].copies:
            made = a[1].copies[p]
            # a GPU rounds as autocast does; the interpreter cuts off
            rtol = 0 if p.is_cuda else 2**-7
            torch.testing.assert_close(made[: len(p)], p.to(made.dtype), rtol=rtol, atol=0)
            assert not made[len(p) :].any(), made_of


torch.manual_seed(0)
for shapes in (SHAPES, ((8, 12), (16,))):  # the second in whole fours
    for max_norm, size in ((1.0, 3.0), (1.0, 1e-3), (0.0, 3.0)):
        values = [torch.randn(shape) for shape in shapes]
        mine, theirs = ours(values, max_norm), exact(values)
        for step in range(4):
            gradients = [torch.randn(shape) * size for shape in shapes]
            lr = 0.01 / (step + 1)
            update(*mine, gradients, lr)
            update(*theirs, gradients, lr, max_norm)
            check(mine, theirs, (shapes, max_norm, size))

# a state goes from either to the other, and the counts of steps stay apart
values = [torch.randn(shape) for shape in SHAPES]
mine, theirs = ours(values, 1.0), exact(values)
gradients = [torch.randn(shape) for shape in SHAPES]
update(*mine, gradients, 0.01)
update(*theirs, gradients, 0.01, 1.0)
for _ in range(2):
    to_ours = ours([p.detach().float() for p in theirs[0]], 1.0)
    to_theirs = exact([p.detach() for p in mine[0]])
    state = {"param_groups": to_ours[1].state_dict()["param_groups"]}
    to_ours[1].load_state_dict({**state, "state": theirs[1].state_dict()["state"]})
    state = {"param_groups": to_theirs[1].state_dict()["param_groups"]}
    to_theirs[1].load_state_dict({**state, "state": copy.deepcopy(mine[1].state_dict()["state"])})
    for group in to_ours[1].param_groups:
        group["lr"] = to_ours[1].defaults["lr"]
    update(*to_ours, gradients, 0.01)
    update(*to_theirs, gradients, 0.01, 1.0)
    check(to_ours, to_theirs, "resumed")
    mine, theirs = to_ours, to_theirs
assert {int(state["step"]) for state in theirs[1].state.values()} == {3}

# what is not finite changes nothing, nor does anything behind it
for bad in (math.nan, math.inf):
    mine = ours(values, 1.0)
    update(*mine, gradients, 0.01)
    kept = [p.detach().clone() for p in mine[0]], copy.deepcopy(mine[1].state_dict()["state"])
    spoilt = [g.clone() for g in gradients]
    spoilt[1][5] = bad
    update(*mine, spoilt, 0.01)
    update(*mine, gradients, 0.01)
    assert mine[1].skipped == 2, mine[1].skipped
    assert all(torch.equal(p, was) for p, was in zip(mine[0], kept[0])), bad
    for number, state in mine[1].state_dict()["state"].items():
        assert all(torch.equal(state[name], kept[1][number][name]) for name in state), bad

# a scaler decides itself, and goes on
mine, theirs = ours(values, 1.0, torch.float16), exact(values)
scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
for step in range(3):
    gradients = [torch.randn(shape) for shape in SHAPES]
    scale = scaler.scale(torch.ones(())).item()
    scaled = [g * scale for g in gradients]
    if step == 1:
        scaled[0][2, 2] = math.inf
    give(mine[0], scaled)
    set_learning_rate(mine[1], 0.01)
    scaler.step(mine[1])
    scaler.update()
    if step != 1:
        update(*theirs, gradients, 0.01, 1.0)
    check(mine, theirs, "scaled")
assert scaler.get_scale() == 512.0 and mine[1].skipped == 0
print("right")
"""


@pytest.mark.parametrize("device", LONG_DEVICES)
def test_updates_moments_and_copies_are_those_of_float64(device):
    run(PROGRAM, device)
