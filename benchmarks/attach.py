"""Cost of the hook that `profiling run -- COMMAND` puts into a program, per step outside a window.

    python -m benchmarks attach
    python -m benchmarks attach widths=16,128,512 steps=2000 rounds=12

First the hook's own calls alone: a loop of stubs (a module, a backward and an optimizer that do
nothing), bare and hooked in one process, the least of 60 means over 1,000 steps, so that the
machine's other work is left out. Then steps of a small model on one thread of the CPU, in bare and
hooked processes that take turns; a process counts by the median of its steps.
"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from statistics import median

from benchmarks.measuring import PROJECT, Keys, key, measure_in_turns, spread
from profiling.launch.any_program.start import HOOK, HookSettings, with_hook

PROGRAM = PROJECT / "benchmarks" / "attach_program.py"


@dataclass
class AttachConfig(Keys):
    widths: str = key("16,256,1024", "of the model's layers, by commas; empty: the stubs alone")
    steps: int = key(2000, "of each process", least=100)
    rounds: int = key(12, "bare and hooked processes of each width", least=2)
    stub_rounds: int = key(5, "processes of stubs", least=1)


def main(config: AttachConfig) -> None:
    added = [hooked - bare for bare, hooked in (stubs_us() for _ in range(config.stub_rounds))]
    print(f"the hook's own calls: {spread(added, 2)} us per step, of {len(added)} processes\n")
    widths = [int(word) for word in config.widths.split(",") if word]
    if widths:
        print("| width | bare, us | hooked, us | added, us | hooked / bare |")
        print("|---:|---:|---:|---:|---:|")
    for width in widths:
        measures = {hooked: partial(model_us, width, config.steps, hooked) for hooked in (0, 1)}
        us = measure_in_turns(measures, config.rounds)
        pairs = list(zip(us[0], us[1], strict=True))
        row = (
            spread(us[0], 1),
            spread(us[1], 1),
            spread([hooked - bare for bare, hooked in pairs], 1),
            f"{median(hooked / bare for bare, hooked in pairs):.4f}",
        )
        print(f"| {width} | {' | '.join(row)} |", flush=True)


def stubs_us() -> tuple[float, float]:
    """Microseconds per step of stubs, bare and hooked."""
    with tempfile.TemporaryDirectory() as folder:
        bare, hooked = run(["stubs", str(HOOK), folder], os.environ).split()
    return float(bare), float(hooked)


def model_us(width: int, steps: int, hooked: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        settings = HookSettings(folder, ["model"], "none")  # no window
        environ = with_hook(dict(os.environ), settings) if hooked else dict(os.environ)
        return float(run([str(width), str(steps)], environ))


def run(words: list[str], environ: os._Environ[str] | dict[str, str]) -> str:
    """Text that the program prints. Raises ValueError with its last words if it fails."""
    command = [sys.executable, str(PROGRAM), *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{PROGRAM.name} ended with {done.returncode}: {done.stderr[-300:]}")
    return done.stdout
