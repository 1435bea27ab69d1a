"""`python -m profiling run`: training under nsys, from the command line to the finished report.

The training itself is train.py in a process of its own, with nsys round it or, under torchrun, nsys
round each chosen rank. Its output streams through; its exit code becomes ours.
"""

import argparse
import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from profiling.launch import command, reports
from profiling.launch.command import PROFILE_NSYS
from profiling.tools import environment, nsys_tool

if TYPE_CHECKING:
    from configs.schema import Config

TRAINER = Path(__file__).resolve().parent.parent.parent / "train.py"
TAIL_BYTES = 100_000  # of the output, kept to explain a report that did not come out
TEMPORARY = "nsys.partial"  # in out_dir; profile/ itself belongs to the run, which may move it

HELP = """\
Trains under nsys with a window of iterations recorded, and ends with the report.

usage: python -m profiling run [FLAGS] [FILE] [KEY=VALUE ...] [-- NSYS OPTIONS]

  FILE KEY=VALUE      as for train.py; profile=nsys is added, profile.start=100 and the like pass
  -- NSYS OPTIONS     go to `nsys profile` as they stand, and replace the preset's

flags
  --preset NAME       light    CUDA and NVTX, kernels inside CUDA graphs, no CPU sampling (default)
                      full     also OS calls, cuBLAS, cuDNN, samples of CPU and Python stacks
                      metrics  light, and GPU metrics 10,000 times a second
                      memory   light, and every CUDA allocation
  --metric-set ALIAS  for metrics: one of `nsys profile --gpu-metrics-set=help`, not nsys's choice
  --nproc-per-node N  under torchrun, with nsys inside each chosen rank
  --ranks 0,1         the chosen ranks (also profile.ranks=[0,1]); a report for each
  --nsys PATH         this nsys; else the one on PATH, else the newest of those in /opt/nvidia
                      (Nsight Systems, Nsight Compute) and in the CUDA toolkit
  --dry-run           print the command and stop

examples
  python -m profiling run config/shakespeare_char.yaml attention=flash
  python -m profiling run config/shakespeare_char.yaml profile.start=100 profile.steps=20
  python -m profiling run --preset metrics config/shakespeare_char.yaml
  python -m profiling run --nproc-per-node 2 --ranks 0,1 config/shakespeare_char.yaml \\
      gradient_accumulation_steps=2
  python -m profiling run --dry-run config/shakespeare_char.yaml -- --trace=cuda,nvtx,osrt

The report is out_dir/profile/nsys.nsys-rep (nsys-rankN under torchrun) with its .sqlite; an older
one is moved aside. Ctrl-C ends training in good order, and the report is still written.

A report keeps the environment of what it recorded. So variables that look like secrets are not
given to the run (KEY, TOKEN, SECRET, PASSWORD ... in the name, a password in a URL). Without
WANDB_API_KEY W&B records offline, to be sent with `wandb sync`, unless `wandb login` has left a key
in the home folder.

exit code: training's own where it fails; 1 where training went well but there is no report or no
.sqlite; 2 for a mistake in the command line, before anything starts
"""


@dataclass(frozen=True)
class Request:
    """What the user typed."""

    preset: str
    metric_set: str | None
    processes: int | None
    ranks: list[int] | None
    nsys: str | None
    dry_run: bool
    words: list[str]  # for train.py
    extra: list[str]  # for nsys


def main(argv: list[str], trainer: Path = TRAINER) -> int:
    """Runs it and returns the exit code. Raises ValueError for a mistake, before it starts."""
    if {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    request = parse(argv)
    config = composed(request.words)
    ranks = chosen_ranks(request, config)
    nsys = nsys_tool.find(request.nsys)
    options, notes = command.nsys_options(
        nsys,
        request.preset,
        config.profile.windows,
        request.metric_set,
        request.processes is not None,
        request.extra,
    )
    out_dir = Path(config.out_dir)
    folder = out_dir / TEMPORARY
    in_ranks = None if request.processes is None else ranks
    program = command.training_command(trainer, request.words, in_ranks)
    words = command.whole_command(nsys, options, folder, program, request.processes, ranks)
    environ, removed = environment.without_secrets()
    if removed:
        notes.append(f"kept out of the report and so from the run: {', '.join(removed)}")
    if "WANDB_API_KEY" in removed:
        notes.append("W&B records offline unless `wandb login` has left a key in the home folder")
    if problem := nsys_tool.importer_problem(nsys.path):
        notes.append(f"warning: without it the report stays a .qdstrm: {problem}")
    for note in notes:
        print(f"profiling run: {note}", file=sys.stderr)
    print(typed(words, removed), flush=True)
    if request.dry_run:
        return 0

    reports.empty(folder)
    status, output = stream(words, environ)
    windows = config.profile.windows if any("=repeat" in option for option in options) else 1
    names = ["nsys"] if in_ranks is None else [f"nsys-rank{rank}" for rank in ranks]
    expected = dict.fromkeys(names, windows)
    target = out_dir / "profile"
    complete = reports.finish(nsys, folder, target, expected, status, output, environ)
    if status:
        print(f"profiling run: ended with exit code {status}; the last lines are above")
    return status or (0 if complete else 1)


def parse(argv: list[str]) -> Request:
    own, extra = argv, []
    if "--" in argv:
        own, extra = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = refuse
    parser.add_argument("--preset", default="light", choices=list(command.PRESETS))
    parser.add_argument("--metric-set")
    parser.add_argument("--nproc-per-node", "--nproc_per_node", type=int)
    parser.add_argument("--ranks")
    parser.add_argument("--nsys")
    parser.add_argument("--dry-run", action="store_true")
    flags, words = parser.parse_known_args(own)
    if flags.metric_set and flags.preset != "metrics":
        raise ValueError("--metric-set: only with --preset metrics")
    if flags.nproc_per_node is not None and flags.nproc_per_node < 1:
        raise ValueError(f"--nproc-per-node {flags.nproc_per_node}: must be at least 1")
    for word in extra:
        if word == "--" or word.startswith(("-o", "--output")):
            raise ValueError(f"{word}: the report goes to out_dir/profile; set out_dir=FOLDER")
    return Request(
        flags.preset,
        flags.metric_set,
        flags.nproc_per_node,
        numbers(flags.ranks) if flags.ranks is not None else None,
        flags.nsys,
        flags.dry_run,
        words,
        extra,
    )


def refuse(message: str) -> None:
    raise ValueError(message)


def numbers(text: str) -> list[int]:
    try:
        return sorted({int(word) for word in text.strip("[]").split(",")})
    except ValueError:
        raise ValueError(f"--ranks {text}: write numbers by comma, as 0,1") from None


def composed(words: list[str]) -> "Config":
    """The run's configuration, so that a wrong key is refused before nsys starts."""
    from configs.command_line import compose_one  # here: --help needs no Hydra

    config = compose_one(words, PROFILE_NSYS)
    if config.profile.kind != "nsys":
        raise ValueError(
            f"profile={config.profile.kind}: this verb is nsys's; start train.py itself for it"
        )
    return config


def chosen_ranks(request: Request, config: "Config") -> list[int]:
    """The ranks to record: those of --ranks, else of profile.ranks."""
    if request.processes is None:
        if request.ranks is not None:
            raise ValueError("--ranks: only with --nproc-per-node, which starts several")
        return [0]
    configured = sorted(config.profile.ranks)
    typed_key = any(w.removeprefix("--").startswith("profile.ranks=") for w in request.words)
    if typed_key and request.ranks not in (None, configured):
        raise ValueError("--ranks: differs from profile.ranks; give one of them")
    ranks = configured if request.ranks is None else request.ranks
    if not ranks or ranks[0] < 0 or ranks[-1] >= request.processes:
        raise ValueError(
            f"--ranks {command.spell(ranks)}: --nproc-per-node {request.processes} "
            f"starts ranks 0 to {request.processes - 1}"
        )
    return ranks


def typed(words: list[str], removed: list[str]) -> str:
    """The command as a shell takes it."""
    without = [word for name in removed for word in ("-u", name)]
    return shlex.join(["env", *without, *words] if removed else words)


def stream(words: list[str], environ: dict[str, str]) -> tuple[int, str]:
    """Runs the command; its output streams through. (exit code, the end of the output).

    It gets a process group of its own and is sent each Ctrl-C and SIGTERM once, as SIGINT, however
    we got it: training then ends its window, and nsys writes the report.
    """
    process = subprocess.Popen(
        words,
        env=environ,
        stdin=subprocess.DEVNULL,  # a background group that reads the terminal would be stopped
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )

    def forward(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)

    previous = {n: signal.signal(n, forward) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        tail = copy_output(process)
        status = process.wait()
    finally:
        if process.poll() is None:  # our own output is gone: nobody would watch the training
            forward(signal.SIGINT, None)
        for number, handler in previous.items():
            signal.signal(number, handler)
        process.stdout.close()
    return (status if status >= 0 else 128 - status), tail.decode(errors="replace")


def copy_output(process: subprocess.Popen) -> bytes:
    """To our own output until the process ends, whoever else still holds the pipe."""
    tail = b""
    while True:
        ready, _, _ = select.select([process.stdout], [], [], 0.5)
        if ready:
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                return tail
            sys.stdout.buffer.write(chunk)
            sys.stdout.flush()
            tail = (tail + chunk)[-TAIL_BYTES:]
        elif process.poll() is not None:
            return tail
