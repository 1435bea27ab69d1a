"""The compilations that launches of Triton's kernels would need: collected, cached or not."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest.mock import patch

from triton.compiler.compiler import ASTSource
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


class NotCached(Exception):
    """Triton begins to compile a kernel that its cache does not hold."""


def load_cached(compilations: Iterable[Compilation]) -> list[Compilation]:
    """Loads the kernels that Triton's cache holds. Returns the compilations of the others.

    Triton looks into its cache before it calls make_ir of a source (3.6 to 3.9).
    """

    def refuse(*_: object) -> None:
        raise NotCached

    left = []
    sources = [ASTSource, *ASTSource.__subclasses__()]  # Gluon's is one of them
    with ExitStack() as patches:
        for source in sources:
            patches.enter_context(patch.object(source, "make_ir", refuse))
        for compilation in compilations:
            try:
                compilation()
            except NotCached:
                left.append(compilation)
    return left
