"""Checks whether this machine can profile: nsys, ncu, permissions, CUPTI, driver, torch, NVML, W&B
and disk. It changes nothing. The last line says what can be profiled here.

  ok        works
  note      not available here and not needed (for example GPU checks without a GPU)
  warning   part of a capture will be missing: counters, samples, space
  error     captures will fail

{flags}

exit code: 0 if there are only notes, 1 with a warning, 2 with an error

examples
  python -m profiling doctor
  python -m profiling doctor --json | jq '.checks[] | select(.severity != "ok")'
"""

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict

from rich import box
from rich.table import Table
from rich.text import Text

from cli.parser import Parser, flag
from cli.program import as_called
from profiling.launch.doctor import (
    NO_GPU,
    SEVERITIES,
    Check,
    checks,
    has_gpu,
    not_applicable,
    summary,
)
from profiling.verbs.progress import progress_line
from profiling.verbs.results import console

EXIT_CODES = {"ok": 0, "note": 0, "warning": 1, "error": 2}
STYLES = {"ok": "green", "note": "dim", "warning": "yellow", "error": "bold red"}


def main(argv: list[str]) -> int:
    parser = Parser("doctor", __doc__)
    flag(parser, "--json", "the checks as JSON")
    as_json = parser.parse_args(argv).json
    in_lines = not as_json and not sys.stdout.isatty()
    results, gpu = [], has_gpu()
    with nullcontext() if in_lines else progress_line("checking: torch takes seconds to import"):
        for check in checks(gpu):
            results.append(check)
            if in_lines and check.finding != NO_GPU:
                print_lines(check)
    worst = max((check.severity for check in results), key=SEVERITIES.index)
    if as_json:
        rows = [asdict(check) for check in results]
        print(json.dumps({"worst": worst, "checks": rows}, indent=2))
        return EXIT_CODES[worst]
    rest = [row] if (row := not_applicable(results)) else []
    if in_lines:
        for check in rest:
            print_lines(check)
    else:
        print_table([*(check for check in results if check.finding != NO_GPU), *rest])
    print(as_called("your own program: python -m profiling run -- python my_train.py"))
    print(summary(results, gpu))
    return EXIT_CODES[worst]


def print_lines(check: Check) -> None:
    """Print a check at once, since the next one may take seconds."""
    print(f"{check.severity:8} {check.name}: {check.finding}", flush=True)
    if check.cure:
        print(f"{'':8} cure: {check.cure}", flush=True)


def print_table(results: list[Check]) -> None:
    table = Table("", "check", "found", box=box.SIMPLE)
    table.columns[2].overflow = "fold"  # an address is longer than a narrow terminal has room for
    for check in results:
        text = Text(check.finding)
        if check.cure:
            text.append(f"\ncure: {check.cure}", style="cyan")
        table.add_row(Text(check.severity, style=STYLES[check.severity]), check.name, text)
    console().print(table)
