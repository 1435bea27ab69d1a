"""Predicts the time of a training step on more GPUs for each parallel mode, and recommends a mode:
replays the step measured on one GPU and adds collectives according to a model of the links.

{flags}

Each GPU keeps the measured batch, so the total batch grows with the number of GPUs. The table has a
range for each step time, from the high and low speed of the links. Memory counts weights, gradients
and moments, and also the activations of the run if CAPTURE is its folder.

examples
  python train.py config/gpt2_124m.yaml gradient_accumulation_steps=1 max_iters=100 profile=torch
  python -m profiling scale out-gpt2-124m
  python -m profiling scale out-gpt2-124m --gpus 8,64,1024 --network 25 --parallel ddp
  python -m profiling scale out-gpt2-124m --gpus 2,4,8 --all-reduce copies --shard-update
  python -m profiling scale out-gpt2-124m --links-from out-four-ranks --html scale.html
  python -m profiling scale trace.json.gz --link 240,360 --micro-steps 5 --json - | jq .choices

exit code: 0, or 2 for a mistake in the command line or a capture that cannot be read
"""

from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cli.parser import Parser, flag, names, within
from cli.plain import without_controls
from profiling.analysis.open_report import open_report
from profiling.analysis.ranks.found import rank_captures
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.runs.folder import is_run_folder, read_run
from profiling.analysis.scale.links import given_link
from profiling.analysis.scale.prediction import MODES
from profiling.analysis.scale.scale import Request, checked_counts, scale
from profiling.analysis.scale.scale_records import AllReduce, Mode, ReduceDtype, Scale
from profiling.shared.json_records import to_json
from profiling.verbs.progress import reading_bar
from profiling.verbs.report import CAPTURE
from profiling.verbs.results import check_outputs, output_flags, show_or_write

ALL_REDUCE: tuple[AllReduce, ...] = ("collective", "copies")
REDUCE_DTYPES: tuple[ReduceDtype, ...] = ("float32", "bfloat16")
COUNTS = (1, 2, 4, 8, 64, 1024)
MOST_GPUS = 2**17
PEAK_BYTES = "memory/peak_bytes"


def main(argv: list[str]) -> int:
    """Predict, print and write; return the exit code. Raises ValueError for a user's mistake."""
    flags = parse(argv)
    asked = request_of(flags)
    ranks = ranks_of(flags.links_from) if flags.links_from else None
    with reading_bar(flags.capture):
        capture = open_report(flags.capture, flags.manifest)
    write(flags, scale(capture, asked, ranks, peak_bytes(flags.capture)))
    return 0


def parse(argv: list[str]) -> Namespace:
    parser = Parser("scale", __doc__)
    help = f"the capture of a run on one GPU: {CAPTURE}"
    parser.add_argument("capture", type=Path, metavar="CAPTURE", help=help)
    add = partial(flag, parser)
    add("--gpus N,N", "numbers of GPUs (1,2,4,8,64,1024)", numbers, default=COUNTS)
    add("--gpus-per-node N", "GPUs connected by NVLink (8)", within(int, 1, MOST_GPUS), default=8)
    add("--parallel", "one parallel mode (all)", choices=MODES)
    copies = "for ddp: collective, or copies between the GPUs of a node (collective)"
    add("--all-reduce", copies, choices=ALL_REDUCE, default="collective")
    part = "for ddp: each GPU updates a part of the weights (shard_update=true)"
    add("--shard-update", part)
    sent = "for --shard-update: the dtype in which gradients of these weights are sent (float32)"
    add("--reduce-dtype", sent, choices=REDUCE_DTYPES, default="float32")
    add(
        "--micro-steps N",
        "micro-steps per iteration on each GPU (as captured)",
        within(int, 1, 10_000),
    )
    add("--link GB/S", "bus bandwidth between the GPUs of a node, or LOW,HIGH", speeds)
    add("--network GB/S", "bandwidth per GPU between nodes, in each direction, or LOW,HIGH", speeds)
    links_from = (
        "captures of several ranks (profile=torch) that give the speed of the links and the "
        "slowdown"
    )
    add("--links-from FOLDER", links_from, Path)
    slower = "how much longer compute takes during a collective or copies, in per cent"
    add("--slowdown PERCENT", slower, within(float, 0, 1000))
    host = "host time for a step of fsdp or hsdp, such as time/host_step_ms of such a run"
    add("--host-ms MS", host, within(float, 0, 1_000_000))
    add("--manifest FILE", "the manifest of the window, if it is not beside CAPTURE", Path)
    page = "one HTML page with a chart"
    output_flags(
        parser, json="all figures (docs/report-schema.md)", markdown="as Markdown", html=page
    )
    flags = parser.parse_args(argv)
    inputs = filter(None, [flags.capture, flags.manifest, flags.links_from])
    check_outputs(flags, *(path for path in inputs if path.exists()))
    return flags


def numbers(words: str) -> tuple[int, ...]:
    """Parse a flag's numbers of GPUs. Raises ArgumentTypeError."""
    try:
        return tuple(map(within(int, 1, MOST_GPUS), names(words)))
    except ValueError:
        raise ArgumentTypeError(f"{words}: give numbers by comma, such as 8,64,1024") from None


def speeds(words: str) -> tuple[float, ...]:
    """Parse a flag's bandwidth in GB/s, or its range LOW,HIGH. Raises ArgumentTypeError."""
    try:
        values = tuple(map(within(float, 0.001, 1e6), names(words)))
    except ValueError:
        values = ()
    if len(values) not in (1, 2):
        raise ArgumentTypeError(f"{words}: give GB/s, or LOW,HIGH")
    return values


def request_of(flags: Namespace) -> Request:
    """The question that the flags ask. Raises ValueError for flags that do not fit together."""
    modes: tuple[Mode, ...] = (flags.parallel,) if flags.parallel else MODES
    counts = checked_counts(flags.gpus, flags.gpus_per_node)
    if flags.all_reduce == "copies":
        check_copies(counts, flags.gpus_per_node, modes)
    if flags.shard_update:
        check_shard_update(counts, modes)
    elif flags.reduce_dtype != "float32":
        raise ValueError(f"--reduce-dtype {flags.reduce_dtype}: only works with --shard-update")
    return Request(
        counts,
        flags.gpus_per_node,
        modes,
        flags.micro_steps,
        given_link("--link", flags.link) if flags.link else None,
        given_link("--network", flags.network) if flags.network else None,
        flags.slowdown,
        flags.host_ms,
        flags.all_reduce,
        flags.shard_update,
        flags.reduce_dtype,
    )


def check_copies(counts: Sequence[int], gpus_per_node: int, modes: Sequence[Mode]) -> None:
    """Raise ValueError if no prediction would use --all-reduce copies."""
    if "ddp" not in modes:
        raise ValueError(
            f"--all-reduce copies: only works with ddp, not with --parallel {modes[0]}"
        )
    if not any(1 < gpus <= gpus_per_node for gpus in counts):
        raise ValueError(
            "--all-reduce copies: only works on several GPUs of one node; --gpus has no number "
            f"from 2 to --gpus-per-node {gpus_per_node}"
        )


def check_shard_update(counts: Sequence[int], modes: Sequence[Mode]) -> None:
    """Raise ValueError if no prediction would use --shard-update."""
    if "ddp" not in modes:
        raise ValueError(f"--shard-update: only works with ddp, not with --parallel {modes[0]}")
    if max(counts) == 1:
        raise ValueError("--shard-update: needs several GPUs, but --gpus has only one")


def ranks_of(place: Path) -> RanksReport:
    """Report of the captures of several ranks in `place`. Raises ValueError if they are none."""
    from profiling.verbs.ranks import read_ranks

    if not place.exists():
        raise ValueError(f"--links-from {place}: no such file or folder")
    paths = rank_captures([place], ranks=place.is_file())
    if not paths:
        raise ValueError(f"--links-from {place}: contains no captures of several ranks")
    return read_ranks(paths).report


def peak_bytes(place: Path) -> int | None:
    """Peak of GPU memory in bytes of the run in `place`, or None if it is no run or logged none."""
    if not is_run_folder(place):
        return None
    series = read_run(place).columns.get(PEAK_BYTES)
    return None if series is None else int(series.value.max())


def write(flags: Namespace, result: Scale) -> None:
    from profiling.report.scale import headline, scale_document

    document = scale_document(result)
    show_or_write(flags, to_json(result), document, without_controls(headline(result)))
