"""A program of Optax: Muon."""

import jax
import optax
from jax import Array

from validation.framework_programs.parts import Mark, size


def optax_muon_control(fault: bool, mark: Mark) -> None:
    """Updates two matrices by Muon, whose steps are products of 4,096 x 4,096 numbers."""
    edge = size(4096, 16)
    keys = jax.random.split(jax.random.key(0), 4)
    made = [jax.random.normal(key, (edge, edge)) for key in keys]
    weights, slopes = ({"a": a, "b": b} for a, b in (made[:2], made[2:]))
    optimizer = optax.contrib.muon(1e-3)
    state = optimizer.init(weights)

    @jax.jit
    def update(weights: dict[str, Array], state: optax.OptState) -> tuple[object, object]:
        changes, state = optimizer.update(slopes, state, weights)
        return optax.apply_updates(weights, changes), state

    while True:
        weights, state = update(weights, state)
        mark(weights)
