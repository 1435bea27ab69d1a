"""Secrets that must not leave the machine, planted where a careless program would pick them up."""

PRESENT = "sk-present-4712"  # in the environment of a process (tests/launch/conftest.py)
