"""A program of Optax: a rate of its own for each layer."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from optax.tree_utils import tree_get_all_with_path

from validation.framework_programs.parts import Mark, size

Layers = dict[str, dict[str, Array]]


def optax_looks_for_rates(fault: bool, mark: Mark) -> None:
    """Logs 24 layers' rates, which Optax looks for by name; without the fault where they are.

    Each layer's AdamW has a node for each array of all others, and Python looks at all 4,400.
    """
    width, names = size(256, 8), [f"layer_{number}" for number in range(size(24, 3))]
    deep, wide = (width, 4 * width), (4 * width, width)
    keys = jax.random.split(jax.random.key(0), (len(names), 2))
    layers = {
        name: {
            "up": jax.random.normal(up, deep) * width**-0.5,
            "down": jax.random.normal(down, wide) * width**-0.5,
            "scale": jnp.ones(width),
            "shift": jnp.zeros(width),
        }
        for name, (up, down) in zip(names, keys, strict=True)
    }
    x = jax.random.normal(jax.random.key(1), (size(1024, 4), width))
    adamw = optax.inject_hyperparams(optax.adamw)
    by_layer = {name: adamw(1e-4 * 0.9**depth) for depth, name in enumerate(reversed(names))}
    labels = {name: dict.fromkeys(layer, name) for name, layer in layers.items()}
    optimizer = optax.multi_transform(by_layer, labels)
    state: Any = optimizer.init(layers)

    def loss(layers: Layers) -> Array:
        h = x
        for name in names:
            layer = layers[name]
            normed = jax.nn.standardize(h) * layer["scale"] + layer["shift"]
            h = h + jax.nn.gelu(normed @ layer["up"]) @ layer["down"]
        return jnp.square(h).mean()

    @jax.jit
    def train(layers: Layers, state: Any) -> tuple[Layers, Any]:
        changes, state = optimizer.update(jax.grad(loss)(layers), state, layers)
        return optax.apply_updates(layers, changes), state

    rates: list[Array] = []
    while True:
        layers, state = train(layers, state)
        if fault:
            rates[:] = [rate for _, rate in tree_get_all_with_path(state, "learning_rate")]
        else:
            of_layers = (state.inner_states[name].inner_state for name in names)
            rates[:] = [of_layer.hyperparams["learning_rate"] for of_layer in of_layers]
        mark((layers, rates))
