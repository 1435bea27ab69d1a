"""A program of Flax's NNX: a model of many modules."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import Array

from validation.framework_programs.parts import Mark, size


def flax_walks_through_modules(fault: bool, mark: Mark) -> None:
    """Calls nnx.jit with a model of 100 layers; without the fault jax.jit with its arrays alone.

    Python walks through all modules and variables before each step, and again after it.
    """
    width, rngs = size(128, 8), nnx.Rngs(0)
    layers = [nnx.Linear(width, width, rngs=rngs) for _ in range(size(100, 3))]
    model = nnx.List(layers)
    optimizer = nnx.Optimizer(model, optax.adam(1e-4), wrt=nnx.Param)
    x = jax.random.normal(jax.random.key(0), (size(1024, 4), width))

    def loss_of(model: nnx.List, x: Array) -> Array:
        for layer in model:
            x = x + jnp.tanh(layer(x))
        return jnp.square(x).mean()

    def train(model: nnx.List, optimizer: nnx.Optimizer) -> Array:
        loss, slopes = nnx.value_and_grad(loss_of)(model, x)
        optimizer.update(model, slopes)
        return loss

    whole = nnx.jit(train)
    while fault:
        mark(whole(model, optimizer))
    graph, state = nnx.split((model, optimizer))
    arrays, tree = jax.tree.flatten(state)

    @jax.jit
    def update(arrays: list[Array]) -> tuple[list[Array], Array]:
        merged = nnx.merge(graph, tree.unflatten(arrays))
        loss = train(*merged)
        return jax.tree.leaves(nnx.state(merged)), loss

    while True:
        arrays, loss = update(arrays)
        mark(loss)
