"""Triton's hash of itself, which it needs when the first kernel is launched or compiled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Thread

PLACES = ("triton.runtime.cache", "triton.compiler.compiler")  # the newer one first


@contextmanager
def hash_triton_meanwhile() -> Iterator[None]:
    """Compute the hash in a thread during the block; at its end Triton has it.

    Half a gigabyte is hashed. The thread imports nothing. Without Triton nothing happens.
    """
    thread = Thread(target=triton_key(), name="hash Triton", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def triton_key() -> Callable[[], str] | None:
    """Triton's own function for the hash, which caches its result; None without Triton."""
    for place in PLACES:
        with suppress(ImportError, AttributeError):
            key: Callable[[], str] = import_module(place).triton_key
            return key
    return None
