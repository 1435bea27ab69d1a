"""Starts a program, or this project's training, records a window of its steps, and reports it.

  -- COMMAND ...      a program of your own: a script, -m, torchrun, accelerate, a shell line;
                      nothing in it changes
  FILE KEY=VALUE      else our training under nsys, as for train.py; profile=nsys is added; keys
                      such as profile.start=100 work
  sample.py KEY=VALUE instead: generate with a trained model and record a window of tokens

{flags}

presets
  light     CUDA and NVTX, kernels inside CUDA graphs, no CPU sampling
  full      also OS calls, cuBLAS, cuDNN, samples of CPU and Python stacks
  metrics   light, and GPU metrics 10,000 times a second
  memory    light, and every CUDA allocation

examples
  python -m profiling run -- python my_train.py --lr=1e-3
  python -m profiling run --steps 10 -- torchrun --nproc_per_node=2 my_train.py
  python -m profiling run --kind memory -- python my_train.py
  python -m profiling run --kind none -- bash -c 'cd mine && ./train.sh'
  python -m profiling run --kind nsys --whole -- ./program
  python -m profiling run config/shakespeare_char.yaml attention=flash
  python -m profiling run config/shakespeare_char.yaml profile.start=100 profile.steps=20
  python -m profiling run sample.py out_dir=out-shakespeare-char num_samples=3
  python -m profiling run --preset metrics config/shakespeare_char.yaml
  python -m profiling run --nproc-per-node 2 --ranks all config/shakespeare_char.yaml \\
      gradient_accumulation_steps=2
  python -m profiling run --dry-run --nsys-options=--trace=cuda,nvtx,osrt \\
      config/shakespeare_char.yaml

A program's input, output and exit code are its own; what is said here goes to stderr. Its steps
are found by watching torch from inside: a step ends with the optimizer that steps least often, else
with zero_grad, a backward, a forward of the outermost module or a batch. The folder gets what a
training of ours leaves: rows, step times and captures, for report, compare and dashboard; an
earlier run in it moves to previous-N, and back if nothing is recorded. `trigger` opens a further
window, and so does SIGUSR1 to the process of `run`, which run.lock names.

The report of our training is out_dir/profile/nsys.nsys-rep (nsys-rankN under torchrun; in
out_dir/sample/profile for sample.py) with its .sqlite; an older report is renamed. Ctrl-C ends
training cleanly, and the report is still written.

A report of nsys contains the environment of the recorded program. Variables that look like secrets
are therefore not passed to the run (KEY, TOKEN, SECRET, PASSWORD ... in the name, or a password in
a URL). Without WANDB_API_KEY, W&B records offline unless `wandb login` has stored a key in the home
folder; send such a run with `wandb sync`. Values typed in a program's command, such as
--api-key=VALUE or WANDB_API_KEY=VALUE, reach it and are hidden in the run's files; a .nsys-rep has
the command as it ran.

exit code: a program's own, as a shell has it (127 if it is not found). Our training: its own if it
fails; 1 if it succeeded but there is no report or no .sqlite. 2 for a mistake in the command line,
before anything starts
"""

import shlex
import sys
import time
from argparse import ArgumentTypeError, Namespace
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cli.files import empty_folder
from cli.lock import check_free
from cli.parser import Parser, at_dashes, flag, within
from cli.program import SAMPLER, TRAINER, as_called, python_arguments
from profiling.launch import command, reports
from profiling.launch.any_program.start import KINDS, STEP_MARKS
from profiling.launch.command import PROFILE_NSYS
from profiling.launch.process import stream
from profiling.shared.own_program import refuse_own_program
from profiling.shared.run_files import DUMP
from profiling.tools import nsight, nsys_tool
from profiling.verbs.progress import progress_line

if TYPE_CHECKING:
    from configs.profiling import ProfileConfig

LIGHT = "light"  # the default of --preset
TEMPORARY = "nsys.partial"  # beside profile/, which belongs to the run and may be moved by it


@dataclass(frozen=True)
class Program:
    """The program to run under nsys."""

    script: Path
    words: list[str]
    profile: "ProfileConfig"
    folder: Path  # captures go to profile/ in it
    iterations: int | None  # of training; sampling has none
    sends_capture: bool = False  # to W&B, where its run is


def main(argv: list[str], trainer: list[str] | None = None) -> int:
    """Run training under nsys and report it; return the exit code.

    The training is train.py in a process of its own, under nsys or, with torchrun, with nsys around
    each chosen rank. `trainer` are arguments of python that replace train.py. Raises ValueError for
    a mistake, before anything starts.
    """
    flags, typed, command_words = parse(argv)
    if command_words is not None:
        from profiling.verbs.run_program import run_program

        return run_program(flags, command_words)
    profiled = program_of(typed)
    words, windows = profiled.words, profiled.profile.windows
    if profiled.script == SAMPLER and flags.nproc_per_node:
        raise ValueError("--nproc-per-node: sample.py runs in one process")
    ranks = command.chosen_ranks(words, profiled.profile, flags.ranks, flags.nproc_per_node)
    try:
        nsys = nsys_tool.find(flags.nsys)
    except ValueError as error:
        if flags.nsys or flags.nproc_per_node:
            raise
        raise ValueError(f"{error}; without nsys: {with_torch_profiler(typed)}") from error
    options, notes = command.nsys_options(
        nsys,
        flags.preset or LIGHT,
        windows,
        flags.metric_set,
        ranks is not None,
        flags.nsys_options,
        stack=profiled.profile.stack,
    )
    arguments = trainer or python_arguments(profiled.script)
    program = command.training_command(arguments, words, ranks)
    folder = profiled.folder / TEMPORARY
    whole = command.whole_command(nsys, options, folder, program, flags.nproc_per_node, ranks)
    environ, removed = nsight.without_secrets()
    for note in [*notes, *command.environment_notes(nsys, removed)]:
        print(f"profiling run: {note}", file=sys.stderr)
    print(command.shell_command(whole, removed), flush=True)
    if flags.dry_run:
        return 0

    check_free(profiled.folder, f"out_dir={profiled.folder}")  # a capture may be on its way there
    empty_folder(folder)
    began_s = time.time()
    from profiling.verbs.training_bar import training_bar  # here: --help needs no rich

    with training_bar(profiled.iterations) as output:
        ended = stream(whole, environ, output)
    names = ["nsys"] if ranks is None else [f"nsys-rank{rank}" for rank in ranks]
    expected = dict.fromkeys(names, windows if any("=repeat" in o for o in options) else 1)
    target = profiled.folder / "profile"
    complete = reports.finish(nsys, folder, target, expected, ended, shown=progress_line)
    if complete:
        report_on(profiled.folder, several=ranks is not None and len(ranks) > 1)
        if profiled.sends_capture and not ended.status:
            send_newest(profiled.folder)
    if ended.status:
        print(
            f"profiling run: training ended with exit code {ended.status}; its last lines are above"
        )
        # NCCL's watchdog aborts the process, which cannot say so itself
        if any(path.stat().st_mtime >= began_s for path in target.glob(f"{DUMP}*")):
            words = ["python", "-m", "profiling", "hang", str(profiled.folder)]
            print(f"profiling run: what each rank did last: {shlex.join(words)}")
    return ended.status or (0 if complete else 1)


def with_torch_profiler(typed: list[str]) -> str:
    """The command that records what was typed with PyTorch's profiler, without this verb."""
    script = [] if typed[:1] == ["sample.py"] else ["train.py"]
    kept = [word for word in typed if not word.startswith(("profile=", "profile.kind="))]
    return shlex.join(["python", *script, *kept, "profile=torch"])


def report_on(folder: Path, several: bool) -> None:
    """Print the report of the newest capture, or of `several` ranks, or why there is none."""
    from profiling.analysis.ranks.found import captures_in  # here: --help needs none of it
    from profiling.verbs.ranks import read_ranks, show_ranks
    from profiling.verbs.report import show_newest

    try:
        if not several:
            show_newest(folder)
        elif captures := captures_in(folder):
            show_ranks(read_ranks(captures), [folder])
        else:
            raise ValueError(f"{folder}: contains no captures of several ranks")
    except ValueError as error:
        print(f"\nno report{' of all ranks' * several}: {error}")


def send_newest(folder: Path) -> None:
    """Add the newest capture to the W&B run of the training, or print why it cannot be."""
    from profiling.launch.wandb_log import log_capture

    try:
        print(as_called(log_capture(folder, folder)))
    except ValueError as error:
        print(f"\nthe capture is not in W&B: {error}")


def parse(argv: list[str]) -> tuple[Namespace, list[str], list[str] | None]:
    """Parse the command line into (flags, words for train.py, a program's words after -- or
    None)."""
    before, command_words = at_dashes(argv)
    usage = (
        "python -m profiling run [FLAGS] -- COMMAND ...\n"
        "       python -m profiling run [FLAGS] [FILE] [KEY=VALUE ...]"
    )
    parser = Parser("run", __doc__, usage=usage)
    add = partial(flag, parser.add_argument_group("of a program"))
    kinds = "what records the window (nsys if it is installed and a GPU is here, else torch)"
    add("--kind", f"{kinds}; none: step times and phases only", choices=KINDS)
    add("--start N", "first step of the window (when step times are steady)", within(int, 1))
    add("--steps N", "steps in the window (20)", within(int, 1))
    add("--step", "what ends a step (see below)", choices=STEP_MARKS)
    add(
        "--stack", "record Python's functions, too, which slows steps: kernels by line (torch|nsys)"
    )
    add("--out DIR", "folder of the run (out-run)", Path)
    add("--whole", "nsys records from the start to the end: also programs without steps")
    add = partial(flag, parser.add_argument_group("of our training"))
    inside = "run under torchrun, with nsys inside each chosen rank"
    add("--nproc-per-node --nproc_per_node N", inside, within(int, 1))
    chosen = (
        "the ranks to capture (also profile.ranks=[0,1]); writes a report for each and one for all"
    )
    add("--ranks 0,1|all", chosen, ranks_of)
    add = partial(flag, parser.add_argument_group("of nsys"))
    add("--preset", "see below (light)", choices=command.PRESETS)
    sets = (
        "for the preset metrics: a set listed by `nsys profile --gpu-metrics-set=help` (default: "
        "nsys's choice)"
    )
    add("--metric-set ALIAS", sets)
    own = "options of `nsys profile`, which replace those of the preset"
    add('--nsys-options "..."', own, nsys_words, default=[])
    places = (
        "path of nsys (default: nsys on PATH, else the newest in /opt/nvidia (Nsight Systems, "
        "Nsight Compute) or the CUDA toolkit)"
    )
    add("--nsys PATH", places)
    add("--dry-run", "print the command and stop")
    flags, words = parser.parse_known_args(with_nsys_options_joined(before))
    if flags.metric_set and flags.preset != "metrics":
        raise ValueError("--metric-set: only with --preset metrics")
    if command_words is not None:
        check_program(parser, flags, words, command_words)
        return flags, words, command_words
    refuse_own_program("run", [word for word in argv if Path(word).name != SAMPLER.name])
    for name in ("kind", "start", "steps", "step", "stack", "out", "whole"):
        if getattr(flags, name):
            keys = "profile.start=N profile.steps=N profile.stack=true out_dir=FOLDER"
            raise ValueError(
                f"--{name}: only with a program, which follows --; our training has {keys}"
            )
    return flags, words, None


def check_program(
    parser: Parser, flags: Namespace, words: list[str], command_words: list[str]
) -> None:
    """Raise ValueError for a program's command line that cannot be meant.

    `words` are those before the dashes that are no flags.
    """
    if not command_words:
        raise ValueError("--: a command follows, such as python my_train.py")
    if command_words[0].startswith("-"):
        typed = f"--nsys-options={shlex.quote(shlex.join(command_words))}"
        raise ValueError(
            f"{command_words[0]}: after -- comes a program; options of nsys are given as {typed}"
        )
    if words and words[0].startswith("-"):
        parser.error(f"unrecognized arguments: {words[0]}")
    if words:
        raise ValueError(f"{words[0]}: is for our training, but a program follows --")
    for name, given in (("--nproc-per-node", flags.nproc_per_node), ("--ranks", flags.ranks)):
        if given is not None:
            raise ValueError(f"{name}: only for our training; start torchrun itself after --")


def with_nsys_options_joined(argv: list[str]) -> list[str]:
    """The words with `--nsys-options TEXT` as one, since argparse takes such a TEXT for a flag."""
    joined = list[str]()
    for word in argv:
        if joined and joined[-1] == "--nsys-options":
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def nsys_words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text}: {error}") from None
    for word in words:
        if word == "--" or word.startswith(("-o", "--output")):
            raise ArgumentTypeError(
                f"{word}: the report is always written to out_dir/profile; set out_dir=FOLDER, or "
                "--out FOLDER for a program"
            )
    return words


def ranks_of(text: str) -> list[int] | Literal["all"]:
    if text == "all":
        return "all"
    try:
        return sorted({int(word) for word in text.strip("[]").split(",")})
    except ValueError:
        raise ArgumentTypeError(
            f"{text}: give numbers separated by commas, such as 0,1, or all"
        ) from None


def program_of(words: list[str]) -> Program:
    """The program to run: training, or sample.py if that is named first.

    Raises ValueError for a wrong key, before nsys starts.
    """
    from configs.command_line import compose_one  # here: --help needs no Hydra
    from training.metrics.wandb_settings import check_wandb

    if words and Path(words[0]).name == SAMPLER.name:
        return sampling(words[1:])
    config = compose_one(words, PROFILE_NSYS)
    check_kind(config.profile.kind)
    out_dir = Path(config.out_dir)
    sends = config.wandb.captures and check_wandb(config.wandb) != "disabled"
    return Program(TRAINER, words, config.profile, out_dir, config.max_iters, sends)


def sampling(words: list[str]) -> Program:
    from cli.keys import parse_keys
    from configs.sampling import FOLDER, SampleConfig

    config = parse_keys([PROFILE_NSYS, *words], SampleConfig)
    check_kind(config.profile.kind)
    return Program(SAMPLER, words, config.window(), Path(config.out_dir) / FOLDER, None)


def check_kind(kind: str) -> None:
    if kind != "nsys":
        raise ValueError(
            f"profile={kind}: this verb always uses nsys; start train.py or sample.py directly "
            "instead"
        )
