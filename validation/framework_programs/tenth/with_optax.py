"""A program of Optax: the update of large tables."""

from functools import partial
from typing import Any

import jax
import optax

from validation.framework_programs.parts import Mark, size


def optax_tables_control(fault: bool, mark: Mark) -> None:
    """Updates tables of 600 million numbers by AdamW, compiled and in place."""
    keys = jax.random.split(jax.random.key(0), 6)
    tables = [jax.random.normal(key, (size(100_000, 10), size(1_000, 8))) for key in keys]
    optimizer = optax.adamw(1e-4)

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(tables: Any, moments: Any) -> Any:
        gradients = jax.tree.map(lambda table: 0.1 * table, tables)  # of half the sum of squares
        updates, moments = optimizer.update(gradients, moments, tables)
        return optax.apply_updates(tables, updates), moments

    moments = optimizer.init(tables)
    while True:
        tables, moments = update(tables, moments)
        mark((tables, moments))
