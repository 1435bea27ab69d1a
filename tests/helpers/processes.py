"""Processes that run beside their test."""

import subprocess


def read_until(process: subprocess.Popen, words: str) -> str:
    """Output of the process up to a line that contains `words`. Fails if it ends before."""
    output = ""
    for line in process.stdout:
        output += line
        if words in line:
            return output
    raise AssertionError(f"ended without {words!r}:\n{output}")
