"""Modules of docs/hooks, which mkdocs loads by their paths, loaded without mkdocs."""

import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from tests.paths import PROJECT


@cache
def load_hook(name: str) -> ModuleType:
    """Load docs/hooks/NAME.py."""
    spec = spec_from_file_location(f"docs_hook_{name}", PROJECT / "docs" / "hooks" / f"{name}.py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
