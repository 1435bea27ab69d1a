"""A program of NumPyro: what a small Bayesian network predicts."""

import jax
import jax.numpy as jnp
import numpyro
from jax import Array
from numpyro.distributions import Normal
from numpyro.infer import Predictive

from validation.framework_programs.parts import Mark, size


def numpyro_predicts_in_turn(fault: bool, mark: Mark) -> None:
    """Predicts for 512 draws by Predictive's default, in turn; without it by parallel=True.

    A draw is a few small kernels for 1,000 rows, and the next draw waits for them.
    """
    draws, rows, width = size(512, 4), size(1000, 10), size(32, 4)
    x, entry, leave = (
        jax.random.normal(jax.random.key(number), shape)
        for number, shape in enumerate([(rows, 8), (draws, 8, width), (draws, width)])
    )

    def model(x: Array) -> None:
        first = numpyro.sample("entry", Normal(0, 1).expand([8, width]).to_event(2))
        last = numpyro.sample("leave", Normal(0, 1).expand([width]).to_event(1))
        numpyro.sample("y", Normal(jnp.tanh(x @ first) @ last, 0.1))

    @jax.jit
    def predict(key: Array, x: Array) -> Array:
        drawn = {"entry": entry, "leave": leave}
        return Predictive(model, drawn, parallel=not fault)(key, x)["y"].mean(0)

    key = jax.random.key(3)
    while True:
        key, of_step = jax.random.split(key)
        mark(predict(of_step, x))
