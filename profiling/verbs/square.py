"""Squares a matrix in six ways (three spellings of eager PyTorch, torch.compile, a Triton kernel, a
CUDA C++ kernel), checks each result against float64, and shows each bandwidth as a share of that of
a plain copy. All variants read and write every element once, so a copy of the same size is the
upper limit.

{flags}

examples
  python -m profiling square
  python -m profiling square --mib 64 --profiler
  python -m profiling square --device cpu --mib 1,16

Variants that need a missing GPU, nvcc or triton say so, and the others run. The sources are
profiling/lab/square_triton.py and profiling/lab/square.cu.

exit code: 0; 1 if a variant gave wrong results; 2 for bad flags
"""

import argparse
from functools import partial

from rich.console import Console

from cli.errors import one_line
from cli.parser import Parser, flag
from profiling.lab.arguments import DTYPES, add_shared, positive_integers
from profiling.report.lab.documents import square_notes, square_table
from profiling.report.renderers.terminal import show_blocks
from profiling.shared.json_records import to_json
from profiling.verbs.progress import progress_line
from profiling.verbs.results import output_flags, put


def main(argv: list[str]) -> int:
    """Measure and print size by size; return the exit code. Raises ValueError for bad flags."""
    flags = parse(argv)
    from profiling.lab import square  # here: it brings torch
    from profiling.lab.device import lab_device

    device = lab_device(flags.device)
    console = Console(highlight=False, width=120)
    results = square.empty_results(flags.dtype, device)
    show_blocks(square_notes(results), console)
    of_size = 1 + len(square.VARIANTS)  # the copy too
    for number, mebibytes in enumerate(flags.mib):
        total, done = of_size * len(flags.mib), of_size * number
        try:
            with progress_line(f"a matrix of {mebibytes} MiB", total, done, False) as say:
                matrix = square.matrix(mebibytes, flags.dtype, device)
                rows = square.measure_variants(matrix, flags.max_s, say)
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            if "memory" not in str(error):
                raise
            console.print(f"\n{mebibytes} MiB: {one_line(error)[:200]}")
            continue
        results.rows.extend(rows)
        show_blocks([square_table(mebibytes, rows)], console)
    if flags.profiler:
        first = square.matrix(flags.mib[0], flags.dtype, device)
        for name in square.VARIANTS:
            print(f"\n{name}\n{square.profiler_table(name, first)}")
    if flags.json:
        put(flags.json, to_json(results))
        print(f"written {flags.json}")
    return int(any((row.missing or "").startswith(square.WRONG) for row in results.rows))


def parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("square", __doc__)
    add_shared(parser, max_s=0.3)
    add = partial(flag, parser)
    sizes = "sizes of the matrix in MiB (1,64,1024)"
    add("--mib N,N,...", sizes, positive_integers, default="1,64,1024")
    add("--dtype", "(%(default)s)", choices=DTYPES, default="float32")
    add(
        "--profiler", "print torch.profiler's table for one call of each variant, at the first size"
    )
    output_flags(parser, json="all figures")
    return parser.parse_args(argv)
