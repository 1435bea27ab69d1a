"""A program of NumPyro: Hamiltonian Monte Carlo."""

import jax
import jax.numpy as jnp
import numpyro
from jax import Array
from numpyro.distributions import Bernoulli, Normal
from numpyro.infer import HMC

from validation.framework_programs.parts import Mark, size


def numpyro_one_chain(fault: bool, mark: Mark) -> None:
    """Runs one chain on a few hundred rows; without the fault 512 chains at once.

    Each of 64 leaps is a few kernels that are too small for the GPU.
    """
    x = jax.random.normal(jax.random.key(0), (size(500, 20), size(20, 3)))
    y = (x[:, 0] > 0).astype(jnp.int32)

    def model(x: Array, y: Array) -> None:
        weights = numpyro.sample("w", Normal(0, 1).expand([x.shape[1]]).to_event(1))
        numpyro.sample("y", Bernoulli(logits=x @ weights), obs=y)

    kernel = HMC(
        model, step_size=0.01, num_steps=64, adapt_step_size=False, adapt_mass_matrix=False
    )
    chains = jax.random.split(jax.random.key(1), size(1 if fault else 512, 2))
    state = kernel.init(chains, 0, None, (x, y), {})
    sample = jax.jit(lambda state: kernel.sample(state, (x, y), {}))  # of all chains
    while True:
        state = sample(state)
        mark(state.z)
