"""A program of Optax, with a model of Flax."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.seventh.with_flax import Perceptron


def optax_outside_jit(fault: bool, mark: Mark) -> None:
    """Compiles the gradients but not the optimizer's update; without the fault both.

    AdamW is then a dozen small operators for each of 96 arrays, dispatched one by one.
    """
    width = size(768, 16)
    model, optimizer = Perceptron(width, size(24, 2)), optax.adamw(1e-4)
    x = jax.random.normal(jax.random.key(0), (size(4096, 4), width))
    weights = model.init(jax.random.key(1), x)
    moments = optimizer.init(weights)
    gradients_of = jax.jit(jax.value_and_grad(lambda w: jnp.square(model.apply(w, x)).mean()))

    def update(gradients: Any, moments: Any, weights: Any) -> Any:
        updates, moments = optimizer.update(gradients, moments, weights)
        return optax.apply_updates(weights, updates), moments

    apply = update if fault else jax.jit(update)
    while True:
        loss, gradients = gradients_of(weights)
        weights, moments = apply(gradients, moments, weights)
        mark((weights, loss))
