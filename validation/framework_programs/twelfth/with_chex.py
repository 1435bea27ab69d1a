"""A program of Chex beside JAX: gradients that are checked."""

import chex
import jax
import jax.numpy as jnp
from jax import Array

from validation.framework_programs.parts import Mark, size

Weights = list[Array]


def chex_checks_on_host(fault: bool, mark: Mark) -> None:
    """Asserts by Chex that all gradients are finite; without the fault a compiled sum of them.

    Chex asks NumPy: 100 MB of gradients go to pageable memory in each step.
    """
    width = size(2048, 16)
    x = jax.random.normal(jax.random.key(0), (size(2048, 4), width))
    first, *keys = jax.random.split(jax.random.key(1), size(7, 3))
    weights = [jax.random.normal(key, (width, width)) * width**-0.5 for key in keys]

    def loss(weights: Weights) -> Array:
        h = x
        for each in weights:
            h = jnp.tanh(h @ each)
        return jnp.square(h).mean()

    gradients_of = jax.jit(jax.grad(loss))
    finite = jax.jit(lambda slopes: jnp.isfinite(jnp.stack([g.sum() for g in slopes])).all())
    update = jax.jit(lambda *both: jax.tree.map(lambda w, g: w - 0.1 * g, *both))
    while True:
        slopes = gradients_of(weights)
        if fault:
            chex.assert_tree_all_finite(slopes)
        else:
            assert finite(slopes)
        weights = update(weights, slopes)
        mark(weights)
