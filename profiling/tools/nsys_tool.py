"""The installed Nsight Systems command line: where it is, and what its version takes.

Called by profiling.verbs.run and profiling.verbs.doctor. Nothing is assumed about a version: the
options are read from its own `nsys profile --help`.
"""

import glob
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from profiling.tools.environment import without_secrets

PLACES = (
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-systems*/bin/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "/usr/local/cuda*/nsight-compute*/host/target-linux-*/nsys",
)
# a definition in the help starts its line: "-t, --trace=" or "--sample"
OPTION = re.compile(r"^\s*(?:-(?P<letter>\w),?\s+)?--(?P<name>[a-z][\w-]*)")
# "[13] [gh100] General ...", "[gh100] ..." or "gh100: ..."
METRIC_SET = re.compile(r"^\s*(?:\[(\d+)\]\s*)?(?:\[([\w-]+)\]|([\w-]+):)", re.M)
PACKAGES = {"libdw.so.1": "libdw1", "libelf.so.1": "libelf1"}  # Debian's and Ubuntu's names
ANSWER_S = 60.0  # the first start of nsys from a network disk is slow

NOT_FOUND = (
    "nsys: not found on PATH, in /opt/nvidia, nor in the CUDA toolkit; install Nsight Systems "
    "(package nsight-systems-cli of NVIDIA's repository, or developer.nvidia.com/nsight-systems), "
    "or give --nsys PATH"
)


@dataclass(frozen=True)
class Nsys:
    path: str
    version: str  # 2025.3.1.90
    options: dict[str, str]  # of `nsys profile`: long name -> what its help says about it
    letters: dict[str, str]  # t -> trace

    def takes(self, option: str, word: str = "") -> bool:
        """Whether the help lists the option and, if given, names the word as a value of it."""
        pattern = rf"(?<![\w-]){re.escape(word)}(?![\w-])" if word else ""
        return option in self.options and bool(re.search(pattern, self.options[option]))

    def metric_set(self, alias: str) -> str:
        """The value of --gpu-metrics-set for `alias`: an old version takes the set's number."""
        listed = run([self.path, "profile", "--gpu-metrics-set=help"])
        sets = {bare or alias: index for index, alias, bare in METRIC_SET.findall(listed)}
        if alias not in sets:
            have = f"this nsys has {', '.join(sets)}" if sets else "this nsys lists none"
            raise ValueError(f"--metric-set {alias}: no such set; {have}")
        told = self.options.get("gpu-metrics-set", "")
        if "alias" in told or "gpu-metrics-devices" in self.options:
            return alias
        return sets[alias] or alias


def find(given: str | None = None) -> Nsys:
    """The nsys `given`, else the one on PATH, else the newest of those installed elsewhere.

    Raises ValueError saying how to get one.
    """
    if given:
        path = shutil.which(given) or given
        if not (version := version_of(path)):
            raise ValueError(f"--nsys {given}: does not answer --version as nsys does")
        return ask(path, version)
    for path, version in installed():
        return ask(path, version)
    raise ValueError(NOT_FOUND)


def installed() -> list[tuple[str, str]]:
    """(path, version) of every nsys that answers: the one on PATH, then the newest first."""
    on_path = shutil.which("nsys")
    elsewhere = dict.fromkeys(path for place in PLACES for path in glob.glob(place))
    # a toolkit's bin/nsys may be a script that finds no Nsight Systems: it has no version
    answers = {path: version_of(path) for path in dict.fromkeys([on_path, *elsewhere]) if path}
    found = [(path, version) for path, version in answers.items() if version]
    return sorted(found, key=lambda pair: (pair[0] != on_path, [-n for n in numbers(pair[1])]))


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def version_of(path: str) -> str | None:
    match = re.search(r"\b20\d\d(\.\d+)+", run([path, "--version"]))
    return match[0] if match else None


def ask(path: str, version: str) -> Nsys:
    options: dict[str, str] = {}
    letters = {}
    name = None
    for line in run([path, "profile", "--help"]).splitlines():
        if match := OPTION.match(line):
            name = match["name"]
            if match["letter"]:
                letters[match["letter"]] = name
        if name:
            options[name] = options.get(name, "") + line + "\n"
    if not options:
        raise ValueError(
            f"{path}: `nsys profile --help` lists no options; give another with --nsys"
        )
    return Nsys(path, version, options, letters)


def importer(nsys_path: str) -> Path | None:
    """The program beside this nsys that turns a .qdstrm into a .nsys-rep."""
    for folder in list(Path(os.path.realpath(nsys_path)).parents)[:3]:
        for pattern in ("host-linux-*/QdstrmImporter", "linux-desktop-*/QdstrmImporter"):
            if found := sorted(folder.glob(pattern)):
                return found[-1]
    return None


def importer_problem(nsys_path: str) -> str | None:
    """The library that the importer lacks and the packages that bring it; None if it starts."""
    if (program := importer(nsys_path)) is None:
        return None
    match = re.search(r"(\S+\.so\S*): cannot open shared object", run([str(program), "--version"]))
    if not match:
        return None
    cure = "apt-get install libdw1 libelf1" if match[1] in PACKAGES else f"install {match[1]}"
    return f"{program} lacks {match[1]}; {cure}"


def run(command: list[str]) -> str:
    """What a tool says, on either stream; nothing if it cannot be run."""
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
