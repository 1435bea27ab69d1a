"""A program of JAX: a Markov chain."""

import jax
import jax.numpy as jnp

from validation.framework_programs.parts import Mark, size


def jax_raises_matrix(fault: bool, mark: Mark) -> None:
    """Raises the chain's matrix to the 64th power for one row; without the fault multiplies it.

    Six products of matrices of 8,192 rows do what 64 products with a vector would.
    """
    states = size(8192, 16)
    chances = jax.nn.softmax(jax.random.normal(jax.random.key(0), (states, states)))
    start = jnp.ones(states) / states

    @jax.jit
    def walk(row: jax.Array, chances: jax.Array) -> jax.Array:
        if fault:
            return row @ jnp.linalg.matrix_power(chances, 64)
        return jax.lax.fori_loop(0, 64, lambda _, row: row @ chances, row)

    while True:
        mark(walk(start, chances))
