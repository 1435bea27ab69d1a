"""`python -m profiling attention`: the backends of model.py against each other. A verb's module."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from cli.files import check_folder, write_text
from cli.parser import Parser
from profiling.hardware import peak_bytes_per_s, peak_flops_per_s
from profiling.lab.arguments import (
    DTYPES,
    device_name,
    lab_device,
    one_of,
    positive_integers,
)
from profiling.lab.attention import BACKENDS, Case, Row, measured
from profiling.lab.attention_work import Shape
from profiling.lab.progress import tracked
from profiling.lab.timer import empty_launch
from profiling.report.attention_tables import print_attention
from training.device import resolve_dtype

TOKENS = 16_384  # of a call of the trainer: batch 64 x 256
HELP = """\
Times the attention backends of model.py, the same causal function at the same shapes, and says what
each reached, used, and really ran. Without flags: one call of the trainer, forward.

usage: python -m profiling attention [FLAGS]

flags
  --device DEVICE      auto, cpu, cuda, cuda:N (auto)
  --seq N,N,...        sequence lengths (256)
  --tokens N           tokens in a call: the batch is tokens / seq, at least 1 (16384)
  --batch N            the same batch at every length, in place of --tokens
  --heads N            attention heads (6)
  --head-dim N         of each (64)
  --dtype TYPE         float32, bfloat16, float16; auto is the trainer's choice (auto)
  --dropout P          probability of dropping a weight (0)
  --backward           also backward; forward then keeps what backward needs, as in training
  --backends NAME,...  of slow, math, efficient, flash, cudnn, flex, compile (all); compile is
                       torch.compile of slow
  --max-s SECONDS      bound on the samples of one measurement (0.3); more for less spread
  --json FILE          all figures
  --html FILE          one self-contained page, with time, memory and roofline over seq

examples
  python -m profiling attention
  python -m profiling attention --seq 128,256,512,1024,2048,4096,8192,16384 --backward --html a.html
  python -m profiling attention --device cpu --seq 64,256 --tokens 512 --backends slow,flash

Arithmetic counts the causal half, traffic each tensor once: the function's own need, the same for
all. A backend that refuses, or runs out of memory, is listed with the reason, and the rest goes on.
"""


def main(argv: list[str]) -> int:
    """Measures, prints, writes. Raises ValueError for bad flags."""
    if {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    request = parse(argv)
    device = lab_device(request.device)
    cases = cases_of(request, device)
    rows: list[Row] = []
    for case in tracked(cases, described):
        rows += measured(case, request.max_s)
    document = document_of(request, cases[0], rows)
    print_attention(document, Console(highlight=False))
    if request.json:
        write_text(request.json, json.dumps(document, indent=1, allow_nan=False) + "\n")
    if request.html:
        from profiling.report.attention_page import attention_page  # brings plotly

        write_text(request.html, attention_page(document))
    for path in (request.json, request.html):
        if path:
            print(f"written {path}")
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("attention")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seq", default="256")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--max-s", type=float, default=0.3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--html", type=Path)
    request = parser.parse_args(argv)
    if request.tokens and request.batch:
        raise ValueError("--tokens and --batch: give one of them, the other follows from --seq")
    for flag in ("tokens", "batch", "heads", "head_dim"):
        value = getattr(request, flag)
        if value is not None and value < 1:
            raise ValueError(f"--{flag.replace('_', '-')} {value}: must be at least 1")
    if not 0 <= request.dropout < 1:
        raise ValueError(f"--dropout {request.dropout:g}: must be at least 0 and less than 1")
    if not request.max_s > 0:
        raise ValueError(f"--max-s {request.max_s:g}: must be above 0")
    one_of("--dtype", request.dtype, ("auto", *DTYPES))
    for path in (request.json, request.html):
        if path:
            check_folder(path)
    return request


def cases_of(request: argparse.Namespace, device: torch.device) -> list[Case]:
    """Length by length, so that an interrupted series has compared something."""
    dtype = request.dtype if request.dtype != "auto" else resolve_dtype("auto", device)
    backends = [one_of("--backends", name, BACKENDS) for name in request.backends.split(",")]
    cases = []
    for seq in positive_integers("--seq", request.seq):
        batch = request.batch or max(1, (request.tokens or TOKENS) // seq)
        shape = Shape(batch, request.heads, seq, request.head_dim)
        cases += [
            Case(name, shape, dtype, request.dropout, request.backward, device)
            for name in dict.fromkeys(backends)
        ]
    return cases


def described(case: Case) -> str:
    shape = case.shape
    return f"{case.backend}, {shape.batch} x {shape.heads} x {shape.seq} x {shape.head_dim}"


def document_of(request: argparse.Namespace, case: Case, rows: list[Row]) -> dict[str, Any]:
    """What --json writes and the page shows; the settings that all rows share, and the rows."""
    cuda = case.device.type == "cuda"
    name = device_name(case.device)
    flops_per_s, bytes_per_s = peak_flops_per_s(name, case.dtype), peak_bytes_per_s(name)
    return {
        "kind": "attention",
        "device": name,
        "torch": torch.__version__,
        "dtype": case.dtype,
        "dropout": case.dropout,
        "heads": case.shape.heads,
        "head_dim": case.shape.head_dim,
        "tokens": None if request.batch else request.tokens or TOKENS,
        "backward": case.backward,
        "peak_tflops": flops_per_s / 1e12 if flops_per_s else None,
        "peak_gbps": bytes_per_s / 1e9 if bytes_per_s else None,
        "empty_launch_ms": empty_launch(case.device).median_ms if cuda else None,
        "l2_flushed": cuda,
        "rows": rows,
    }
