"""Programs of Flax: a training that is watched, and wide convolutions."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.seventh.with_flax import training


def flax_reads_norms(fault: bool, mark: Mark) -> None:
    """Reads the norm of each of 96 arrays as a number; without the fault they stay on the GPU.

    Each number is asked for when the one before is there, and the next step is dispatched last.
    """
    state, step = training(size(512, 16), size(24, 1), size(1024, 4))

    @jax.jit
    def norms_of(weights: Any) -> list[jax.Array]:
        return [jnp.linalg.norm(leaf) for leaf in jax.tree.leaves(weights)]

    history: list[Any] = []
    while True:
        state, loss = step(state)
        norms = norms_of(state[0])
        history[:] = map(float, norms) if fault else norms
        mark((loss, norms))


def flax_convolutions_control(fault: bool, mark: Mark) -> None:
    """Runs four convolutions of 512 channels in bfloat16."""
    channels, edge = size(512, 8), size(64, 8)
    convolve = nn.Conv(channels, (3, 3), dtype=jnp.bfloat16)
    layers = nn.Sequential([layer for _ in range(4) for layer in (convolve.clone(), nn.relu)])
    x = jax.random.normal(jax.random.key(0), (size(64, 2), edge, edge, channels), jnp.bfloat16)
    weights, run = layers.init(jax.random.key(1), x), jax.jit(layers.apply)
    while True:
        mark(run(weights, x))
