"""Programs without PyTorch: `python arrays.py with_jax` or `with_cupy`."""

import sys
from typing import Any

STEPS = 120


def with_jax() -> None:
    import jax
    import jax.numpy as jnp

    def loss_of(weights: Any, x: Any) -> Any:
        return jnp.square(jnp.tanh(x @ weights) - x).mean()

    @jax.jit
    def advance(weights: Any, x: Any) -> Any:
        loss, gradient = jax.value_and_grad(loss_of)(weights, x)
        return weights - 0.1 * gradient, loss

    key = jax.random.PRNGKey(0)
    weights, x = jax.random.normal(key, (256, 256)), jax.random.normal(key, (64, 256))
    for step in range(STEPS):
        weights, loss = advance(weights, x)
        if step % 20 == 19:
            print(f"step {step}: loss {float(loss):.4f}")


def with_cupy() -> None:
    import cupy

    cupy.random.seed(0)
    weights, x = cupy.random.rand(256, 256), cupy.random.rand(64, 256)
    for step in range(STEPS):
        error = x @ weights - x
        weights -= 1e-4 * (x.T @ error)
        if step % 20 == 19:
            print(f"step {step}: loss {float((error**2).mean()):.4f}")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
