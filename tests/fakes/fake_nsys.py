"""Fake nsys, as far as the launcher uses it; test_launch.py installs it.

It lies beside `fake.json`: {"version": ..., "help": ..., "sets": ..., "outcome": ...}, and appends
each call with its environment to `calls.jsonl` there. It exports the file "sqlite", if named.
"""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SAID = {
    "no range": "The range was never started.\nNo reports were generated.",
    "qdstrm": "Importer error status: The importer binary and its dependencies were not found.",
    "import failed": "Importer error status: Importation failed.",
    "permission": "GPU Metrics [0]: ERR_NVGPUCTRPERM, see the permission guide",
    "attached": "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
    "illegal": "Illegal --gpu-metrics-devices arguments.",
    "option": "unrecognised option '--bogus'",
}


def main(arguments: list[str]) -> int:
    fake = json.loads((HERE / "fake.json").read_text())
    with open(HERE / "calls.jsonl", "a") as file:
        file.write(json.dumps({"arguments": arguments, "environ": dict(os.environ)}) + "\n")
    if arguments == ["--version"]:
        print(f"NVIDIA Nsight Systems version {fake['version']}-36007619v0")
    elif arguments == ["profile", "--help"]:
        print(fake["help"])
    elif arguments == ["profile", "--gpu-metrics-set=help"]:
        print(fake["sets"])
    elif arguments == ["export", "--help"]:
        print("\t--include-blobs=\n\t--output=\n\t--type=\n")
    elif arguments[0] == "export":
        return export(arguments, fake["outcome"], fake.get("sqlite"))
    else:
        return profile(arguments, fake["outcome"])
    return 0


def export(arguments: list[str], outcome: str, capture: str | None) -> int:
    (output,) = (word.partition("=")[2] for word in arguments if word.startswith("--output="))
    if capture:
        shutil.copy(capture, output)
        return 0
    if outcome == "export fails":
        print("disk full")
        return 1
    database = sqlite3.connect(output)
    database.execute("CREATE TABLE StringIds (id INT, value TEXT)")
    database.execute("CREATE TABLE report (text TEXT)")
    database.execute("INSERT INTO report VALUES (?)", (Path(arguments[-1]).read_text(),))
    database.commit()
    database.close()
    return 0


def profile(arguments: list[str], outcome: str) -> int:
    if outcome in ("illegal", "option"):
        print(SAID[outcome], file=sys.stderr)
        return 1
    at = arguments.index("-o")
    name = re.sub(r"%q\{(\w+)\}", lambda match: os.environ[match[1]], arguments[at + 1])
    name = name.replace("%%", "%")
    signal.signal(signal.SIGINT, lambda *_: print("fake nsys: interrupted", flush=True))
    status = subprocess.run(arguments[at + 2 :]).returncode
    if outcome in ("qdstrm", "import failed"):
        Path(f"{name}.qdstrm").write_text("raw")
    elif outcome == "two windows":
        Path(f"{name}.1.nsys-rep").write_text("first")
        Path(f"{name}.2.nsys-rep").write_text("second")
    elif outcome not in SAID:
        Path(f"{name}.nsys-rep").write_text(f"report of {' '.join(arguments[at + 2 :])}")
    print(SAID.get(outcome, "Generated:"))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
