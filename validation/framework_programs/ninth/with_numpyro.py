"""A program of NumPyro: the method of Metropolis in a loop of Python."""

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.infer.util import initialize_model

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.with_numpyro import logistic


def numpyro_accepts_on_host(fault: bool, mark: Mark) -> None:
    """Accepts each of 16 proposals by an `if` of Python; without the fault by jnp.where.

    The answer comes to the host before the next proposal is dispatched.
    """
    x = jax.random.normal(jax.random.key(0), (size(400_000, 50), size(128, 4)))
    y = (x[:, 0] > 0).astype(jnp.int32)

    made = initialize_model(jax.random.key(1), logistic, model_args=(x, y), dynamic_args=True)

    @jax.jit
    def propose(weights: Array, energy: Array, key: Array, x: Array, y: Array) -> tuple[Array, ...]:
        of_step, of_choice, key = jax.random.split(key, 3)
        proposed = weights + 1e-3 * jax.random.normal(of_step, weights.shape)
        needed = made.potential_fn(x, y)({"w": proposed})
        accepted = jnp.log(jax.random.uniform(of_choice)) < energy - needed
        chosen = jnp.where(accepted, proposed, weights), jnp.where(accepted, needed, energy)
        return *chosen, proposed, needed, accepted, key

    weights, energy, key = jnp.zeros(x.shape[1]), jnp.inf, jax.random.key(2)
    while True:
        for _ in range(16):
            *chosen, proposed, needed, accepted, key = propose(weights, energy, key, x, y)
            if not fault:
                weights, energy = chosen
            elif accepted:
                weights, energy = proposed, needed
        mark((weights, energy))
