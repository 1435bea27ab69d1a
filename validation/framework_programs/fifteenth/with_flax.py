"""A program of Flax: words that are written with a cache."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from validation.framework_programs.parts import Mark, size


class Writer(nn.Module):
    """Layers of attention to the words before, whose keys and values are kept."""

    heads: int
    layers: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for _ in range(self.layers):
            seen = nn.LayerNorm(dtype=x.dtype)(x)
            attention = nn.MultiHeadDotProductAttention(self.heads, dtype=x.dtype, decode=True)
            x = x + attention(seen)
        out: Array = nn.LayerNorm(dtype=x.dtype)(x)
        return out


def flax_attends_to_empty_cache(fault: bool, mark: Mark) -> None:
    """Writes texts of at most 256 words with a cache for 8,192; without the fault for 256.

    Flax attends to all of a cache, and masks what nothing was written to.
    """
    texts, width, longest = size(32, 2), size(1024, 16), size(256, 4)
    model = Writer(size(16, 2), size(12, 1))
    word = jax.random.normal(jax.random.key(0), (texts, 1, width), jnp.bfloat16)
    weights = jax.jit(model.init)(jax.random.key(1), word)["params"]
    room = jax.ShapeDtypeStruct((texts, size(8192, 16) if fault else longest, width), word.dtype)
    kept = jax.eval_shape(model.init, jax.random.key(1), room)["cache"]
    cache = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), kept)

    def shorter(kept: Array) -> Array:
        """Array of a layer's cache; its count of words begins anew behind the longest text."""
        return kept if kept.ndim else kept % longest

    @partial(jax.jit, donate_argnums=1)
    def write(weights: Any, cache: Any, word: Array) -> tuple[Any, Array]:
        held = {"params": weights, "cache": cache}
        word, changed = model.apply(held, word, mutable=["cache"])
        return jax.tree.map(shorter, changed["cache"]), word

    while True:
        cache, word = write(weights, cache, word)
        mark(word)
