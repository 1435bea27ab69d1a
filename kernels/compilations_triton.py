"""The compilations that launches of Triton's kernels would begin, without the launches."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial

from triton.runtime.jit import JITFunction

Compilation = Callable[[], object]


@contextmanager
def noted_compilations() -> Iterator[dict[Hashable, Compilation]]:
    """Within it Triton neither compiles nor launches a kernel that it has not launched yet.

    What it would have compiled is in the dictionary, for the caller to call on leaving. Triton
    launches nothing where its JITFunction._do_compile returns None (3.6 to 3.9).
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
