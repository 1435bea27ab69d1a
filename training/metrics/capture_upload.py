"""Adds the newest capture of a run that has ended to its W&B run (wandb.captures=true).

Called by train.py. The half of this project that reads captures scrubs and reports it, in a process
of its own: the trainer imports none of that half.
"""

import os
import subprocess
import sys
from pathlib import Path

from cli.program import HOME, PREFIX
from configs.schema import Config
from training.metrics.wandb_settings import check_wandb


def send_capture(config: Config, began_s: float) -> None:
    """Runs `profiling log` if PyTorch's profiler wrote a capture since `began_s`, of time.time().

    nsys writes its capture after this process has ended: `profiling run` sends that one. A failure
    is a line of the other process, and no failure of the training.
    """
    if not config.wandb.captures or check_wandb(config.wandb) == "disabled":
        return
    traces = Path(config.out_dir, "profile").glob("*.trace.json.gz")
    written_s, newest = max(((path.stat().st_mtime, path) for path in traces), default=(0.0, None))
    if newest is None or written_s < began_s:
        return
    environ = dict(os.environ)
    if not PREFIX:  # a checkout may have been started from anywhere
        paths = (str(HOME), environ.get("PYTHONPATH"))
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    words = [sys.executable, "-m", "profiling", "log", str(newest), "--run", config.out_dir]
    subprocess.run(words, env=environ)
