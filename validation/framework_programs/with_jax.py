"""Programs of JAX alone, compiled and not."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from validation.framework_programs.parts import Mark, size

Layers = list[Any]


def layers(width: int, count: int, dtype: Any = jnp.float32) -> Layers:
    keys = jax.random.split(jax.random.key(0), count)
    return [jax.random.normal(key, (width, width), dtype) * width**-0.5 for key in keys]


def loss_of(weights: Layers, x: Any) -> Any:
    h = x
    for weight in weights:
        h = jax.nn.gelu(h @ weight)
    return jnp.square((h - x).astype(jnp.float32)).mean()


def update(weights: Layers, x: Any) -> tuple[Layers, Any]:
    """Weights after a step of gradient descent, and the loss."""
    loss, gradients = jax.value_and_grad(loss_of)(weights, x)
    descend = jax.tree.map(lambda w, g: w - (0.01 * g).astype(w.dtype), weights, gradients)
    return descend, loss


def jax_reads_losses(fault: bool, mark: Mark) -> None:
    """Reads each loss as a number; without the fault it stays on the GPU."""
    width = size(2048, 32)
    weights, x = layers(width, 2, jnp.bfloat16), jnp.ones((width, width), jnp.bfloat16)
    step, history = jax.jit(update), []
    while True:
        weights, loss = step(weights, x)
        history.append(float(loss) if fault else loss)
        mark(loss)


def jax_recompiles(fault: bool, mark: Mark) -> None:
    """Texts of another length each time; without the fault padded to one length."""
    width = size(1024, 32)
    weights, step = layers(width, 2), jax.jit(update)
    for length in itertools.count(256):
        weights, loss = step(weights, jnp.ones((length if fault else 1024, width)))
        mark(loss)


def jax_arrays_of_host(fault: bool, mark: Mark) -> None:
    """Gives the compiled step NumPy's arrays, which are pageable; without the fault JAX's."""
    host = np.random.rand(size(64, 2), 1024, size(1024, 32)).astype("float32")
    weights = layers(size(1024, 32), 1)
    step, resident = jax.jit(update), jnp.asarray(host)
    while True:
        weights, loss = step(weights, host if fault else resident)
        mark(loss)


def jax_small_scan(fault: bool, mark: Mark) -> None:
    """A recurrence over 1,000 times for 8 rows; without the fault for 1,024."""
    width = size(64, 16)
    weight = layers(width, 1)[0]
    start = jnp.ones((size(8 if fault else 1024, 2), width))

    @jax.jit
    def recur(h: Any) -> Any:
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ weight), None), h, length=1_000)[0]

    while True:
        mark(recur(start))


def jax_without_jit(fault: bool, mark: Mark) -> None:
    """Updates operator by operator; without the fault compiled."""
    width = size(512, 32)
    weights, x = layers(width, 12), jnp.ones((256, width))
    step = update if fault else jax.jit(update)
    while True:
        weights, loss = step(weights, x)
        mark(loss)


def jax_control(fault: bool, mark: Mark) -> None:
    """A compiled step of large products, with the ranges that JAX's guide puts around steps."""
    width = size(4096, 32)
    weights, x = layers(width, 8, jnp.bfloat16), jnp.ones((width, width), jnp.bfloat16)
    step = jax.jit(update, donate_argnums=0)
    for number in itertools.count():
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights, loss = step(weights, x)
        mark(loss)
