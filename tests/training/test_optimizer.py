import math

import pytest
import torch

from kernels.fused_model import make_model
from training.optimizers.kinds import make_optimizer
from training.optimizers.optimizer import learning_rate, set_learning_rate

CPU = torch.device("cpu")


def test_matrices_decay_and_biases_and_norms_do_not(config):
    tiny = config(bias=True, weight_decay=0.25, beta1=0.8, beta2=0.95)
    model = make_model(tiny, 11)
    optimizer = make_optimizer(model, tiny, CPU)
    decay, keep = optimizer.param_groups
    assert (decay["weight_decay"], keep["weight_decay"]) == (0.25, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert {names[id(p)] for p in keep["params"]} == {
        name for name in names.values() if ".ln_" in name or name.endswith("bias")
    }
    everything = [*decay["params"], *keep["params"]]
    assert len({id(p) for p in everything}) == len(everything) == len(names)  # tied weights once
    assert decay["betas"] == keep["betas"] == (0.8, 0.95)


def test_weight_decay_shrinks_matrices_alone(config):
    tiny = config(bias=True, weight_decay=0.5)
    model = make_model(tiny, 11)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = make_optimizer(model, tiny, CPU)
    set_learning_rate(optimizer, 0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        factor = 1 - 0.1 * 0.5 if parameter.dim() >= 2 else 1.0
        torch.testing.assert_close(parameter.detach(), before[name] * factor, msg=name)


@pytest.mark.parametrize(
    "iteration, expected",
    [
        (0, 1e-3 / 101),
        (99, 1e-3 * 100 / 101),
        (100, 1e-3),  # the warm-up's end is the peak
        (1100, 0.55e-3),  # half way between peak and min_lr
        (2100, 1e-4),
        (9999, 1e-4),
    ],
)
def test_warm_up_then_cosine(config, iteration, expected):
    keys = dict(learning_rate=1e-3, min_lr=1e-4, warmup_iters=100, lr_decay_iters=2100)
    tiny = config(max_iters=3000, **keys)
    assert learning_rate(iteration, tiny) == pytest.approx(expected, rel=1e-12)


def test_the_rate_rises_then_falls_without_a_jump(config):
    tiny = config(learning_rate=1e-3, min_lr=0, warmup_iters=20, lr_decay_iters=200, max_iters=300)
    rates = [learning_rate(iteration, tiny) for iteration in range(300)]
    assert rates[:21] == sorted(rates[:21]) and rates[20:] == sorted(rates[20:], reverse=True)
    largest_jump = max(abs(b - a) for a, b in zip(rates, rates[1:], strict=False))
    assert largest_jump < 1e-3 / 20
    assert rates[150] == pytest.approx(0.5e-3 * (1 + math.cos(math.pi * 130 / 180)))


def test_a_linear_decay_ends_at_nought(config):
    keys = dict(learning_rate=1e-2, min_lr=0.0, warmup_iters=40, lr_decay_iters=440)
    tiny = config(max_iters=440, lr_decay="linear", **keys)
    rates = [learning_rate(iteration, tiny) for iteration in (39, 40, 140, 240, 439, 440)]
    assert rates == pytest.approx([1e-2 * 40 / 41, 1e-2, 7.5e-3, 5e-3, 2.5e-5, 0.0])


def test_constant_without_decay(config):
    tiny = config(decay_lr=False, learning_rate=3e-4, min_lr=1.0)
    assert {learning_rate(iteration, tiny) for iteration in (0, 7, 10**6)} == {3e-4}


def test_a_run_shorter_than_its_warm_up(config):
    keys = dict(warmup_iters=100, lr_decay_iters=100, learning_rate=1e-3, min_lr=1e-4)
    tiny = config(max_iters=50, **keys)
    assert learning_rate(49, tiny) == pytest.approx(1e-3 * 50 / 101)
    assert learning_rate(100, tiny) == 1e-4  # and no division by zero behind it
    with pytest.raises(ValueError, match="lr_decay_iters=100: must be above warmup_iters=100"):
        config(max_iters=100, **keys)
    config(max_iters=100, decay_lr=False, **keys)
