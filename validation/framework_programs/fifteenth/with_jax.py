"""A program of JAX: a choice of branches under vmap."""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from validation.framework_programs.parts import Mark, size


def jax_maps_over_branches(fault: bool, mark: Mark) -> None:
    """Chooses a layer for each of eight tasks by lax.switch under vmap; without it by lax.map.

    Under vmap a switch is a selection: each task goes through all eight layers.
    """
    tasks, rows, width = size(8, 2), size(2048, 4), size(4096, 8)
    weights = jax.random.normal(jax.random.key(0), (tasks, width, width), jnp.bfloat16)
    x = jax.random.normal(jax.random.key(1), (tasks, rows, width), jnp.bfloat16)
    chosen = jnp.arange(tasks)[::-1]

    def layer(task: int, x: Array, weights: Array) -> Array:
        return jnp.tanh(x @ weights[task])

    @jax.jit
    def step(weights: Array) -> Array:
        layers = [functools.partial(layer, task, weights=weights) for task in range(tasks)]

        def choose(which: Array, x: Array) -> Array:
            made: Array = jax.lax.switch(which, layers, x)
            return made

        if fault:
            return jax.vmap(choose)(chosen, x)
        made: Array = jax.lax.map(lambda pair: choose(*pair), (chosen, x))
        return made

    while True:
        mark(step(weights))
