"""Programs of JAX alone: clients that are averaged, SciPy's functions, and a buffer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import kv

from validation.framework_programs.parts import Mark, size

Weights = list[Array]


def jax_averages_eagerly(fault: bool, mark: Mark) -> None:
    """Averages the weights of 16 clients by sums of JAX; without the fault by a compiled step.

    Each sum is an operator of its own for a few kilobytes: 960 in a round.
    """
    clients, width, count = size(16, 3), size(128, 8), size(60, 2)
    weights = [
        jax.random.normal(key, (width, width)) * width**-0.5
        for key in jax.random.split(jax.random.key(0), count)
    ]
    data = jax.random.normal(jax.random.key(1), (clients, size(256, 4), width))

    def loss(weights: Weights, x: Array) -> Array:
        h = x
        for each in weights:
            h = h + jnp.tanh(h @ each)
        return jnp.square(h).mean()

    @jax.jit
    def train(weights: Weights) -> list[Weights]:
        slopes = jax.vmap(jax.grad(loss), (None, 0))(weights, data)
        return [
            [w - 0.01 * g[client] for w, g in zip(weights, slopes, strict=True)]
            for client in range(clients)
        ]

    def average(trained: list[Weights]) -> Weights:
        joined: Weights = jax.tree.map(lambda *parts: sum(parts[1:], parts[0]) / clients, *trained)
        return joined

    merge = average if fault else jax.jit(average)
    while True:
        weights = merge(train(weights))
        mark(weights)


def jax_asks_scipy(fault: bool, mark: Mark) -> None:
    """Asks SciPy for Bessel functions in a compiled step; without the fault looks into a table.

    32,768 numbers go to a function of Python, which computes them on one core.
    """
    order, places, others = 1.2, size(16, 2), size(2048, 8)
    grid = np.linspace(1e-2, 20, 4096)
    table = jnp.asarray(kv(order, grid), jnp.float32)
    known = jax.random.uniform(jax.random.key(0), (others, 3))
    inverse = jax.random.normal(jax.random.key(1), (others, others))

    def bessel(x: Array) -> Array:
        if not fault:
            return jnp.interp(x, jnp.asarray(grid, jnp.float32), table)
        made = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda x: kv(order, np.asarray(x)).astype("float32"), made, x)

    @jax.jit
    def variance(key: Array) -> Array:
        asked = jax.random.uniform(key, (places, 3))
        apart = jnp.linalg.norm(asked[:, None] - known, axis=-1) * 5 + 1e-2
        covariance = apart**order * bessel(apart)
        return jnp.einsum("ai,ij,aj->a", covariance, inverse, covariance)

    key = jax.random.key(2)
    while True:
        key, of_step = jax.random.split(key)
        mark(variance(of_step))


def jax_copies_buffer(fault: bool, mark: Mark) -> None:
    """Writes a batch into a replay buffer of 4 GB; without the fault into a donated one.

    XLA copies all of a buffer that is not donated, to write a thousandth of it.
    """
    rows, width, batch = size(1_000_000, 40), size(1024, 8), size(1024, 4)
    held = jnp.zeros((rows, width))
    weights = jax.random.normal(jax.random.key(0), (width, width)) * width**-0.5

    def add(held: Array, seen: Array, place: Any) -> Array:
        return jax.lax.dynamic_update_slice(held, seen, (place, 0))

    @jax.jit
    def train(weights: Array, held: Array, key: Array) -> tuple[Array, Array]:
        x = held[jax.random.randint(key, (batch,), 0, rows)]
        slopes = jax.grad(lambda w: jnp.square(jnp.tanh(x @ w) - x).mean())(weights)
        return weights - 0.1 * slopes, x + 1

    write = jax.jit(add, donate_argnums=() if fault else 0)
    key, place = jax.random.key(1), 0
    seen = jax.random.normal(key, (batch, width))
    while True:
        held = write(held, seen, place)
        key, of_step = jax.random.split(key)
        weights, seen = train(weights, held, of_step)
        place = (place + batch) % (rows - batch)
        mark(weights)
