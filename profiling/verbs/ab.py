"""Trains repeatedly with each value of one key, or runs two commands of yours in turns, and tests
whether the step times differ.

  FILE KEY=VALUE   as for train.py; exactly one key has several values, separated by commas
  -- A ::: B       two commands of any training program in Python; NAME=VALUE words before a command
                   are variables of it, as in a shell
  -- COMMAND       one command, with --against

{flags}

examples
  python -m profiling ab config/shakespeare_char.yaml attention=slow,flash
  python -m profiling ab config/shakespeare_char.yaml compile=false,true attention=flash
  python -m profiling ab config/shakespeare_char.yaml compile=false,true --iterations 20 --repeats 2
  python -m profiling ab config/shakespeare_char.yaml batch_size=32,64 --repeats 3
  python -m profiling ab config/shakespeare_char.yaml attention=flash,flash --repeats 10
  python -m profiling ab config/shakespeare_char_cpu.yaml attention=slow,flash,math --steps 100
  python -m profiling ab config/shakespeare_char.yaml attention=slow,flash --fail-on-regression 5
  python -m profiling ab --steps 200 -- python mine.py --workers 0 ::: python mine.py --workers 4
  python -m profiling ab -- OMP_NUM_THREADS=1 python mine.py ::: OMP_NUM_THREADS=8 python mine.py
  python -m profiling ab --against commit:main --fail-on-regression 2 -- python mine.py
  python -m profiling ab --against baseline:main --fail-on-regression 2 -- python mine.py
  python -m profiling ab --predicted what.json:2 -- python mine.py ::: python mine.py --workers 4

Processes run one after the other as A B B A A B ..., each from scratch, without a profiler and
without evaluations among the timed steps. Steps are timed with CUDA events (on a CPU with its
clock) and recorded as training logs them: medians of ten. The unit of the statistics is the
process: its median counts once, and the interval is Welch's t on logarithms. The repeats of each
value, A against A, measure how much two groups of equal processes differ (the noise). A value given
twice is an A/A experiment. Each value gets one of four answers: faster or slower, if the whole
interval is beyond the noise; equal, if the whole interval is within --equal-within; otherwise
"cannot tell", with the number of repeats that would be needed.

Before the first process, ab prints a rough estimate of the total time. On a CPU, if that is more
than half an hour, ab also prints a shorter command.

The result also shows how a process starts: the first iterations one by one, the time before them
(this trainer compiles and records CUDA graphs before iteration 0, so no iteration contains that
time), and the number of iterations after which a slow start pays off.

Batch sizes are compared by time per token. Values that change the model or the arithmetic (n_layer,
dtype) are compared by time per step.

Two commands run unchanged, each with its output in a log, until they end. With --steps a process
ends by force (os._exit) after the warm-up and so many steps: nothing that it does at its end
happens, neither cleanup nor checkpoint. What ends a step is found as `run -- COMMAND` finds it.
What is seen from outside is compared: what ends a step, parameters, shapes of inputs, backwards per
step, ranks, the loss of one step. If nothing of it differs, the work may differ all the same. How
long it all takes is said once each command has run. --capture explains the difference by a capture
of each.

--against commit:REV runs one command in a worktree of that commit and in this folder, in turns:
what do the changes since REV cost? --against baseline:NAME runs it here alone, and holds it against
what `baseline save NAME` kept. Nothing then runs in turns, so the interval counts sittings and
their drift, not processes: three sittings of the baseline are a beginning, and with one only a
difference beyond 30 % is called. Another GPU, CPU, number of cores, torch or CUDA is refused.

--predicted holds the second value against a prediction of `whatif`: whether its step is in the
predicted interval is printed, and appended to DIR/predictions.jsonl.

exit code: 0; with --fail-on-regression 1 if a value is slower than the first by more than PERCENT,
and 3 if the data cannot decide it (an interval that ends below PERCENT passes); 2 for a mistake or
a failed process; 127 for a command that is not found; 130 after Ctrl-C, 143 after SIGTERM
"""

import shlex
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from itertools import chain, count
from pathlib import Path

from msgspec.structs import replace

from cli.interrupts import STOPS, exit_code
from cli.lock import Lock
from cli.parser import Parser, at_dashes, flag, within
from cli.program import TRAINER, as_called
from profiling.analysis.difference.comparison_records import Comparison, Experiment
from profiling.analysis.difference.experiment import conclude
from profiling.analysis.difference.iterations import first_iterations
from profiling.analysis.runs.folder import newest_capture
from profiling.analysis.whatif.checked import PREDICTIONS
from profiling.launch import wandb_verdict
from profiling.launch.experiment import against, baselines, captures, commands, predicted
from profiling.launch.experiment.ahead import duration_lines, processes_ahead
from profiling.launch.experiment.plan import (
    FEWEST_TIMED,
    WARM_UP,
    check_on_this_machine,
    file_name,
    max_iters,
    order,
    plan_experiment,
    timed_process,
)
from profiling.launch.experiment.processes import (
    RESULTS,
    TimeProcess,
    measure,
    open_experiment,
    refuse_other_folder,
    resume_command,
    save,
    say,
    timed_by,
)
from profiling.report.comparison.document import experiment_document
from profiling.shared.json_records import append_lines, to_json
from profiling.shared.own_program import refuse_own_program
from profiling.verbs.gate import equal_within_flag, gate, gate_flag
from profiling.verbs.results import check_outputs, output_flags, show, show_answer, write_outputs

OUT = Path("out-ab")

STEPS = 300  # timed iterations of a process of the trainer
USAGE = """python -m profiling ab [FLAGS] [FILE] KEY=A,B[,C] [KEY=VALUE ...]
       python -m profiling ab [FLAGS] -- A ::: B
       python -m profiling ab [FLAGS] --against WHAT -- COMMAND"""


def main(argv: list[str], trainer: Path = TRAINER) -> int:
    """Run the experiment; return the exit code. Raises ValueError for what the user can mend."""
    flags, words = parse(argv)
    try:
        asked = plan(flags, words)
    except commands.NotStarted as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        return error.status
    values = turns(flags, asked)
    folder = flags.out or fresh_folder(asked)
    refuse_other_folder(folder, f"--out {folder}")
    experiment = open_experiment(folder, asked)
    if flags.dry_run:
        announce(experiment, values, folder)
        print_commands(experiment, values, trainer, folder)
        return 0
    with Lock(folder, f"--out {folder}"):
        try:
            concluded = conduct(flags, asked, folder, trainer)
        except STOPS as stopped:
            done = len(open_experiment(folder, asked).runs)
            print(f"\nstopped; {done} of {len(values)} processes are in {folder}")
            print(as_called(f"resume  {resume_command('ab', argv, folder)}"))
            return exit_code(stopped)
        return deliver(flags, folder, concluded)


def conduct(
    flags: Namespace, asked: Experiment, folder: Path, trainer: Path = TRAINER
) -> Experiment:
    """Run the processes that the folder lacks; return the experiment with its result.

    Raises ValueError for what the user can mend, and one of STOPS after Ctrl-C or SIGTERM.
    """
    values = turns(flags, asked)
    experiment = open_experiment(folder, asked)
    captured: list[Comparison | None] = [None] * (len(asked.factor.values) - 1)
    announce(experiment, values, folder)
    if not asked.of_commands:
        check_and_estimate(flags, experiment, values, folder)
    with against.places_of(flags.against, folder) as places:
        experiment = measure(experiment, values, time_by(flags, trainer, places), folder)
        if flags.capture:
            make_capture = capture_by(flags, experiment, trainer, folder, places)
            captured = captures.explanations(experiment, make_capture)
    if isinstance(flags.against, against.Baseline):
        return flags.against.conclude(experiment, flags.equal_within)
    concluded = conclude(experiment, captured, flags.equal_within)
    begun = first_iterations(concluded, folder, flags.iterations)
    concluded = replace(concluded, first_iterations=begun)
    if flags.predicted:
        checked = predicted.check_prediction(concluded, flags.predicted)
        append_lines(folder / PREDICTIONS, [checked])
        return replace(concluded, prediction=checked)
    return concluded


def parse(argv: list[str]) -> tuple[Namespace, list[str]]:
    """Parse the command line into (flags, words for train.py).

    The flags have `commands`: the words A ::: B behind `--`, or None without them.
    """
    parser = Parser("ab", __doc__, usage=USAGE)
    add = partial(flag, parser)
    processes = "processes of each value (default %(default)s; at least 2, to measure the noise)"
    add("--repeats N", processes, within(int, 2), default=5)
    timed = (
        f"timed iterations of each process (default {STEPS}), after {WARM_UP} warm-up iterations; "
        "of two commands: end each process after so many steps (default: at its own end)"
    )
    add("--steps N", timed, within(int, FEWEST_TIMED))
    untimed = f"of two commands: steps that are not timed (default {commands.WARM_UP})"
    add("--warm-up N", untimed, within(int, 1))
    side_by_side = "iterations 0 to N - 1 of each value's first process, side by side (default 5)"
    add("--iterations N", side_by_side, within(int, 0), default=5)
    equal_within_flag(parser)
    gate_flag(parser)
    add("--no-capture", "make no captures at the end, so that nothing explains the difference")
    add("--capture", "of two commands: run each once more, and capture a window of its steps")
    add("--against WHAT", against.HELP, against.word)
    add("--baselines DIR", baselines.FOLDER_HELP, Path, default=baselines.FOLDER)
    add("--predicted FILE", predicted.HELP)
    add("--wandb PROJECT", wandb_verdict.HELP, wandb_verdict.project)
    out = (
        "folder of the experiment; an experiment in this folder is continued (default: a new one "
        f"in {OUT}/)"
    )
    add("--out DIR", out, Path)
    output_flags(
        parser,
        json=f"the result as JSON (also DIR/{RESULTS}, with every step time)",
        markdown="as Markdown",
        html="as an HTML page (default DIR/report.html)",
    )
    add("--dry-run", "print the commands and stop")
    before, command = at_dashes(argv)
    if command is None:
        refuse_own_program("ab", argv)
    flags, words = parser.parse_known_args(before)
    if unknown := [word for word in words if word.startswith("-") and "=" not in word]:
        parser.error(f"unrecognized arguments: {unknown[0]}")
    flags.commands = command
    check_form(flags, words)
    check_outputs(flags)
    if flags.predicted is not None:
        flags.predicted = predicted.read_prediction(flags.predicted)
    return flags, words


def check_form(flags: Namespace, words: list[str]) -> None:
    """Raise ValueError for what belongs to the other form of the verb; settle `capture`."""
    if flags.commands is None:
        if flags.against:
            raise ValueError("--against: only with a command: ab --against WHAT -- COMMAND")
        for name in ("--warm-up", "--capture"):
            if getattr(flags, name[2:].replace("-", "_")):
                raise ValueError(f"{name}: only for two commands: ab -- A ::: B")
        flags.capture = not flags.no_capture
        return
    if words:
        raise ValueError(f"{words[0]}: before -- are only flags; {commands.USE}")
    if flags.against and commands.SEPARATOR in flags.commands:
        raise ValueError("--against: takes one command, without :::")
    if flags.no_capture:
        raise ValueError("--no-capture: two commands are captured only with --capture")


def plan(flags: Namespace, words: list[str]) -> Experiment:
    if flags.commands is None:
        asked = plan_experiment(words, flags.steps or STEPS)
    elif flags.against:
        if flags.against[0] == against.BASELINE and (flags.capture or flags.predicted):
            name = "--capture" if flags.capture else "--predicted"
            raise ValueError(f"{name}: a baseline has step times alone; use --against commit:REV")
        flags.against = against.opened(flags.against, flags.baselines)
        asked = flags.against.plan(flags.commands, flags.steps, flags.warm_up)
    else:
        warm_up = flags.warm_up or commands.WARM_UP
        asked = commands.plan_commands(flags.commands, flags.steps, warm_up)
    if flags.predicted:
        predicted.check_two_values(asked)
    return asked


def turns(flags: Namespace, asked: Experiment) -> list[int]:
    """Number of the value for each process; those of a baseline come first and have run."""
    if isinstance(flags.against, against.Baseline):
        return [0] * len(asked.runs) + [1] * flags.repeats
    return order(len(asked.factor.values), flags.repeats)


def sides_of(flags: Namespace) -> commands.Sides:
    words = flags.commands
    return (words, words) if flags.against else commands.sides_of(words)


def time_by(flags: Namespace, trainer: Path, places: commands.Places) -> TimeProcess:
    """The function that runs and times one process of the experiment."""
    if not flags.commands:
        return timed_by(trainer)
    time_one = partial(commands.time_command, sides_of(flags), places)
    if isinstance(flags.against, against.Baseline):
        return baselines.checked_on(flags.against.alike[-1], time_one)
    return time_one


def capture_by(
    flags: Namespace, experiment: Experiment, trainer: Path, folder: Path, places: commands.Places
) -> Callable[[int], Path]:
    """The function that makes the capture of a value."""
    if flags.commands:
        return partial(commands.capture_command, sides_of(flags), places, experiment, folder)
    return partial(captures.capture, experiment, trainer, folder)


def captured_folder(experiment: Experiment, folder: Path, value: int) -> Path:
    if experiment.of_commands:
        return commands.capture_folder(folder, value)
    return captures.capture_folder(folder, experiment.factor.labels[value])


def check_and_estimate(
    flags: Namespace, experiment: Experiment, values: list[int], folder: Path
) -> None:
    """Check the trainer's values on this machine, and print how long the processes take.

    Raises ValueError naming the value that cannot run.
    """
    paces = check_on_this_machine(experiment, folder)
    uncaptured = captures.missing_captures(experiment, folder) if flags.capture else []
    ahead = processes_ahead(experiment, values, paces, uncaptured)
    for line in duration_lines(experiment, ahead, paces):
        say(as_called(line))


def print_commands(experiment: Experiment, values: list[int], trainer: Path, folder: Path) -> None:
    for number, value in enumerate(values):
        if experiment.of_commands:
            print(experiment.factor.values[value])
        else:
            print(shlex.join(timed_process(experiment, trainer, folder, number, value)[1]))


def fresh_folder(experiment: Experiment) -> Path:
    """A folder that does not exist yet: out-ab/KEY-VALUES, with a number appended if that is
    taken. Of commands it has their labels."""
    factor = experiment.factor
    values = factor.labels if experiment.of_commands else factor.values
    name = file_name("-".join([factor.key, *values]))
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(OUT / name for name in names if not (OUT / name).exists())


def announce(experiment: Experiment, values: list[int], folder: Path) -> None:
    """Print what is about to run."""
    names = [experiment.factor.labels[value] for value in values]
    done = len(experiment.runs)
    listed = f"{' '.join(names[:8])}{' ...' * (len(names) > 8)}"
    if experiment.of_commands:
        announce_commands(experiment, values)
    else:
        say(
            f"{len(names)} processes of {max_iters(experiment)} iterations, of which the first "
            f"{experiment.warm_up + 1} are not timed: {listed}"
        )
    if done:
        say(f"{done} of them are already done")
    say(f"folder  {folder}")


def announce_commands(experiment: Experiment, values: list[int]) -> None:
    """Print both commands, and for how long each process runs."""
    in_turns = " as A B B A" if values[:2] == [0, 1] else ""
    each = f"each to its own end; the first {experiment.warm_up} steps are not timed"
    if experiment.steps:
        each = (
            f"each of {experiment.warm_up} warm-up steps and {experiment.steps} timed ones, then "
            "stopped by force"
        )
    say(f"{len(values)} processes{in_turns}, {each}")
    for side, line in zip(commands.SIDES, experiment.factor.values, strict=True):
        say(f"{side}  {line}")
    if len(experiment.runs) < len(commands.SIDES):
        say("how long it takes is known once each has run")


def deliver(flags: Namespace, folder: Path, experiment: Experiment) -> int:
    """Write and print everything that the user asked for, and the page in any case; return the exit
    code."""
    flags.html = flags.html or folder / "report.html"
    save(experiment, folder)
    document = experiment_document(experiment)
    write_outputs(flags, to_json(experiment, indent=1), document)
    print()
    show(document)
    print(f"\nrecord  {folder / RESULTS}\npage    {flags.html}")
    for value in range(len(experiment.factor.values)):
        if made := newest_capture(captured_folder(experiment, folder, value)):
            print(as_called(f"next    python -m profiling report {shlex.quote(str(made))}"))
    if flags.wandb:
        print(wandb_verdict.log_experiment(experiment, flags.wandb, folder))
    code = gate(experiment.comparisons, flags.fail_on_regression)
    print()
    show_answer(document)
    return code
