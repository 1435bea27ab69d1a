"""Programs started with the hook of profiling/attach, and without."""

import os
import subprocess
from pathlib import Path

from profiling.launch.any_program.start import HookSettings, with_hook


def bare_environment() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}


def hooked(folder: Path, environ: dict[str, str] | None = None, **settings) -> dict[str, str]:
    """The environment of a program whose hook writes to the folder, which is made."""
    folder.mkdir()
    asked = HookSettings(str(folder), ["x"], **({"kind": "torch"} | settings))
    return with_hook(environ or bare_environment(), asked)


def output(words: list[str], environ: dict[str, str]) -> tuple[int, str, str]:
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=90)
    return done.returncode, done.stdout, done.stderr
