"""A program of Equinox: an ensemble of small networks."""

import equinox as eqx
import jax
import jax.numpy as jnp

from validation.framework_programs.parts import Mark, size


def equinox_members_one_by_one(fault: bool, mark: Mark) -> None:
    """Trains 64 small networks by a compiled step each; without the fault all by filter_vmap.

    A member's step is a few small kernels, which take longer to dispatch than to run.
    """
    width = size(64, 8)
    keys = jax.random.split(jax.random.key(0), size(64, 3))
    x = jax.random.normal(jax.random.key(1), (size(256, 4), width))

    def made(key: jax.Array) -> eqx.nn.MLP:
        return eqx.nn.MLP(width, width, width, 2, key=key)

    def update(member: eqx.nn.MLP) -> eqx.nn.MLP:
        def loss(member: eqx.nn.MLP) -> jax.Array:
            return jnp.square(jax.vmap(member)(x) - x).mean()

        gradients = eqx.filter_grad(loss)(member)
        return eqx.apply_updates(member, jax.tree.map(lambda g: -1e-2 * g, gradients))

    step = eqx.filter_jit(update if fault else eqx.filter_vmap(update))
    members = list(map(made, keys)) if fault else [eqx.filter_vmap(made)(keys)]
    while True:
        members = list(map(step, members))
        mark(jax.tree.leaves(eqx.filter(members, eqx.is_array)))
