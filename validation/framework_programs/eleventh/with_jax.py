"""Programs of JAX alone: a search, orbits, and waves."""

import jax
import jax.numpy as jnp
from jax import Array

from validation.framework_programs.parts import Mark, size


def loss_at(rate: Array | float, weights: Array, slopes: Array, x: Array, signs: Array) -> Array:
    """Logistic loss after a step of gradient descent."""
    return jnp.logaddexp(0, -signs * (x @ (weights - rate * slopes))).mean()


def jax_searches_line(fault: bool, mark: Mark) -> None:
    """Halves a step of gradient descent in a loop of Python; without it in jax.lax.while_loop.

    Each trial's loss comes to the host, which then dispatches the next, ten times in each of four
    searches.
    """
    x = jax.random.normal(jax.random.key(0), (size(50_000, 50), size(256, 4)))
    signs = jnp.where(x[:, 0] + x[:, 1] > 0, 1.0, -1.0)
    starts = list(jax.random.normal(jax.random.key(1), (4, x.shape[1])))
    first = 2.0**16  # halved until the loss is less
    begin = jax.jit(jax.value_and_grad(lambda weights, *of: loss_at(0, weights, weights, *of)))
    trial = jax.jit(loss_at)

    @jax.jit
    def search(before: Array, *given: Array) -> Array:
        worse = lambda rate: loss_at(rate, *given) >= before  # noqa: E731 shorter so
        return jax.lax.while_loop(worse, lambda rate: rate / 2, jnp.float32(first))

    while True:
        rates: list[Array | float] = []
        for weights in starts:
            before, slopes = begin(weights, x, signs)
            if fault:
                rate, bound = first, float(before)
                while float(trial(rate, weights, slopes, x, signs)) >= bound:
                    rate /= 2
                rates.append(rate)
            else:
                rates.append(search(before, weights, slopes, x, signs))
        mark(rates)


def jax_orbits_step_by_step(fault: bool, mark: Mark) -> None:
    """Moves 256 bodies by a compiled step in a loop of Python; without the fault by a loop in it.

    200 steps of a few small kernels, and 200 sums of two numbers that count the time.
    """
    bodies, steps, apart_s = size(256, 8), size(200, 4), 1e-3
    start = jax.random.normal(jax.random.key(0), (2, bodies, 3))

    @jax.jit
    def advance(state: Array, time: Array) -> Array:
        places, speeds = state
        apart = places - places[:, None]
        pulls = (apart / (jnp.square(apart).sum(-1, keepdims=True) + 0.1) ** 1.5).mean(1)
        speeds = speeds + apart_s * (pulls + 0.01 * jnp.sin(time))
        return jnp.stack([places + apart_s * speeds, speeds])

    @jax.jit
    def advance_all(state: Array) -> Array:
        return jax.lax.fori_loop(0, steps, lambda i, state: advance(state, apart_s * i), state)

    while True:
        state, time = start, jnp.float32(0)
        for _ in range(steps if fault else 0):
            state, time = advance(state, time), time + apart_s
        mark(state if fault else advance_all(state))


def jax_waves_control(fault: bool, mark: Mark) -> None:
    """Advances waves on a pond sixteen times in a compiled step."""
    edge = size(8192, 16)
    pond = jax.random.uniform(jax.random.key(0), (edge, edge))

    def advance(_: int, waves: tuple[Array, Array]) -> tuple[Array, Array]:
        now, before = waves
        around = sum(jnp.roll(now, by, axis) for by in (1, -1) for axis in (0, 1))
        return 2 * now - before + 0.1 * (around - 4 * now), now

    run = jax.jit(lambda waves: jax.lax.fori_loop(0, 16, advance, waves))
    waves = pond, pond
    while True:
        waves = run(waves)
        mark(waves)
