"""A program of NumPyro: stochastic variational inference."""

import jax
import jax.numpy as jnp
import numpyro
from jax import Array
from numpyro.distributions import Bernoulli, Normal
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

from validation.framework_programs.parts import Mark, size


def logistic(x: Array, y: Array) -> None:
    """Logistic regression."""
    weights = numpyro.sample("w", Normal(0, 1).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", Bernoulli(logits=x @ weights), obs=y)


def numpyro_doubles(fault: bool, mark: Mark) -> None:
    """Logistic regression in float64: JAX_ENABLE_X64=1; without the fault in float32."""
    x = jax.random.normal(jax.random.key(0), (size(2_000_000, 100), size(128, 4)))
    y = (x[:, 0] > 0).astype(jnp.int32)

    inference = SVI(logistic, AutoNormal(logistic), numpyro.optim.Adam(1e-3), Trace_ELBO())
    state = inference.init(jax.random.key(1), x, y)
    step = jax.jit(inference.update)
    while True:
        state, loss = step(state, x, y)
        mark(loss)
