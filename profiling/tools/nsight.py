"""The installed command-line tools of Nsight: finding them, and starting them without secrets.

nsys stores the environment of the processes that it starts, and those blocks also come back among
the strings of child processes; reports are made to be passed on. So neither a tool nor the run that
it profiles gets the secrets at all.
"""

import glob
import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from profiling.shared.secrets import secret_names

PLACES = {
    "nsys": (
        "/opt/nvidia/nsight-systems*/*/bin/nsys",
        "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
        "/opt/nvidia/nsight-systems*/bin/nsys",
        "/usr/local/cuda*/bin/nsys",
        "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
        "/usr/local/cuda*/nsight-compute*/host/target-linux-*/nsys",
    ),
    "ncu": (
        "/opt/nvidia/nsight-compute/*/ncu",
        "/usr/local/cuda*/bin/ncu",
        "/usr/local/cuda*/nsight-compute*/ncu",
    ),
}
# tool -> what is wrong if it is not found; what to do
NOT_FOUND = {
    "nsys": "not found on PATH, in /opt/nvidia or in the CUDA toolkit; install Nsight Systems "
    "(package nsight-systems-cli from NVIDIA's repository, or "
    "developer.nvidia.com/nsight-systems)",
    "ncu": "not found on PATH, in /opt/nvidia/nsight-compute or in the CUDA toolkit; install "
    "Nsight Compute (package nsight-compute from NVIDIA's repository, or "
    "developer.nvidia.com/nsight-compute)",
}
VERSION = re.compile(r"\bversion (20\d\d(\.\d+)+)", re.I)
ANSWER_S = 60.0  # the first start from a network disk is slow


@dataclass(frozen=True)
class Program:
    path: str
    version: str  # 2025.3.1.90


def find(tool: str, given: str | None = None) -> Program:
    """The tool (nsys or ncu) at path `given`, else the first of those installed.

    Raises ValueError saying how to get one.
    """
    if given:
        path = shutil.which(given) or given
        if version := version_of(path):
            return Program(path, version)
        raise ValueError(f"--{tool} {given}: does not answer to --version as {tool} does")
    for program in installed_programs(tool):
        return program
    raise ValueError(f"{tool}: {NOT_FOUND[tool]}, or give --{tool} PATH")


def installed_programs(tool: str) -> list[Program]:
    """Installed versions of the tool that answer: first the one on PATH, then the newest first."""
    on_path = shutil.which(tool)
    elsewhere = [path for place in PLACES[tool] for path in glob.glob(place)]
    paths = dict.fromkeys([on_path, *elsewhere] if on_path else elsewhere)
    # a toolkit's bin/nsys may be a script that finds no Nsight Systems: it has no version
    answers = [Program(path, version) for path in paths if (version := version_of(path))]
    answers.sort(key=lambda p: [-int(n) for n in p.version.split(".")])  # 2025.10 before 2025.3
    return sorted(answers, key=lambda p: p.path != on_path)


def version_of(path: str) -> str | None:
    match = VERSION.search(answer([path, "--version"]))
    return match[1] if match else None


def answer(command: list[str]) -> str:
    """Output of a command, both streams together; empty if it cannot be run."""
    environ, _ = without_secrets()
    try:
        done = subprocess.run(
            command,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ANSWER_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def without_secrets() -> tuple[dict[str, str], list[str]]:
    """(environment of this process without secrets, the names of those left out)."""
    removed = secret_names(dict(os.environ))
    return {name: os.environ[name] for name in os.environ if name not in removed}, removed
