"""profile=nsys: cudaProfilerStart and Stop, which bound what Nsight Systems records."""

import logging
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from configs.profiling import ProfileConfig
from configs.sampling import PROGRAM
from profiling.recording.recording import Recorder

log = logging.getLogger(__name__)


class NsysRecorder(Recorder):
    """Starts and stops nsys's recording for a window; nsys itself writes the report."""

    def __init__(self, cudart: object = None):
        """Set up the recorder; `cudart` has cudaProfilerStart and cudaProfilerStop, and is torch's
        by default."""
        self.cudart = cudart or torch.cuda.cudart()
        self.return_codes: dict[str, int] = {}
        self.nsys_attached = is_attached(os.environ)

    def start(self) -> None:
        self.call("cudaProfilerStart")

    def stop(self, stem: Path) -> list[Path]:
        self.call("cudaProfilerStop")
        return []

    def call(self, name: str) -> None:
        self.return_codes[name] = code = int(getattr(self.cudart, name)())
        if code:
            log.warning("%s returned %d: the window may be missing from the report", name, code)


def is_attached(environ: Mapping[str, str]) -> bool:
    """Whether nsys started this process, by the variables that it leaves in its environment."""
    injected = environ.get("CUDA_INJECTION64_PATH", "") + environ.get("LD_PRELOAD", "")
    return "NSYS_PROFILING_SESSION_ID" in environ or "libToolsInjection" in injected


def how_to_attach(profile: ProfileConfig) -> str:
    end = "stop" if profile.windows == 1 else f"repeat:{profile.windows}"
    sampling = Path(sys.argv[0]).name == PROGRAM  # `run` takes it by name; else it is training
    arguments = shlex.join([PROGRAM, *sys.argv[1:]] if sampling else sys.argv[1:])
    return (
        f"python -m profiling run {arguments}, or nsys profile --trace=cuda,nvtx,osrt "
        "--sample=none --cpuctxsw=none --wait=primary --capture-range=cudaProfilerApi "
        f"--capture-range-end={end} -o NAME python {shlex.join(sys.argv)}"
    )
