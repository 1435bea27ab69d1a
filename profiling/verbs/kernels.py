"""\
Times the operations of kernels=fused in eager PyTorch, under torch.compile and as this project's
own kernels, forward and backward, and compares each with float64. Without flags: the trainer's
shapes.

{flags}

examples
  python -m profiling kernels
  python -m profiling kernels --tokens 12288 --width 768 --vocabulary 50304
  python -m profiling kernels --device cpu --tokens 256

With --dropout, results are not compared, because each variant draws its own random numbers. Our
kernels run only on CUDA; on a CPU the other variants take minutes, most of these to compile.
"""

import argparse
from dataclasses import replace
from functools import partial

from cli.parser import Parser, flag, within
from profiling.lab.arguments import DTYPES, add_shared
from profiling.report.lab.documents import kernels_document
from profiling.shared.json_records import to_json
from profiling.verbs.progress import progress_line
from profiling.verbs.results import check_outputs, output_flags, show, write_outputs


def main(argv: list[str]) -> int:
    """Measure, print and write; return the exit code. Raises ValueError for bad flags."""
    flags = parse(argv)
    from profiling.lab.device import lab_device  # here: they bring torch
    from profiling.lab.kernel_timing import WAYS, empty_results, measure_rows
    from profiling.lab.kernel_work import OPERATIONS, Sizes
    from training.machine.device import resolve_dtype

    device = lab_device(flags.device)
    dtype = flags.dtype if flags.dtype != "auto" else resolve_dtype("auto", device)
    sizes = Sizes(flags.tokens, flags.width, flags.vocabulary, flags.dropout)
    with progress_line("measuring", OPERATIONS * len(WAYS), ticking=False) as say:
        rows = list(measure_rows(sizes, dtype, device, flags.max_s, say))
    results = replace(empty_results(sizes, dtype, device), rows=rows)
    document = kernels_document(results)
    show(document)
    for path in write_outputs(flags, to_json(results), document):
        print(f"written {path}")
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("kernels", __doc__)
    add_shared(parser, max_s=0.3)
    add, count = partial(flag, parser), within(int, 1)
    add("--tokens N", "tokens of a batch (16384)", count, default=16_384)
    add("--width N", "n_embd (384)", count, default=384)
    add("--vocabulary N", "columns of the head (65)", count, default=65)
    add("--dropout P", "probability of dropping (0)", within(float, 0, 0.999), default=0.0)
    add("--dtype", "auto: the trainer's choice", choices=("auto", *DTYPES), default="auto")
    output_flags(parser, json="all figures", html="one self-contained HTML page")
    flags = parser.parse_args(argv)
    check_outputs(flags)
    return flags
