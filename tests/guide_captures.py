"""Make the captures of sections 19 and 20 of docs/guide.md: `python -m tests.guide_captures`.

The memory snapshots are those of a training that is played on a model of PyTorch's allocator. The
trace is of the program in the guide, run here.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from profiling.verbs import scrub
from tests.helpers.memory_snapshots import MIB, Training, pickled
from tests.paths import PROJECT

CAPTURES = PROJECT / "tests" / "captures"
LEAKY = Training(layers=6, weight=4 * MIB, activation=12 * MIB, leak=3 * MIB)
FIXED = Training(layers=6, weight=4 * MIB, activation=5 * MIB)
STEPS = 5
PROGRAM = re.compile(r"^```\n(# mine\.py\n.*?)^```", re.S | re.M)
RUN = ("-m", "profiling", "run", "--kind", "torch", "--stack", "--start", "5", "--steps", "2")


def main() -> None:
    folder = CAPTURES / "memory"
    folder.mkdir(exist_ok=True)
    for name, training in (("leaky", LEAKY), ("fixed", FIXED)):
        (folder / f"{name}.pickle").write_bytes(pickled(training.make().run(STEPS).snapshot()))
    guide = (PROJECT / "docs" / "guide.md").read_text(encoding="utf-8")
    (program,) = PROGRAM.findall(guide)
    with tempfile.TemporaryDirectory() as place:
        Path(place, "mine.py").write_text(program, encoding="utf-8")
        command = [sys.executable, *RUN, "--", sys.executable, "mine.py"]
        environ = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=place, env=environ, check=True)
        made = Path(place, "out-run", "profile", "window-1.trace.json.gz")
        scrub.main([str(made), "-o", str(Path(place, "lines.trace.json.gz"))])
        shutil.copy(Path(place, "lines.trace.json.gz"), CAPTURES / "own_program")


if __name__ == "__main__":
    main()
