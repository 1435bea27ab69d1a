"""Processes that share a run."""
