"""Captures of the training run, and what can be read from them.

The five functions for notebooks and other programs are those of profiling.library.functions. They
are imported when they are first asked for, so that `from profiling import attach` costs nothing.
"""

# Python 3.15's standard library has a package of this name, and cProfile uses it
from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
__all__ = ["ab", "compare", "open_capture", "open_run", "run"]

TYPE_CHECKING = False  # as typing has it, whose import takes longer than all of this
if TYPE_CHECKING:
    from profiling.library.functions import ab, compare, open_capture, open_run, run


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("profiling.library.functions"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
