"""`python -m profiling ab`: the honest experiment, one key with two values or more.

Separate processes of train.py, interleaved, unprofiled; then one capture of each value to explain
the difference. launch.experiment runs them, analysis.difference judges.
"""

import shlex
import signal
from argparse import Namespace
from pathlib import Path

import msgspec
from rich.console import Console

from cli.files import write_text
from cli.parser import Parser, new_file, within
from profiling.analysis.difference.experiment import concluded
from profiling.analysis.difference.records import Comparison, Experiment
from profiling.analysis.runs.folder import newest_capture
from profiling.launch.experiment.captures import capture_folder, explanations
from profiling.launch.experiment.plan import (
    FEWEST_STEPS,
    Plan,
    plan_of,
    training_command,
    typed,
)
from profiling.launch.experiment.processes import RESULTS, measure, open_experiment
from profiling.records import to_json
from profiling.report.experiment_console import print_experiment
from profiling.report.experiment_markdown import experiment_markdown
from profiling.report.experiment_page import experiment_page

TRAINER = Path(__file__).resolve().parent.parent.parent / "train.py"
OUT = Path("out-ab")

USAGE = "python -m profiling ab [FLAGS] [FILE] KEY=A,B[,C] [KEY=VALUE ...]"
PURPOSE = """\
Trains with each value of one key, again and again, and says whether the step time differs.

  FILE KEY=VALUE   as for train.py; exactly one key has several values, by comma: the factor
"""
NOTES = """\
examples
  python -m profiling ab config/shakespeare_char.yaml attention=slow,flash
  python -m profiling ab config/shakespeare_char.yaml compile=false,true attention=flash
  python -m profiling ab config/shakespeare_char.yaml batch_size=32,64 --repeats 3
  python -m profiling ab config/shakespeare_char.yaml attention=flash,flash --repeats 10
  python -m profiling ab config/shakespeare_char_cpu.yaml attention=slow,flash,math --steps 100

Processes run one after the other as A B B A A B ..., each from scratch, without a profiler and
without evaluations among the timed steps. Steps are timed by CUDA events (on a CPU by its clock)
and recorded as training logs them: medians of ten. The unit of the statistics is the process, whose
median counts once: the interval is Welch's t on logarithms. What two groups of equal processes
differ by is measured by the repeats of each value, A against A; an interval that touches this noise
is "no difference". A value given twice is an A/A experiment.

Sizes of a batch are compared by the token. Values that change the model or the arithmetic (n_layer,
dtype) are compared by the step all the same: you asked for them.

exit code: 0 whatever is found; 2 for a mistake or a process that failed; 130 after Ctrl-C
"""


def main(argv: list[str], trainer: Path = TRAINER) -> int:
    """Runs the experiment; returns the exit code. Raises ValueError for what the user can mend."""
    flags, plan = parse(argv)
    folder = flags.out or fresh_folder(plan)
    console = Console(highlight=False)
    experiment = open_experiment(folder, plan)
    announce(plan, folder, len(experiment.runs), console)
    if flags.dry_run:
        for number, value in enumerate(plan.order()):
            words = plan.timed_words(value, folder / "runs" / f"{number + 1:02d}")
            print(typed(training_command(trainer, words)))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the running process too
    captured: list[Comparison | None] = [None] * (len(plan.factor.values) - 1)
    try:
        experiment = measure(plan, experiment, trainer, folder, console)
        if not flags.no_capture:
            captured = explanations(plan, experiment, trainer, folder, console)
    except KeyboardInterrupt:
        done = len(open_experiment(folder, plan).runs)
        print(f"\nstopped; {done} of {len(plan.order())} processes are in {folder}")
        print(f"go on   {again(argv, folder)}")
        return 130
    deliver(flags, folder, concluded(experiment, captured), console)
    return 0


def parse(argv: list[str]) -> tuple[Namespace, Plan]:
    parser = Parser("ab", PURPOSE, NOTES, usage=USAGE)
    add = parser.add_argument
    add(
        "--repeats",
        type=within(int, 2),
        default=5,
        metavar="N",
        help="processes of each value (default 5, at least 2: they tell the noise)",
    )
    add(
        "--steps",
        type=within(int, FEWEST_STEPS),
        default=300,
        metavar="N",
        help="timed iterations of each process (default 300), behind 50 of warm-up",
    )
    add(
        "--no-capture",
        action="store_true",
        help="no captures at the end, and so no explanation",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder of the experiment; one that lies there already goes on (default: a new folder "
        f"in {OUT}/)",
    )
    add(
        "--json",
        type=new_file,
        metavar="FILE",
        help=f"the result as JSON (also DIR/{RESULTS}, with every step time)",
    )
    add("--markdown", type=new_file, metavar="FILE", help="as Markdown")
    add(
        "--html",
        type=new_file,
        metavar="FILE",
        help="as a page (default DIR/report.html)",
    )
    add("--dry-run", action="store_true", help="print the commands and stop")
    flags, words = parser.parse_known_args(argv)
    for word in words:
        if word.startswith("-") and "=" not in word:
            parser.error(f"unrecognized arguments: {word}")
    return flags, plan_of(words, flags.repeats, flags.steps)


def fresh_folder(plan: Plan) -> Path:
    """out-ab/KEY-VALUES, or with a number behind it where that is taken."""
    folder = OUT / plan.folder_name()
    number = 2
    while folder.exists():
        folder = OUT / f"{plan.folder_name()}-{number}"
        number += 1
    return folder


def announce(plan: Plan, folder: Path, done: int, console: Console) -> None:
    """What is about to run, and what is known of how long."""
    names = [plan.factor.labels[value] for value in plan.order()]
    left = len(names) - done
    console.print(
        f"{len(names)} processes of {plan.max_iters} iterations, the first {plan.warm_up + 1} "
        f"untimed: {' '.join(names[:8])}{' ...' if len(names) > 8 else ''}",
        markup=False,
        soft_wrap=True,
    )
    if done:
        console.print(f"{done} of them are there already")
    if left:
        console.print(
            f"starting takes 5 to 20 s each (compiling is the most of it): {left * 5 / 60:.1f} to "
            f"{left * 20 / 60:.1f} min, and the steps; the first process tells more",
            soft_wrap=True,
        )
    console.print(f"folder  {folder}", markup=False, soft_wrap=True)


def again(argv: list[str], folder: Path) -> str:
    """The command that goes on in the folder."""
    words = argv if "--out" in argv else [*argv, "--out", str(folder)]
    return shlex.join(["python", "-m", "profiling", "ab", *words])


def deliver(flags: Namespace, folder: Path, experiment: Experiment, console: Console) -> None:
    """Everything that the user asked for, and the page in any case."""
    text, told = to_json(experiment, indent=1), msgspec.to_builtins(experiment)
    page = flags.html or folder / "report.html"
    write_text(folder / RESULTS, text)
    write_text(page, experiment_page(told))
    if flags.json:
        write_text(flags.json, text)
    if flags.markdown:
        write_text(flags.markdown, experiment_markdown(told))
    print_experiment(told, console)
    console.print(f"\nrecord  {folder / RESULTS}\npage    {page}", markup=False, soft_wrap=True)
    for label in experiment.factor.labels:
        if made := newest_capture(capture_folder(folder, label)):
            console.print(
                f"next    python -m profiling report {shlex.quote(str(made))}",
                markup=False,
                soft_wrap=True,
            )
