"""Programs of Flax, with the optimizers of Optax."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from validation.framework_programs.parts import Mark, size


class Perceptron(nn.Module):
    width: int
    layers: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(self.layers):
            x = x + nn.gelu(nn.Dense(self.width)(nn.LayerNorm()(x)))
        return x


def training(width: int, layers: int, batch: int) -> tuple[Any, Callable[[Any], Any]]:
    """Weights with the optimizer's state, and a compiled step from them to the next, and a loss."""
    model, optimizer = Perceptron(width, layers), optax.adamw(1e-4)
    x = jax.random.normal(jax.random.key(0), (batch, width))
    weights = model.init(jax.random.key(1), x)

    @jax.jit
    def step(state: Any) -> Any:
        weights, moments = state
        loss, gradients = jax.value_and_grad(lambda w: jnp.square(model.apply(w, x)).mean())(
            weights
        )
        updates, moments = optimizer.update(gradients, moments, weights)
        return (optax.apply_updates(weights, updates), moments), loss

    return (weights, optimizer.init(weights)), step


def flax_waits(fault: bool, mark: Mark) -> None:
    """Waits for each step, to time it; without the fault the host runs ahead.

    The next step is dispatched only when the GPU has nothing left to do.
    """
    state, step = training(size(512, 16), 4, size(4096, 4))
    while True:
        state, loss = step(state)
        if fault:
            jax.block_until_ready(state)
        mark(loss)


def flax_histograms(fault: bool, mark: Mark) -> None:
    """Logs a histogram of each layer's weights after each step, made by NumPy.

    The GPU waits while the host counts millions of numbers.
    """
    state, step = training(size(768, 16), 8, size(4096, 4))
    counts = []
    while True:
        state, loss = step(state)
        if fault:
            host = jax.device_get(state[0])
            counts = [np.histogram(weight, 64, (-2, 2))[0] for weight in jax.tree.leaves(host)]
        mark((loss, counts))


def flax_platform_allocator(fault: bool, mark: Mark) -> None:
    """Trains under XLA_PYTHON_CLIENT_ALLOCATOR=platform, which is meant for shared GPUs.

    Each array that a step returns is allocated by the driver, and freed after the next.
    """
    state, step = training(size(1024, 16), 16, size(2048, 4))
    while True:
        state, loss = step(state)
        mark(loss)
