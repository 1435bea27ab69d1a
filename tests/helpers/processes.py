"""Processes that run beside their test."""

import subprocess


def read_until(process: subprocess.Popen, words: str) -> str:
    """The output up to a line that has these words."""
    output = ""
    for line in process.stdout:
        output += line
        if words in line:
            return output
    raise AssertionError(f"ended without {words!r}:\n{output}")
