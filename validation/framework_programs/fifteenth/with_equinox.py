"""A program of Equinox: layers that are left out where nothing is left to do."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from validation.framework_programs.parts import Mark, size


def equinox_leaves_by_cond(fault: bool, mark: Mark) -> None:
    """Leaves out each of 128 layers by lax.cond where all rows are sure; without it by jnp.where.

    The host reads a condition before it launches a branch, in a compiled step as well.
    """
    width = size(256, 8)
    key, *keys = jax.random.split(jax.random.key(0), size(129, 3))
    layers = [eqx.nn.Linear(width, width, key=of_layer) for of_layer in keys]
    x, judge = jax.random.normal(key, (size(256, 4), width)), jnp.full(width, 1 / width)

    @eqx.filter_jit
    def run(layers: list[eqx.nn.Linear], x: Array) -> Array:
        for layer in layers:
            go_on = jax.tree_util.Partial(lambda layer, x: x + jnp.tanh(jax.vmap(layer)(x)), layer)
            sure = (x @ judge).min() > 1
            x = jax.lax.cond(sure, lambda x: x, go_on, x) if fault else jnp.where(sure, x, go_on(x))
        return x

    while True:
        mark(run(layers, x))
