"""Triton's hash of itself, which it asks for when the first kernel is launched or compiled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Thread

PLACES = ("triton.runtime.cache", "triton.compiler.compiler")  # the newer one first


@contextmanager
def hashing_triton() -> Iterator[None]:
    """On leaving Triton has it; without Triton nothing happens.

    It is of half a gigabyte. A thread reads that meanwhile, and imports nothing.
    """
    thread = Thread(target=triton_key(), name="hash Triton", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def triton_key() -> Callable[[], str] | None:
    """Triton's own function, which remembers what it has returned."""
    for place in PLACES:
        with suppress(ImportError, AttributeError):
            key: Callable[[], str] = import_module(place).triton_key
            return key
    return None
