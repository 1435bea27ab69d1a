"""The installed Nsight Systems command line: the options of its version, and its importer.

Nothing is assumed about a version: the options are read from its own `nsys profile --help`.
"""

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from profiling.tools import nsight
from profiling.tools.nsight import Program

# a definition in the help starts its line: "-t, --trace=" or "--sample"
OPTION = re.compile(r"^\s*(?:-(?P<letter>\w),?\s+)?--(?P<name>[a-z][\w-]*)")
# "[13] [gh100] General ...", "[gh100] ..." or "gh100: ..."
METRIC_SET = re.compile(r"^\s*(?:\[(\d+)\]\s*)?(?:\[([\w-]+)\]|([\w-]+):)", re.M)
PACKAGED = ("libdw.so.1", "libelf.so.1")  # in libdw1 and libelf1 of Debian and Ubuntu


@dataclass(frozen=True)
class Nsys(Program):
    options: dict[str, str]  # long name of an option of `nsys profile` -> its help text
    letters: dict[str, str]  # short name -> long name, as t -> trace

    def takes(self, option: str, word: str = "") -> bool:
        """Whether the help lists the option and, if `word` is given, names it as a value."""
        pattern = rf"(?<![\w-]){re.escape(word)}(?![\w-])" if word else ""
        return option in self.options and bool(re.search(pattern, self.options[option]))

    def metric_set(self, alias: str) -> str:
        """The value of --gpu-metrics-set for `alias`; an old version takes the set's number.

        Raises ValueError if this nsys has no such set.
        """
        text = nsight.answer([self.path, "profile", "--gpu-metrics-set=help"])
        sets = {bare or alias: index for index, alias, bare in METRIC_SET.findall(text)}
        if alias not in sets:
            have = f"this nsys has {', '.join(sets)}" if sets else "this nsys lists none"
            raise ValueError(f"--metric-set {alias}: no such set; {have}")
        help_text = self.options.get("gpu-metrics-set", "")
        if "alias" in help_text or "gpu-metrics-devices" in self.options:
            return alias
        return sets[alias] or alias


def find(given: str | None = None) -> Nsys:
    """The nsys at path `given`, else the one on PATH, else the newest, with its options.

    Raises ValueError if there is none, or its help lists no options.
    """
    program = nsight.find("nsys", given)
    options: dict[str, str] = {}
    letters = {}
    name = None
    for line in nsight.answer([program.path, "profile", "--help"]).splitlines():
        if match := OPTION.match(line):
            name = match["name"]
            if match["letter"]:
                letters[match["letter"]] = name
        if name:
            options[name] = options.get(name, "") + line + "\n"
    if not options:
        raise ValueError(
            f"{program.path}: `nsys profile --help` lists no options; give another nsys with --nsys"
        )
    return Nsys(program.path, program.version, options, letters)


def export_command(nsys_path: str, report: Path, sqlite: Path) -> list[str]:
    """The words that export a report, with the Python stacks that it may have."""
    words = [nsys_path, "export", "--type=sqlite", "--force-overwrite=true"]
    if "--include-blobs" in export_help(nsys_path):
        words.append("--include-blobs=true")
    return [*words, f"--output={sqlite}", str(report)]


@cache
def export_help(nsys_path: str) -> str:
    """The options of `nsys export`, asked for once: each rank and window has an export."""
    return nsight.answer([nsys_path, "export", "--help"])


def importer(nsys_path: str) -> Path | None:
    """The program beside this nsys that turns a .qdstrm into a .nsys-rep, or None."""
    for folder in list(Path(os.path.realpath(nsys_path)).parents)[:3]:
        for pattern in ("host-linux-*/QdstrmImporter", "linux-desktop-*/QdstrmImporter"):
            if programs := sorted(folder.glob(pattern)):
                return programs[-1]
    return None


def importer_problem(nsys_path: str) -> str | None:
    """The library that the importer lacks and how to install it, or None if it starts or there is
    none."""
    if (program := importer(nsys_path)) is None:
        return None
    output = nsight.answer([str(program), "--version"])
    match = re.search(r"(\S+\.so\S*): cannot open shared object", output)
    if not match:
        return None
    cure = "apt-get install libdw1 libelf1" if match[1] in PACKAGED else f"install {match[1]}"
    return f"{program} needs {match[1]}, which is missing; {cure}"
