"""Measures a command and keeps its step times, for `ab --against baseline:NAME` and `history`.

  NAME             of the baseline, such as main
  -- COMMAND       any training program in Python, with variables before it, as for ab

{flags}

examples
  python -m profiling baseline save main --steps 200 -- python train_mine.py
  python -m profiling ab --against baseline:main --fail-on-regression 2 -- python train_mine.py
  python -m profiling history --html history.html

One call is a sitting: several processes of the command, one after the other, each from scratch. Its
file holds the percentiles of each process's step times, how much equal processes differ (A/A), GPU,
CPU, cores, versions, and the commit of the folder. Save a baseline several times, an hour or a day
apart: what its sittings differ by is the drift, which nothing else can show. Commit the files, or
let the cache of CI carry the folder.

exit code: 0; 2 for a mistake or a failed process; 127 for a command that is not found; 130 after
Ctrl-C, 143 after SIGTERM
"""

import shlex
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

from cli.interrupts import STOPS, exit_code
from cli.lock import Lock
from cli.parser import Parser, at_dashes, flag, within
from cli.program import as_called
from profiling.launch.experiment import baselines, commands
from profiling.launch.experiment.plan import FEWEST_TIMED
from profiling.launch.experiment.processes import (
    open_experiment,
    refuse_other_folder,
    resume_command,
    say,
)
from profiling.shared.own_program import refuse_without_dashes, refuse_without_name
from profiling.shared.secrets import without_secret_values
from profiling.shared.units import milliseconds

OUT = Path("out-baseline")


def main(argv: list[str]) -> int:
    """Measure and keep; return the exit code. Raises ValueError for what the user can mend."""
    flags = parse(argv)
    try:
        asked = baselines.plan_series(flags.words, flags.steps, flags.warm_up)
    except commands.NotStarted as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        return error.status
    folder = flags.out or OUT / flags.name
    refuse_other_folder(folder, f"--out {folder}")
    with Lock(folder, f"--out {folder}"):
        say(f"{flags.repeats} processes of {asked.factor.values[0]}\nfolder  {folder}")
        experiment = open_experiment(folder, asked)
        try:
            done = baselines.measure_series(experiment, flags.repeats, flags.words, folder)
        except STOPS as stopped:
            print(as_called(f"\nresume  {resume_command('baseline', argv, folder)}"))
            return exit_code(stopped)
        sitting = baselines.sitting_of(done, flags.name)
        kept = baselines.keep(flags.baselines, sitting)
        baselines.forget(folder)  # the next call is another sitting
    print(
        f"\n{milliseconds(sitting.middle_ms)} ms per step; two groups of {flags.repeats} such "
        f"processes differ by {sitting.noise_percent:.2g} %\nkept    {kept}"
    )
    print(as_called(f"next    {held_against(flags)}"))
    return 0


def held_against(flags: Namespace) -> str:
    """The command that holds the program, in as many steps, against what was just kept."""
    against, words = ["--against", f"baseline:{flags.name}"], without_secret_values(flags.words)
    if flags.baselines != baselines.FOLDER:
        against += ["--baselines", str(flags.baselines)]
    if flags.steps:
        against += ["--steps", str(flags.steps)]
    if flags.warm_up != commands.WARM_UP:
        against += ["--warm-up", str(flags.warm_up)]
    return shlex.join(["python", "-m", "profiling", "ab", *against, "--", *words])


def parse(argv: list[str]) -> Namespace:
    """Parse the command line; the flags have `name` and `words`."""
    usage = "python -m profiling baseline save NAME [FLAGS] -- COMMAND"
    parser = Parser("baseline", __doc__, usage=usage)
    parser.add_argument("action", choices=["save"], help="the only one")
    parser.add_argument("name", metavar="NAME", help="letters, digits, _ . and -")
    add = partial(flag, parser)
    add("--repeats N", "processes (default %(default)s)", within(int, 2), default=5)
    timed = "end each process after so many timed steps (default: at its own end)"
    add("--steps N", timed, within(int, FEWEST_TIMED))
    untimed = "steps that are not timed (default %(default)s)"
    add("--warm-up N", untimed, within(int, 1), default=commands.WARM_UP)
    add("--baselines DIR", baselines.FOLDER_HELP, Path, default=baselines.FOLDER)
    out = f"folder of the processes and their logs (default {OUT}/NAME); goes on with what is there"
    add("--out DIR", out, Path)
    before, command = at_dashes(argv)
    if command is None:
        flags, words = parser.parse_known_args(argv)
        refuse_without_name("baseline", argv, [flags.name, *words])
        refuse_without_dashes("baseline", argv, words)
    flags = parser.parse_args(before)
    if not command:
        raise ValueError(f"no command: {usage}")
    flags.words = command
    baselines.check_name(flags.name)
    baselines.check_folder(flags.baselines)
    return flags
