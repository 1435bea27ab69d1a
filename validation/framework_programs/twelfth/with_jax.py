"""A program of JAX alone: a training within a compiled loop."""

import jax
import jax.numpy as jnp
from jax import Array

from validation.framework_programs.parts import Mark, size


def jax_reports_in_scan(fault: bool, mark: Mark) -> None:
    """Reports the loss from within each turn of a scan; without the fault all after it.

    jax.debug.print goes to Python and back, and the GPU has nothing to do until it returns.
    """
    width, turns = size(512, 8), size(100, 4)
    x = jax.random.normal(jax.random.key(0), (size(4096, 4), width))
    start = jax.random.normal(jax.random.key(1), (width, width)) * width**-0.5

    def turn(weights: Array, number: Array) -> tuple[Array, Array]:
        loss, slopes = jax.value_and_grad(lambda w: jnp.square(jnp.tanh(x @ w) - x).mean())(weights)
        if fault:
            jax.debug.print("{}: {}", number, loss)
        return weights - 0.1 * slopes, loss

    train = jax.jit(lambda weights: jax.lax.scan(turn, weights, jnp.arange(turns)))
    while True:
        weights, losses = train(start)
        if not fault:
            print(losses)
        mark(weights)
