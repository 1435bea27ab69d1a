"""Version of this project. pyproject.toml names it, and nothing else does."""

import tomllib
from importlib import metadata
from pathlib import Path

from cli.program import NAME

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"  # in a checkout


def version() -> str:
    """The version of the checkout that this file lies in, or of the installation."""
    if PYPROJECT.is_file():
        return str(tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]["version"])
    return metadata.version(NAME)
