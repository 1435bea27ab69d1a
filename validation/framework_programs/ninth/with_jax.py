"""A program of JAX alone: a loader by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.with_jax import layers, update


def jax_stacks_rows(fault: bool, mark: Mark) -> None:
    """Stacks a batch of 128 rows that it takes one by one; without the fault all at once.

    Each index and each operand of the stack is an operator of its own, for a few kilobytes.
    """
    width, rows, batch = size(2048, 16), size(50_000, 40), size(128, 4)
    samples = jax.random.normal(jax.random.key(0), (rows, width))
    weights, step, chance = layers(width, 4), jax.jit(update), np.random.default_rng(0)
    while True:
        chosen = chance.integers(0, rows, batch)
        x = jnp.stack([samples[int(row)] for row in chosen]) if fault else samples[chosen]
        weights, loss = step(weights, x)
        mark(loss)
