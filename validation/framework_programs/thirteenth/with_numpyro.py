"""A program of NumPyro: a regression on many rows."""

import jax
import numpyro
from jax import Array
from numpyro.distributions import Normal
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta

from validation.framework_programs.parts import Mark, size


def numpyro_many_rows_control(fault: bool, mark: Mark) -> None:
    """Fits a curve to 400 million rows, all at once."""
    rows = size(400_000_000, 100)
    x, y = (jax.random.normal(jax.random.key(number), (rows,)) for number in range(2))

    def model(x: Array, y: Array) -> None:
        level, slope, bend = (numpyro.sample(each, Normal(0, 1)) for each in ("a", "b", "c"))
        numpyro.sample("y", Normal(level + slope * x + bend * x * x, 1).to_event(1), obs=y)

    svi = SVI(model, AutoDelta(model), numpyro.optim.Adam(1e-3), Trace_ELBO())
    state, update = svi.init(jax.random.key(2), x, y), jax.jit(svi.update)
    while True:
        state, loss = update(state, x, y)
        mark(loss)
