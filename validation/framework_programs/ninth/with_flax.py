"""A program of Flax: a training that can go back to where it was."""

from typing import Any

import jax

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.seventh.with_flax import training


def flax_keeps_state_on_host(fault: bool, mark: Mark) -> None:
    """Takes weights and moments home after each step, to go back; without it keeps the arrays.

    They are 400 MB, and go to pageable memory, though arrays of JAX do not change.
    """
    state, step = training(size(2048, 16), 8, size(2048, 4))
    kept: Any = None
    while True:
        state, loss = step(state)
        kept = jax.device_get(state) if fault else state
        mark((loss, len(kept)))
