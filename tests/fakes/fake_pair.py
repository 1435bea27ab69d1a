"""Fake of a process of validation.pair_programs: it answers at once, and steps take what it says.

Arguments: program, variants, socket. A variant called `unmakeable` is not made; the program `dies`
ends before it answers.
"""

import gzip
import socket
import sys

MS = {"before": 200.0, "without": 100.0}  # else 180


def main(program: str, variants: str, address: str) -> None:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    lines = connection.makefile("rw")
    if program == "dies":
        return
    made = [name for name in variants.split(",") if name != "unmakeable"]
    print("ready", *made, file=lines, flush=True)
    for line in lines:
        if line == "end\n":
            break
        variant, task, _, *more = line.split()
        if task == "torch":
            with gzip.open(more[0], "wt") as file:
                file.write('{"traceEvents": []}')
        print(MS.get(variant, 180.0), file=lines, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
