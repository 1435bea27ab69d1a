"""\
Times the attention backends of model.py on the same causal function at the same shapes, and shows
the rate and memory of each and the kernels that it ran. Without flags: one forward call of the
trainer.

{flags}

examples
  python -m profiling attention
  python -m profiling attention --seq 128,256,512,1024,2048,4096,8192,16384 --backward --html a.html
  python -m profiling attention --device cpu --seq 64,256 --tokens 512 --backends slow,flash

Arithmetic counts only the causal half, and traffic counts each tensor once, so both are the same
for all backends. A backend that refuses or runs out of memory is listed with the reason; the rest
still run.
"""

import argparse
from functools import partial
from typing import TYPE_CHECKING

from cli.parser import Parser, flag, names, within
from profiling.lab.arguments import DTYPES, add_shared, positive_integers
from profiling.report.lab.attention_document import attention_document
from profiling.shared.json_records import to_json
from profiling.shared.measurements import BACKENDS, COMPILE
from profiling.verbs.progress import progress_line
from profiling.verbs.results import check_outputs, output_flags, show, write_outputs

if TYPE_CHECKING:
    import torch

    from profiling.lab.attention_work import Case

TOKENS = 16_384  # of a call of the trainer: batch 64 x 256


def main(argv: list[str]) -> int:
    """Measure, print and write; return the exit code. Raises ValueError for bad flags."""
    flags = parse(argv)
    from profiling.lab.attention_timing import results_of
    from profiling.lab.device import lab_device

    tokens = None if flags.batch else flags.tokens
    cases = cases_of(flags, lab_device(flags.device))
    with progress_line("measuring", len(cases), ticking=False) as say:
        results = results_of(cases, tokens, flags.max_s, say)
    document = attention_document(results)
    show(document)
    for path in write_outputs(flags, to_json(results), document):
        print(f"written {path}")
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("attention", __doc__)
    add_shared(parser, max_s=0.3)
    add, count = partial(flag, parser), within(int, 1)
    add("--seq N,N,...", "sequence lengths (256)", positive_integers, default="256")
    batch = partial(flag, parser.add_mutually_exclusive_group())
    tokens = f"tokens in a call: the batch is N / seq, at least 1 ({TOKENS})"
    batch("--tokens N", tokens, count, default=TOKENS)
    batch("--batch N", "the same batch at every length, instead of --tokens", count)
    add("--heads N", "attention heads (6)", count, default=6)
    add("--head-dim N", "size of each head (64)", count, default=64)
    add("--dtype", "auto: the trainer's choice", choices=("auto", *DTYPES), default="auto")
    dropped = "probability of dropping a weight (0)"
    add("--dropout P", dropped, within(float, 0, 0.999), default=0.0)
    add("--backward", "also time backward; forward then saves what backward needs, as in training")
    every = ",".join(BACKENDS)
    which = f"of {every} (all); {COMPILE.name} is {COMPILE.meaning}"
    add("--backends NAME,...", which, names, default=every)
    page = "one self-contained HTML page with time, memory and roofline over seq"
    output_flags(parser, json="all figures", html=page)
    flags = parser.parse_args(argv)
    for name in flags.backends:
        if name not in BACKENDS:
            raise ValueError(f"--backends {name}: no such backend; use {', '.join(BACKENDS)}")
    check_outputs(flags)
    return flags


def cases_of(flags: argparse.Namespace, device: "torch.device") -> "list[Case]":
    """Cases to measure, length by length, so that an interrupted series has compared something."""
    from profiling.lab.attention_work import Case, Shape
    from training.machine.device import resolve_dtype

    dtype = flags.dtype if flags.dtype != "auto" else resolve_dtype("auto", device)
    cases = []
    for seq in flags.seq:
        batch = flags.batch or max(1, flags.tokens // seq)
        shape = Shape(batch, flags.heads, seq, flags.head_dim)
        cases += [
            Case(name, shape, dtype, flags.dropout, flags.backward, device)
            for name in dict.fromkeys(flags.backends)
        ]
    return cases
