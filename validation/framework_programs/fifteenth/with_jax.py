"""Programs of JAX: a choice of branches under vmap, and a key for each picture."""

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


def jax_splits_key_by_key(fault: bool, mark: Mark) -> None:
    """Splits off a key for each of 256 pictures in a loop of Python; without it all at once.

    A split and the taking apart of its two keys are operators of their own, for a few bytes.
    """
    pictures, edge = size(256, 3), size(64, 8)
    batch = jax.random.normal(jax.random.key(0), (pictures, edge, edge, 3))

    def keys_of(key: Array) -> tuple[Array, Array]:
        if not fault:
            made = jax.random.split(key, pictures + 1)
            return made[0], made[1:]
        keys = []
        for _ in range(pictures):
            key, of_picture = jax.random.split(key)
            keys.append(of_picture)
        return key, jnp.stack(keys)

    def changed(key: Array, picture: Array) -> Array:
        of_place, of_light, of_noise = jax.random.split(key, 3)
        moved = jnp.roll(picture, jax.random.randint(of_place, (2,), -8, 8), (0, 1))
        light = jax.random.uniform(of_light, (3,), minval=0.5, maxval=1.5)
        return moved * light + 0.1 * jax.random.normal(of_noise, picture.shape)

    augment = jax.jit(jax.vmap(changed))
    key = jax.random.key(1)
    while True:
        key, keys = keys_of(key)
        mark(augment(keys, batch))
