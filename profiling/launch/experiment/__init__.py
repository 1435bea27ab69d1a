"""Processes of an experiment (`python -m profiling ab`): planning, running and capturing them."""
