"""A program of Optax: AdamW under JAX's search for numbers that are none."""

import jax
import jax.numpy as jnp
import optax
from jax import Array

from validation.framework_programs.parts import Mark, size


def optax_looks_for_nans(fault: bool, mark: Mark) -> None:
    """Trains under JAX_DEBUG_NANS, left over from a search; without the fault it is off.

    What a compiled step returns, 400 MB of weights and moments, comes to the host to be looked at.
    """
    width = size(2048, 8)
    optimizer = optax.adamw(1e-4)
    keys = jax.random.split(jax.random.key(0), 8)
    weights = [jax.random.normal(key, (width, width)) * width**-0.5 for key in keys]
    moments = optimizer.init(weights)
    x = jax.random.normal(jax.random.key(1), (size(1024, 4), width))

    def loss(weights: list[Array]) -> Array:
        h = x
        for each in weights:
            h = h + jnp.tanh(h @ each)
        return jnp.square(h).mean()

    @jax.jit
    def train(weights: list[Array], moments: optax.OptState) -> tuple[list[Array], optax.OptState]:
        changes, moments = optimizer.update(jax.grad(loss)(weights), moments, weights)
        return optax.apply_updates(weights, changes), moments

    while True:
        weights, moments = train(weights, moments)
        mark(weights)
