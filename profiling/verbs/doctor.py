"""Checks what profiling needs of this machine: nsys, ncu, permissions, CUPTI, driver, torch, NVML,
W&B, disk. Nothing is changed. The last line says what can be profiled here.

  ok        works
  note      cannot be had here and need not (all that wants a GPU, without one)
  warning   part of a capture will be missing: counters, samples, space
  error     captures will fail

{flags}

exit code: 0 with nothing above a note, 1 with a warning, 2 with an error

examples
  python -m profiling doctor
  python -m profiling doctor --json | jq '.checks[] | select(.severity != "ok")'
"""

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.parser import Parser, flag
from profiling.launch.doctor import (
    NO_GPU,
    SEVERITIES,
    Check,
    checks,
    has_gpu,
    not_applicable,
    summary,
)
from profiling.verbs.progress import doing

EXIT_CODES = {"ok": 0, "note": 0, "warning": 1, "error": 2}
STYLES = {"ok": "green", "note": "dim", "warning": "yellow", "error": "bold red"}


def main(argv: list[str]) -> int:
    parser = Parser("doctor", __doc__)
    flag(parser, "--json", "the checks as JSON")
    as_json = parser.parse_args(argv).json
    in_lines = not as_json and not sys.stdout.isatty()
    found, gpu = [], has_gpu()
    with nullcontext() if in_lines else doing("checking: torch takes seconds to import"):
        for check in checks(gpu):
            found.append(check)
            if in_lines and check.finding != NO_GPU:
                print_lines(check)
    worst = max((check.severity for check in found), key=SEVERITIES.index)
    if as_json:
        print(json.dumps({"worst": worst, "checks": [asdict(check) for check in found]}, indent=2))
        return EXIT_CODES[worst]
    rest = [row] if (row := not_applicable(found)) else []
    if in_lines:
        for check in rest:
            print_lines(check)
    else:
        print_table([*(check for check in found if check.finding != NO_GPU), *rest])
    print(summary(found, gpu))
    return EXIT_CODES[worst]


def print_lines(check: Check) -> None:
    """At once: the next check may take seconds."""
    print(f"{check.severity:8} {check.name}: {check.finding}", flush=True)
    if check.cure:
        print(f"{'':8} cure: {check.cure}", flush=True)


def print_table(found: list[Check]) -> None:
    table = Table("", "check", "found", box=box.SIMPLE)
    for check in found:
        told = Text(check.finding)
        if check.cure:
            told.append(f"\ncure: {check.cure}", style="cyan")
        table.add_row(Text(check.severity, style=STYLES[check.severity]), check.name, told)
    Console().print(table)
