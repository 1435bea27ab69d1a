"""A program of Equinox: a wide network in bfloat16."""

import equinox as eqx
import jax
import jax.numpy as jnp

from validation.framework_programs.parts import Mark, size


def equinox_control(fault: bool, mark: Mark) -> None:
    """Trains a wide network by gradient descent, in products of large matrices."""
    width = size(8192, 16)
    model = eqx.nn.MLP(width, width, width, 2, dtype=jnp.bfloat16, key=jax.random.key(0))
    x = jnp.ones((width, width), jnp.bfloat16)

    @eqx.filter_jit
    def step(model: eqx.nn.MLP, x: jax.Array) -> eqx.nn.MLP:
        def loss(model: eqx.nn.MLP) -> jax.Array:
            return jnp.square(jax.vmap(model)(x)).mean()

        gradients = eqx.filter_grad(loss)(model)
        return eqx.apply_updates(model, jax.tree.map(lambda g: -1e-3 * g, gradients))

    while True:
        model = step(model, x)
        mark(jax.tree.leaves(eqx.filter(model, eqx.is_array)))
