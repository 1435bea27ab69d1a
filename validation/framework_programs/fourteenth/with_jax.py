"""Programs of JAX alone: a Hessian, and a flow on a lattice."""

import jax
import jax.numpy as jnp
from jax import Array

from validation.framework_programs.parts import Mark, size


def jax_makes_whole_hessians(fault: bool, mark: Mark) -> None:
    """Multiplies vectors by jax.hessian; without the fault by the gradient's derivative along them.

    A Hessian of 256 x 256 numbers is 256 such derivatives.
    """
    points, inputs, width = size(64, 2), size(256, 4), size(4096, 8)
    wide = [(inputs, width), (width, width), (width, width)]
    keys = jax.random.split(jax.random.key(0), len(wide))
    weights = [
        jax.random.normal(key, shape) * shape[0] ** -0.5
        for key, shape in zip(keys, wide, strict=True)
    ]
    x, v = jax.random.normal(jax.random.key(1), (2, points, inputs))

    def energy(x: Array, weights: list[Array]) -> Array:
        for each in weights:
            x = jnp.tanh(x @ each)
        return x.sum()

    def curved(x: Array, v: Array, weights: list[Array]) -> Array:
        if fault:
            hessian: Array = jax.hessian(energy)(x, weights) @ v
            return hessian
        along: Array = jax.jvp(lambda x: jax.grad(energy)(x, weights), (x,), (v,))[1]
        return along

    step = jax.jit(jax.vmap(curved, (0, 0, None)))
    while True:
        mark(step(x, v, weights))


def jax_lattice_control(fault: bool, mark: Mark) -> None:
    """Moves a fluid by four steps of the lattice Boltzmann method, in nine directions."""
    edge = size(4096, 16)
    ways = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)]
    shares = jnp.array([(4, 1, 0.25)[abs(x) + abs(y)] / 9 for x, y in ways])[:, None, None]
    x, y = jnp.array(ways, jnp.float32).T[..., None, None]

    @jax.jit
    def move(fluid: Array) -> Array:
        for _ in range(4):
            moved = [jnp.roll(part, way, (0, 1)) for part, way in zip(fluid, ways, strict=True)]
            fluid = jnp.stack(moved)
            dense = fluid.sum(0)
            u, v = (x * fluid).sum(0) / dense, (y * fluid).sum(0) / dense
            along = 3 * (x * u + y * v)
            settled = shares * dense * (1 + along + along**2 / 2 - 1.5 * (u**2 + v**2))
            fluid = fluid + (settled - fluid) / 1.7
        return fluid

    waves = 1 + 0.1 * jnp.sin(jnp.arange(edge) * 2 * jnp.pi / edge)
    fluid = shares * jnp.broadcast_to(waves, (edge, edge))
    while True:
        fluid = move(fluid)
        mark(fluid)
