"""`python -m profiling square`: the lecture's example, as a worked guide. A verb's module."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.text import Text

from cli.errors import one_line
from cli.files import check_folder, write_text
from cli.parser import Parser
from profiling.hardware import peak_bytes_per_s
from profiling.lab.arguments import (
    DTYPES,
    device_name,
    lab_device,
    one_of,
    positive_integers,
)
from profiling.lab.square import VARIANTS, WRONG, Row, matrix, measured, profiler_table
from profiling.lab.timer import empty_launch
from profiling.report.console import grid
from profiling.report.tables import Column, Table

HELP = """\
Squares a matrix in six ways (three spellings of eager PyTorch, torch.compile, a Triton kernel, a
CUDA C++ kernel), checks each against float64, and gives each one's bandwidth as a share of a plain
copy's. All read and write every element once, so a copy of the same size is what can be reached.

usage: python -m profiling square [FLAGS]

flags
  --device DEVICE  auto, cpu, cuda, cuda:N (auto)
  --mib N,N,...    sizes of the matrix in MiB (1,64,1024)
  --dtype TYPE     float32, bfloat16, float16 (float32)
  --profiler       torch.profiler's table of one call of each, at the first size
  --max-s SECONDS  bound on the samples of one measurement (0.3)
  --json FILE      all figures

examples
  python -m profiling square
  python -m profiling square --mib 64 --profiler
  python -m profiling square --device cpu --mib 1,16

What needs a GPU, nvcc or triton says so where it lacks them, and the rest runs. The sources to
read are profiling/lab/square_triton.py and profiling/lab/square.cu.

exit code: 0; 1 when a variant gave wrong results; 2 for bad flags
"""


def main(argv: list[str]) -> int:
    """Measures and prints size by size. Raises ValueError for bad flags."""
    if {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    request = parse(argv)
    device = lab_device(request.device)
    sizes = positive_integers("--mib", request.mib)
    console = Console(highlight=False, width=120)
    document = document_of(request, device)
    for line in told(document):
        console.print(Text(line, style="dim"))
    for mebibytes in sizes:
        try:
            rows = list(measured(matrix(mebibytes, request.dtype, device), request.max_s))
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            if "memory" not in str(error):
                raise
            console.print(f"\n{mebibytes} MiB: {one_line(error)[:200]}")
            continue
        document["rows"] += rows
        console.print(grid(table(f"{mebibytes} MiB", rows), console.width, most=len(rows)))
    if request.profiler:
        print_profiles(matrix(sizes[0], request.dtype, device))
    if request.json:
        write_text(request.json, json.dumps(document, indent=1, allow_nan=False) + "\n")
        print(f"written {request.json}")
    return int(any((row["missing"] or "").startswith(WRONG) for row in document["rows"]))


def parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("square")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--mib", default="1,64,1024")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--profiler", action="store_true")
    parser.add_argument("--max-s", type=float, default=0.3)
    parser.add_argument("--json", type=Path)
    request = parser.parse_args(argv)
    one_of("--dtype", request.dtype, DTYPES)
    if not request.max_s > 0:
        raise ValueError(f"--max-s {request.max_s:g}: must be above 0")
    if request.json:
        check_folder(request.json)
    return request


def document_of(request: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    cuda = device.type == "cuda"
    name = device_name(device)
    nominal = peak_bytes_per_s(name)
    return {
        "kind": "square",
        "device": name,
        "torch": torch.__version__,
        "dtype": request.dtype,
        "peak_gbps": nominal / 1e9 if nominal else None,
        "empty_launch_ms": empty_launch(device).median_ms if cuda else None,
        "l2_flushed": cuda,
        "rows": [],
    }


def told(document: dict[str, Any]) -> list[str]:
    lines = [f"{document['device']}, {document['dtype']}, PyTorch {document['torch']}"]
    if document["peak_gbps"]:
        lines.append(f"bandwidth by the data sheet {document['peak_gbps']:,.0f} GB/s")
    if document["empty_launch_ms"] is not None:
        empty_us = document["empty_launch_ms"] * 1e3
        lines.append(f"empty launch {empty_us:.2f} µs; L2 cache flushed before each sample")
    else:
        lines.append("time by perf_counter, caches as they were: a small matrix stays in them")
    return lines


def table(title: str, rows: list[Row]) -> Table:
    shown = [
        row
        | {
            "median_ns": None if row["median_ms"] is None else row["median_ms"] * 1e6,
            "gbps": row.get("gbps"),
            "percent_of_copy": row.get("percent_of_copy"),
            "said": row["missing"] or row["result"],
        }
        for row in rows
    ]
    columns = [
        Column("", "name", "text", True),
        Column("median", "median_ns", "ns", True),
        Column("GB/s", "gbps", "number", True),
        Column("of the copy", "percent_of_copy", "percent", True),
        Column("result, against float64", "said", "code", True),
    ]
    return Table("square", title, "Read once, written once.", columns, shown)


def print_profiles(a: torch.Tensor) -> None:
    for name in VARIANTS:
        print(f"\n{name}")
        try:
            print(profiler_table(name, a))
        except (RuntimeError, ValueError) as error:
            print(one_line(error)[:300])
