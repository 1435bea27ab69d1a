import copy
import math

import pytest
import torch

from tests.helpers.steps import RANKS, batch, iterate, make_step
from train import batches_of
from training.step.warm_up import first_micro_step, warm_up


def test_micro_batches_add_up_to_one_large_batch(config):
    x, y = batch(12)
    keys = dict(grad_clip=0.0)
    whole = make_step(config, **keys)
    parts = make_step(config, gradient_accumulation_steps=3, **keys)
    assert (whole.micro_steps, parts.micro_steps) == (1, 3)
    for step in (whole, parts):
        micro_batches = zip(x.chunk(step.micro_steps), y.chunk(step.micro_steps), strict=True)
        for micro_x, micro_y in micro_batches:
            step.backward(step.forward(micro_x, micro_y))
    for a, b in zip(whole.parameters, parts.parameters, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-6)
    torch.testing.assert_close(whole.loss, parts.loss, rtol=0, atol=1e-6)


def test_loss_is_the_mean_of_the_iteration_s_micro_losses_alone(config):
    step = make_step(config, gradient_accumulation_steps=4)
    for seed in range(3):  # the second iteration must not hold on to the first
        losses = iterate(step, *batch(8, seed))
        assert step.loss.item() == pytest.approx(sum(losses) / 4, abs=1e-6)
    assert not step.loss.requires_grad


def test_update_follows_the_learning_rate_and_drops_the_gradients(config):
    step = make_step(config)
    before = [p.detach().clone() for p in step.parameters]
    iterate(step, *batch(4), lr=0.0)
    assert all(torch.equal(p, b) for p, b in zip(step.parameters, before, strict=True))
    assert all(p.grad is None for p in step.parameters)
    iterate(step, *batch(4), lr=1e-3)
    moved = [(p - b).abs().max().item() for p, b in zip(step.parameters, before, strict=True)]
    assert 0 < max(moved) < 2e-3


@pytest.mark.parametrize("grad_clip", [0.0, 0.01, 1000.0])
def test_clipping_bounds_the_norm_of_all_gradients_together(config, grad_clip):
    step = make_step(config, grad_clip=grad_clip)
    step.backward(step.forward(*batch(4)))
    before = [p.grad.clone() for p in step.parameters]
    norm = torch.cat([gradient.flatten() for gradient in before]).norm().item()
    assert 0.01 < norm < 1000
    step.clip_and_step()
    factor = 0.01 / norm if grad_clip == 0.01 else 1.0
    for parameter, gradient in zip(step.parameters, before, strict=True):
        torch.testing.assert_close(parameter.grad, gradient * factor, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("grad_clip", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_update_that_is_not_finite_leaves_the_weights_and_is_counted(config, grad_clip, bad):
    step = make_step(config, grad_clip=grad_clip)
    iterate(step, *batch(4))
    weights = [p.detach().clone() for p in step.parameters]
    moments = copy.deepcopy(step.optimizer.state_dict()["state"])
    step.backward(step.forward(*batch(4)) * bad)
    step.update(1e-3)
    for seed in (1, 2):  # nor do good ones after it train on: the host has not seen it yet
        iterate(step, *batch(4, seed))
        assert all(torch.equal(p, w) for p, w in zip(step.parameters, weights, strict=True))
        torch.testing.assert_close(
            step.optimizer.state_dict()["state"], moments, rtol=0, atol=0, equal_nan=False
        )
    assert step.readings["train/skipped_updates"].item() == 3
    fresh = make_step(config, grad_clip=grad_clip)
    iterate(fresh, *batch(4))
    assert fresh.readings["train/skipped_updates"].item() == 0
    assert not any(p.grad is not None for p in step.parameters)


def test_bfloat16_computes_in_bfloat16_and_keeps_float32(config):
    plain, low = make_step(config), make_step(config, dtype="bfloat16")
    x, y = batch(4)
    share = low.forward(x, y)
    low.backward(share)
    assert share.dtype == torch.float32
    assert {p.dtype for p in low.parameters} == {p.grad.dtype for p in low.parameters}
    assert low.parameters[0].dtype == torch.float32
    difference = (share - plain.forward(x, y)).abs().item()
    assert 0 < difference < 2e-2


@pytest.mark.parametrize("trained", [False, True])
def test_warm_up_changes_nothing(config, trained):
    keys = dict(dropout=0.3, gradient_accumulation_steps=2)
    step = make_step(config, **keys)
    if trained:
        iterate(step, *batch(8))
    weights = [p.detach().clone() for p in step.parameters]
    optimizer = copy.deepcopy(step.optimizer.state_dict())
    random_state = torch.get_rng_state()
    ready, facts = warm_up(step, *batch(4), config(**keys), RANKS)
    assert ready is step
    assert all(torch.equal(p, w) for p, w in zip(step.parameters, weights, strict=True))
    assert all(p.grad is None for p in step.parameters)
    torch.testing.assert_close(step.optimizer.state_dict(), optimizer, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random_state)
    losses = iterate(step, *batch(8))  # nor does it count into the first iteration
    assert step.loss.item() == pytest.approx(sum(losses) / 2, abs=1e-6)
    assert facts.attention.ran == "math"  # the fused CPU kernel has no dropout
    assert facts.compile.compile_s is None and facts.compile.capture_s is None
    assert facts.compile.graphs == 0


@pytest.mark.slow
def test_a_compiler_that_fails_is_one_line(config):
    def backend(graph, inputs):
        raise OSError("no C compiler here")

    step, (x, y) = make_step(config), batch(4)
    step.model = torch.compile(step.model, backend=backend)
    with pytest.raises(ValueError, match="^compile=true: .*use compile=false: .*no C compiler"):
        first_micro_step(step, x, y, config(compile=True))


def test_warm_up_uses_the_batch_that_training_begins_with(config, prepared):
    """Drawing it for the warm-up leaves the order of batches as it is."""
    tiny = config()
    dataset = prepared(tiny)
    touched, fresh = (batches_of(dataset, "train", tiny, RANKS) for _ in range(2))
    touched.draw(0, 0)
    for iteration in range(3):
        for a, b in zip(touched.draw(iteration, 0), fresh.draw(iteration, 0), strict=True):
            assert torch.equal(a, b)
