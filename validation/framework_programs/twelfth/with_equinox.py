"""Programs of Equinox: words that become vectors, and norms."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from validation.framework_programs.parts import Mark, size


def equinox_embeds_by_one_hot(fault: bool, mark: Mark) -> None:
    """Trains a table by one-hot rows times all of it; without the fault picks its rows.

    Two products of 16,384 x 32,768 x 1,024 numbers are nearly all zeros.
    """
    words, width = size(32_768, 32), size(1024, 8)
    key = jax.random.key(0)
    model = eqx.nn.Embedding(words, width, dtype=jnp.bfloat16, key=key)
    layer = jax.random.normal(key, (width, width), jnp.bfloat16)
    text = jax.random.randint(key, (size(16_384, 8),), 0, words)

    def loss(model: eqx.nn.Embedding) -> Array:
        table = model.weight
        vectors = jax.nn.one_hot(text, words, dtype=table.dtype) @ table if fault else table[text]
        return jnp.square(jnp.tanh(vectors @ layer)).mean()

    @eqx.filter_jit
    def train(model: eqx.nn.Embedding) -> eqx.nn.Embedding:
        slopes = eqx.filter_grad(loss)(model)
        return eqx.apply_updates(model, jax.tree.map(lambda slope: -0.1 * slope, slopes))

    while True:
        model = train(model)
        mark(model.weight)


def equinox_norms_control(fault: bool, mark: Mark) -> None:
    """Adds the SiLU of their norms to the rows of two gigabytes, four times."""
    width = size(4096, 16)
    x = jax.random.normal(jax.random.key(0), (size(131_072, 8), width))
    layers = [eqx.nn.LayerNorm(width) for _ in range(4)]

    @jax.jit
    def run(x: Array) -> Array:
        for layer in layers:
            x = x + jax.nn.silu(jax.vmap(layer)(x))
        return x

    while True:
        mark(run(x))
