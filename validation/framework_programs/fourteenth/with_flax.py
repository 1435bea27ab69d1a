"""A program of Flax: a perceptron whose compiled steps are forgotten."""

import jax
import jax.numpy as jnp

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.seventh.with_flax import Perceptron


def flax_clears_caches(fault: bool, mark: Mark) -> None:
    """Calls jax.clear_caches() after each step, against a leak; without the fault never.

    The next step is traced and compiled again.
    """
    width = size(512, 16)
    model = Perceptron(width, size(8, 1))
    x = jax.random.normal(jax.random.key(0), (size(1024, 4), width))
    weights = model.init(jax.random.key(1), x)

    @jax.jit
    def train(weights: object) -> object:
        slopes = jax.grad(lambda w: jnp.square(model.apply(w, x)).mean())(weights)
        return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, slopes)

    while True:
        weights = train(weights)
        mark(weights)
        if fault:
            jax.clear_caches()
