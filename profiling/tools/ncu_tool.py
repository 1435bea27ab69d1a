"""The installed Nsight Compute command line: where it is. Called by profiling.verbs.ncu."""

import glob
import re
import shutil
from dataclasses import dataclass

from profiling.tools import nsys_tool

PLACES = (
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/cuda*/bin/ncu",
    "/usr/local/cuda*/nsight-compute*/ncu",
)
NOT_FOUND = (
    "ncu: not found on PATH, in /opt/nvidia/nsight-compute, nor in the CUDA toolkit; install "
    "Nsight Compute (package nsight-compute of NVIDIA's repository, or "
    "developer.nvidia.com/nsight-compute), or give --ncu PATH"
)


@dataclass(frozen=True)
class Ncu:
    path: str
    version: str  # 2025.3.1.0


def find(given: str | None = None) -> Ncu:
    """The ncu `given`, else the one on PATH, else the newest of those installed elsewhere.

    Raises ValueError saying how to get one.
    """
    if given:
        path = shutil.which(given) or given
        if not (version := version_of(path)):
            raise ValueError(f"--ncu {given}: does not answer --version as ncu does")
        return Ncu(path, version)
    if (on_path := shutil.which("ncu")) and (version := version_of(on_path)):
        return Ncu(on_path, version)
    elsewhere = sorted({path for place in PLACES for path in glob.glob(place)})
    found = [Ncu(path, version) for path in elsewhere if (version := version_of(path))]
    if not found:
        raise ValueError(NOT_FOUND)
    return max(found, key=lambda ncu: nsys_tool.numbers(ncu.version))


def version_of(path: str) -> str | None:
    match = re.search(r"\bVersion (20\d\d(\.\d+)+)", nsys_tool.run([path, "--version"]))
    return match[1] if match else None
