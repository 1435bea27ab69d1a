"""`python -m profiling ab`: the honest experiment, one key with two values or more.

Separate processes of train.py, interleaved, unprofiled; then one capture of each value to explain
the difference. ab_plan says what runs, ab_runs runs it, analysis.difference judges.
"""

import argparse
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from cli.files import check_folder, write_text
from profiling.analysis.difference.experiment import analyse, comparison_of
from profiling.analysis.difference.records import Experiment
from profiling.analysis.difference.sentence import sentence
from profiling.launch.ab_explain import capture_folder, explanations
from profiling.launch.ab_plan import Plan, plan_of, training_command, typed
from profiling.launch.ab_runs import RESULTS, measure, open_record
from profiling.records import to_json
from profiling.report.comparison.document import experiment_document
from profiling.report.renderers import markdown, page, terminal
from profiling.verbs.compare import capture_in
from profiling.verbs.run import refuse

TRAINER = Path(__file__).resolve().parent.parent.parent / "train.py"
OUT = Path("out-ab")

HELP = """\
Trains with each value of one key, again and again, and says whether the step time differs.

usage: python -m profiling ab [FLAGS] [FILE] KEY=A,B[,C] [KEY=VALUE ...]

  FILE KEY=VALUE   as for train.py; exactly one key has several values, by comma: the factor

flags
  --repeats N      processes of each value (default 5, at least 2)
  --steps N        timed iterations of each process (default 300), behind 50 of warm-up
  --no-capture     no captures at the end, and so no explanation
  --out DIR        folder of the experiment; one that lies there already goes on
                   (default: a new folder in out-ab/)
  --json FILE      the result as JSON (also DIR/results.json, with every step time)
  --markdown FILE  as Markdown
  --html FILE      as a page (default DIR/report.html)
  --dry-run        print the commands and stop

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


@dataclass(frozen=True)
class Request:
    """What the user typed."""

    plan: Plan
    capture: bool
    dry_run: bool
    out: Path | None
    json: Path | None
    markdown: Path | None
    html: Path | None


def main(argv: list[str], trainer: Path = TRAINER) -> int:
    """Runs the experiment; returns the exit code. Raises ValueError for what the user can mend."""
    if {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    request = parse(argv)
    plan = request.plan
    folder = request.out or fresh_folder(plan)
    console = Console(highlight=False)
    record = open_record(folder, plan)
    announce(plan, folder, len(record["runs"]), console)
    if request.dry_run:
        for number, value in enumerate(plan.order()):
            words = plan.timed_words(value, folder / "runs" / f"{number + 1:02d}")
            print(typed(training_command(trainer, words)))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the running process too
    try:
        measure(plan, trainer, folder, record, console)
        result = analyse(record)
        captured = [None] * (len(plan.values) - 1)
        if request.capture:
            captured = explanations(plan, trainer, folder, console)
    except KeyboardInterrupt:
        print(f"\nstopped; {len(record['runs'])} of {len(plan.order())} processes are in {folder}")
        print(f"go on   {again(argv, folder)}")
        return 130
    deliver(request, folder, experiment(record, result, captured), console)
    return 0


def parse(argv: list[str]) -> Request:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = refuse
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--no-capture", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    for flag in ("--out", "--json", "--markdown", "--html"):
        parser.add_argument(flag, type=Path)
    flags, words = parser.parse_known_args(argv)
    for path in (flags.json, flags.markdown, flags.html):
        if path:
            check_folder(path)  # said now, not when all has been measured
    plan = plan_of(words, flags.repeats, flags.steps)
    return Request(
        plan,
        not flags.no_capture,
        flags.dry_run,
        flags.out,
        flags.json,
        flags.markdown,
        flags.html,
    )


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
    names = [plan.labels[value] for value in plan.order()]
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


def experiment(
    record: dict[str, Any], result: dict[str, Any], captured: list[dict[str, Any] | None]
) -> Experiment:
    """What results.json ends as: the record, what it comes to, and each comparison in full."""
    comparisons = [comparison_of(record, result, i, one) for i, one in enumerate(captured)]
    for comparison in comparisons:
        comparison["sentence"] = sentence(comparison)
    whole = record | {"result": result, "comparisons": comparisons}
    return msgspec.convert(whole, Experiment)


def deliver(request: Request, folder: Path, whole: Experiment, console: Console) -> None:
    """Everything that the user asked for, and the page in any case."""
    text, document = to_json(whole, indent=1), experiment_document(whole)
    html = request.html or folder / "report.html"
    write_text(folder / RESULTS, text)
    write_text(html, page.page(document))
    if request.json:
        write_text(request.json, text)
    if request.markdown:
        write_text(request.markdown, markdown.markdown(document))
    console.print()
    terminal.show(document, console)
    console.print(f"\nrecord  {folder / RESULTS}\npage    {html}", markup=False, soft_wrap=True)
    for label in request.plan.labels:
        if made := capture_in(capture_folder(folder, label)):
            console.print(
                f"next    python -m profiling report {shlex.quote(str(made))}",
                markup=False,
                soft_wrap=True,
            )
