"""`python -m profiling device`: this GPU's own numbers, measured and nominal. A verb's module."""

import json
from typing import Any

import torch
from rich.console import Console
from rich.text import Text

from cli.parser import Parser
from profiling.lab.arguments import lab_device
from profiling.lab.device import facts, measured
from profiling.report import text
from profiling.report.console import grid
from profiling.report.tables import Column, Table

HELP = """\
Measures what this device can do: bandwidth of its memory, matrix products, an empty launch, and the
ridge point of its roofline; beside the data sheet where that is known.

usage: python -m profiling device [FLAGS]

flags
  --device DEVICE  auto, cpu, cuda, cuda:N (auto)
  --max-s SECONDS  bound on the samples of one measurement (0.5)
  --json           as JSON, on stdout

examples
  python -m profiling device
  python -m profiling device --json | jq .bandwidth.measured
"""


def main(argv: list[str]) -> int:
    """Measures and prints. Raises ValueError for bad flags."""
    if {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    parser = Parser("device")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--max-s", type=float, default=0.5)
    parser.add_argument("--json", action="store_true")
    request = parser.parse_args(argv)
    if not request.max_s > 0:
        raise ValueError(f"--max-s {request.max_s:g}: must be above 0")
    device = lab_device(request.device)
    found = {"torch": torch.__version__, **facts(device), **measured(device, request.max_s)}
    if request.json:
        print(json.dumps(found, indent=1, allow_nan=False))
    else:
        print_device(found, Console(highlight=False))
    return 0


def print_device(found: dict[str, Any], console: Console) -> None:
    console.print(Text(found["device"], style="bold"))
    console.print(Text(described(found), style="dim"))
    for table in (rates(found), ridges(found)):
        console.print(grid(table, console.width, most=len(table.rows)))
    if found["empty_launch_ms"] is None:
        console.print("empty launch: a CPU has none")
        return
    empty, host = (found[key] * 1e6 for key in ("empty_launch_ms", "empty_launch_host_ms"))
    console.print(
        f"empty launch: {text.duration_ns(empty)} between two events, "
        f"{text.duration_ns(host)} of the host's time to queue it"
    )


def described(found: dict[str, Any]) -> str:
    parts = [
        ("compute capability", found["capability"]),
        ("multiprocessors", found["multiprocessors"]),
        ("L2 cache", found["l2_bytes"] and text.size_bytes(found["l2_bytes"])),
        ("memory", found["memory_bytes"] and text.size_bytes(found["memory_bytes"])),
        ("SM clock up to", found["sm_clock_mhz"] and f"{found['sm_clock_mhz']} MHz"),
        ("memory clock up to", found["memory_clock_mhz"] and f"{found['memory_clock_mhz']} MHz"),
    ]
    known = [f"{name} {value}" for name, value in parts if value]
    unknown = [name for name, value in parts if not value]
    lines = [", ".join(known)] if known else []
    lines += [f"not known here: {', '.join(unknown)}"] if unknown else []
    return "; ".join(lines)


def rates(found: dict[str, Any]) -> Table:
    columns = [
        Column("", "what", "text", True),
        Column("measured", "measured", "number", True),
        Column("±", "uncertainty_percent", "percent", True),
        Column("nominal", "nominal", "number", True),
        Column("unit", "unit", "text", True),
        Column("reached", "percent_of_nominal", "percent", True),
    ]
    rows = [found["bandwidth"], *found["products"].values()]
    note = "Nominal: the data sheet's, dense; – where none is known. float32 without TF32."
    return Table("rates", "Rates", note, columns, rows)


def ridges(found: dict[str, Any]) -> Table:
    rows = [{"dtype": dtype, **both} for dtype, both in found["ridge_flops_per_byte"].items()]
    columns = [
        Column("", "dtype", "text", True),
        Column("measured", "measured", "number", True),
        Column("nominal", "nominal", "number", True),
    ]
    note = "FLOP per byte: a kernel that does less is bound by memory, else by arithmetic."
    return Table("ridge", "Ridge of the roofline", note, columns, rows)
