"""Programs of Equinox, and of Diffrax on it."""

import itertools
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp

from validation.framework_programs.parts import Mark, size


def equinox_recompiles(fault: bool, mark: Mark) -> None:
    """Gives the compiled step its number as an int of Python; without the fault as an array.

    filter_jit takes an int for a constant, so the host compiles each step anew.
    """
    width = size(1024, 16)
    model = eqx.nn.MLP(width, width, width, 2, key=jax.random.key(0))
    x = jnp.ones((size(4096, 4), width))

    @eqx.filter_jit
    def step(model: Any, number: Any) -> Any:
        rate = 1e-3 / (1 + number)
        gradients = eqx.filter_grad(lambda m: jnp.square(jax.vmap(m)(x)).mean())(model)
        return eqx.apply_updates(model, jax.tree.map(lambda g: -rate * g, gradients))

    for number in itertools.count():
        model = step(model, number if fault else jnp.asarray(number))
        mark(jax.tree.leaves(eqx.filter(model, eqx.is_array)))


def diffrax_control(fault: bool, mark: Mark) -> None:
    """Solves a wide neural differential equation for many starts at once, by Heun's method."""
    width = size(8192, 16)
    weight = jax.random.normal(jax.random.key(0), (width, width), jnp.bfloat16) * width**-0.5
    start = jnp.ones((size(4096, 4), width))

    def field(t: Any, y: Any, weight: Any) -> Any:
        h = jnp.tanh(y.astype(jnp.bfloat16) @ weight) @ weight
        return h.astype(y.dtype)

    @jax.jit
    def solve(y: Any, weight: Any) -> Any:
        heun, term = diffrax.Heun(), diffrax.ODETerm(field)
        return diffrax.diffeqsolve(term, heun, 0.0, 1.0, 1 / 8, y, weight).ys[-1]

    while True:
        mark(solve(start, weight))
