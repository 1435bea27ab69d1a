"""A program of NumPyro: Hamiltonian Monte Carlo."""

import jax
import jax.numpy as jnp
from numpyro.infer import HMC

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.with_numpyro import logistic


def numpyro_one_chain(fault: bool, mark: Mark) -> None:
    """Runs one chain on a few hundred rows; without the fault 512 chains at once.

    Each of 64 leaps is a few kernels that are too small for the GPU.
    """
    x = jax.random.normal(jax.random.key(0), (size(500, 20), size(20, 3)))
    y = (x[:, 0] > 0).astype(jnp.int32)

    kernel = HMC(
        logistic, step_size=0.01, num_steps=64, adapt_step_size=False, adapt_mass_matrix=False
    )
    chains = jax.random.split(jax.random.key(1), size(1 if fault else 512, 2))
    state = kernel.init(chains, 0, None, (x, y), {})
    sample = jax.jit(lambda state: kernel.sample(state, (x, y), {}))  # of all chains
    while True:
        state = sample(state)
        mark(state.z)
