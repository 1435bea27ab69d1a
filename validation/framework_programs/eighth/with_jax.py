"""More programs of JAX alone."""

from typing import Any

import jax
import jax.numpy as jnp

from validation.framework_programs.parts import Mark, size

STRENGTH = 0.05  # of the entropy in a transport


def jax_sinkhorn(fault: bool, mark: Mark) -> None:
    """Looks after each of ten sweeps whether a transport has converged; without it at the end.

    The error comes to the host before the next sweep is dispatched.
    """
    count = size(3072, 16)
    places = jax.random.uniform(jax.random.key(0), (2, count, 2))
    cost = jnp.square(places[0][:, None] - places[1]).sum(-1)

    @jax.jit
    def sweep(up: Any, down: Any, cost: Any) -> Any:
        left = -STRENGTH * jax.nn.logsumexp((down - cost) / STRENGTH, axis=1)
        right = -STRENGTH * jax.nn.logsumexp((left[:, None] - cost) / STRENGTH, axis=0)
        return left, right, jnp.abs(left - up).max()

    start = jnp.zeros(count)
    while True:
        up, down = start, start
        for _ in range(10):
            up, down, error = sweep(up, down, cost)
            if fault and float(error) < 0:
                break
        mark((up, down, float(error)))


def jax_turbulence(fault: bool, mark: Mark) -> None:
    """Advances the vorticity of a flow four times, in its Fourier coefficients."""
    edge = size(4096, 16)
    down = jnp.fft.fftfreq(edge, 1 / edge)[:, None]
    along = jnp.fft.rfftfreq(edge, 1 / edge)[None]
    square = jnp.maximum(down**2 + along**2, 1)

    def change(vorticity: Any) -> Any:
        stream = vorticity / square
        speeds = jnp.fft.irfft2(1j * down * stream), jnp.fft.irfft2(-1j * along * stream)
        slopes = jnp.fft.irfft2(1j * along * vorticity), jnp.fft.irfft2(1j * down * vorticity)
        product = speeds[0] * slopes[0] + speeds[1] * slopes[1]
        return -jnp.fft.rfft2(product) - 1e-4 * square * vorticity

    @jax.jit
    def advance(vorticity: Any) -> Any:
        def once(_: Any, vorticity: Any) -> Any:
            return vorticity + 1e-4 * change(vorticity + 5e-5 * change(vorticity))

        return jax.lax.fori_loop(0, 4, once, vorticity)

    vorticity = jnp.fft.rfft2(jax.random.normal(jax.random.key(0), (edge, edge)))
    while True:
        vorticity = advance(vorticity)
        mark(vorticity)
