"""What must not leave the machine, planted where a careless program would send it from."""

PRESENT = "sk-present-4712"  # in the environment of a process (tests/launch/conftest.py)
