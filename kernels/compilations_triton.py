"""The compilations that launches of Triton's kernels would need."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial

from triton.runtime.jit import JITFunction

Compilation = Callable[[], object]


@contextmanager
def collect_compilations() -> Iterator[dict[Hashable, Compilation]]:
    """Collect, within the block, the compilations of kernels that Triton has not launched yet.

    Triton neither compiles nor launches such a kernel there. What it would have compiled is put
    into the yielded dictionary, and the caller calls it after the block. Triton launches nothing if
    its JITFunction._do_compile returns None (3.6 to 3.9).
    """
    compile_kernel = JITFunction._do_compile
    noted: dict[Hashable, Compilation] = {}

    def note(kernel: JITFunction, key: str, *rest: object, **options: object) -> None:
        noted[kernel.__name__, key] = partial(compile_kernel, kernel, key, *rest, **options)

    JITFunction._do_compile = note
    try:
        yield noted
    finally:
        JITFunction._do_compile = compile_kernel
