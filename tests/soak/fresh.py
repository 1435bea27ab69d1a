"""train.py in a process that imports everything itself, and says when its first line has run."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tests.paths import PROJECT

CODE = """
from cli.process import begin
begin()
import os, runpy, sys
os.write(int(sys.argv.pop(1)), b"x")
sys.argv[0] = "train.py"
runpy.run_path(sys.path[0] + "/train.py", run_name="__main__")
"""


def link_project(folder: Path) -> None:
    """Link this project into `folder`, with a copy of data/ so that texts are prepared there."""
    folder.mkdir()
    for path in PROJECT.iterdir():
        is_code = path.suffix == ".py" or path.is_dir() and any(path.glob("*.py"))
        if is_code and path.name not in ("train.py", "data"):
            (folder / path.name).symlink_to(path)
    shutil.copy(PROJECT / "train.py", folder)
    shutil.copytree(PROJECT / "data", folder / "data", ignore=only_sources)


def only_sources(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".py")]


def program(project: Path, words: list[str], writer: int) -> Callable[[], None]:
    """Function that becomes train.py; it writes a byte into a pipe after its first line."""
    os.set_inheritable(writer, True)
    code = f"import sys; sys.path[0] = {str(project)!r}{CODE}"
    command = [sys.executable, "-c", code, str(writer), *words]
    # as the forks that it goes on from: two threads sum in another order
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    return lambda: os.execve(sys.executable, command, environ)
