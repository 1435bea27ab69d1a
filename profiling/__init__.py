"""Captures of the training run, and what can be read from them."""

# Python 3.15's standard library has a package of this name, and cProfile uses it
from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
