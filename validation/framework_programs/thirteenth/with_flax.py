"""A program of Flax: a mixer of patches and channels."""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax import Array

from validation.framework_programs.parts import Mark, size


class Mixer(nn.Module):
    """Blocks of a layer over the patches and a layer over the channels, as MLP-Mixer has them."""

    blocks: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for _ in range(self.blocks):
            mixed = nn.LayerNorm(dtype=jnp.bfloat16)(x).swapaxes(1, 2)
            x = x + self.layers(mixed).swapaxes(1, 2)
            x = x + self.layers(nn.LayerNorm(dtype=jnp.bfloat16)(x))
        return x

    def layers(self, x: Array) -> Array:
        width = x.shape[-1]
        wide = nn.gelu(nn.Dense(4 * width, dtype=jnp.bfloat16)(x))
        return nn.Dense(width, dtype=jnp.bfloat16)(wide)


def flax_mixer_control(fault: bool, mark: Mark) -> None:
    """Trains two blocks of a mixer with 1,024 patches of 4,096 channels in bfloat16."""
    shape = size(16, 2), size(1024, 8), size(4096, 16)
    x = jax.random.normal(jax.random.key(0), shape, jnp.bfloat16)
    model, optimizer = Mixer(size(2, 1)), optax.sgd(1e-3)
    weights = jax.jit(model.init)(jax.random.key(1), x)
    state = optimizer.init(weights)

    @jax.jit
    def train(weights: object, state: optax.OptState, x: Array) -> tuple[object, optax.OptState]:
        def loss(weights: object) -> Array:
            return jnp.square(model.apply(weights, x).astype(jnp.float32)).mean()

        changes, state = optimizer.update(jax.grad(loss)(weights), state, weights)
        return optax.apply_updates(weights, changes), state

    while True:
        weights, state = train(weights, state, x)
        mark(weights)
