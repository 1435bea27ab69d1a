"""Processes of `python -m profiling bench`: planning them, running them, reading their output."""
