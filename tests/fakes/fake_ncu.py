"""Fake ncu 2025.3, as far as the verb `ncu` uses it; test_ncu.py installs it.

It lies beside `fake.json`: {"outcome": ..., "page": the CSV that --import prints}, and appends each
call with its environment to `calls.jsonl` there. Its messages were recorded from a real ncu.
"""

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SAID = {
    "option": "==ERROR== unrecognised option '--bogus'. Use --help for further details.",
    "no kernel": "==PROF== Disconnected from process 1573\n"
    "==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. reduce_kernel\n"
    "2. vectorized_elementwise_kernel",
    "no kernel at all": "==WARNING== No kernels were profiled.",
    "permission": "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA "
    "GPU Performance Counters on the target device 0.",
    "crash": "RuntimeError: of the program",
}
CODES = {"option": 1, "crash": 3}


def main(arguments: list[str]) -> int:
    fake = json.loads((HERE / "fake.json").read_text())
    with open(HERE / "calls.jsonl", "a") as file:
        file.write(json.dumps({"arguments": arguments, "environ": dict(os.environ)}) + "\n")
    if arguments == ["--version"]:
        print("NVIDIA (R) Nsight Compute Command Line Profiler")
        print("Version 2025.3.1.0 (build 36398880) (public-release)")
    elif arguments[0] == "--import":
        if not Path(arguments[1]).read_text().startswith("a report"):
            print("==ERROR== Failed to open report", file=sys.stderr)
            return 1
        print(Path(fake["page"]).read_text(), end="")
    elif fake["outcome"] == "report":
        Path(arguments[arguments.index("--export") + 1]).write_text("a report")
    else:
        print(SAID[fake["outcome"]])
    return CODES.get(fake["outcome"], 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
