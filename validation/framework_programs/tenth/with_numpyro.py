"""A program of NumPyro: draws of what a regression predicts."""

import jax
import numpy as np
import numpyro
from jax import Array
from numpyro.distributions import Normal
from numpyro.infer import Predictive

from validation.framework_programs.parts import Mark, size


def numpyro_draws_home(fault: bool, mark: Mark) -> None:
    """Takes 64 draws for each of a million rows home, and looks at 100; without it these alone.

    256 MB go to pageable memory, which takes longer than to draw them.
    """
    draws, columns = size(64, 4), size(8, 2)
    x = jax.random.normal(jax.random.key(0), (size(1_000_000, 200), columns))
    weights = {"w": jax.random.normal(jax.random.key(1), (draws, columns))}

    def model(x: Array) -> None:
        w = numpyro.sample("w", Normal(0, 1).expand([columns]).to_event(1))
        numpyro.sample("y", Normal(x @ w, 1.0))

    @jax.jit
    def predict(key: Array, x: Array) -> Array:
        return Predictive(model, weights, parallel=True)(key, x)["y"]

    key = jax.random.key(2)
    while True:
        key, of_step = jax.random.split(key)
        drawn = predict(of_step, x)
        seen = np.asarray(drawn)[:, :100] if fault else np.asarray(drawn[:, :100])
        mark((drawn, seen.mean(0)))
