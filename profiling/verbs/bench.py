"""Times training and sampling, and compares them with another checkout of nanoGPT if you name one:
one command for the whole table of speeds.

  FILE KEY=VALUE   as for train.py; a key that nanoGPT also has is passed to both

{flags}

parts
{parts}

examples
  python -m profiling bench --against ../nanoGPT
  python -m profiling bench --against ../nanoGPT --iterations 5000 --rounds 2 --parts run,loss
  python -m profiling bench config/shakespeare_char.yaml --against ../nanoGPT \\
      --ours "attention=triton kernels=fused compile=false"
  python -m profiling bench --against ../nanoGPT device=cpu compile=false n_layer=2 n_embd=96 \\
      block_size=64 batch_size=8 --iterations 200 --tokens 50 --samples 8

Processes run one after the other, ours and theirs in turns, round by round, after one of each that
fills the compilers' caches. The other checkout runs unchanged: its train.py with
config/train_shakespeare_char.py and --key=value for each key that differs here. If its text is not
prepared yet, its own prepare.py runs on our text. Both are timed in the same way, from outside, by
the arrival of their lines. The step time that nanoGPT prints ends when the step was launched.

Both do the same work: model, batch, text, iterations and evaluations. What each reports about its
work is compared, and differences are printed. A whole run of ours is timed a second time with its
own, exact evaluations. Each round of ours has another seed; nanoGPT has one seed for all. Unit and
interval are those of `ab`: the process, and Welch's t on logarithms.

Before the first process, bench prints a rough estimate of the total time, which assumes that the
other checkout is as fast as ours. On a CPU, if that is more than half an hour, bench also prints a
shorter command.

exit code: 0 for any answer; 2 for a mistake or a failed process; 130 after Ctrl-C, 143 after
SIGTERM
"""

import shlex
from argparse import Namespace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, count
from pathlib import Path

from msgspec.structs import replace

from cli.files import write_text
from cli.interrupts import STOPS, exit_code
from cli.lock import Lock, refuse_files_of_others
from cli.parser import Parser, flag, names, within
from cli.program import as_called
from profiling.analysis.bench.bench_records import BENCH, SCHEMA_VERSION, Asked, Bench, Kind
from profiling.analysis.bench.result import PARTS, TARGET, measures, whole_work
from profiling.launch.bench.ahead import duration_lines, find_our_pace
from profiling.launch.bench.checkout import Checkout, open_checkout, prepare_text
from profiling.launch.bench.plan import Plan, Trial, check_words, command, trials
from profiling.launch.bench.processes import measure, open_bench, save, trials_left
from profiling.launch.experiment.plan import FEWEST_TIMED, LOG_INTERVAL, WARM_UP
from profiling.launch.experiment.processes import resume_command, say
from profiling.report.bench.document import bench_document
from profiling.report.renderers.markdown import markdown
from profiling.shared.json_records import to_json
from profiling.shared.own_program import refuse_own_program
from profiling.verbs.gate import equal_within_flag
from profiling.verbs.results import check_outputs, output_flags, show, show_answer, write_outputs

OUT = "out-bench"
USAGE = "python -m profiling bench [FLAGS] [FILE] [KEY=VALUE ...]"
FEWEST_ITERATIONS = WARM_UP + 2 * LOG_INTERVAL


def main(argv: list[str]) -> int:
    """Measure, print and write; return the exit code. Raises ValueError for a mistake."""
    flags, words = parse(argv)
    checkout = open_checkout(flags.against) if flags.against else None
    asked = Asked(
        words=words,
        against=str(checkout.folder) if checkout else None,
        commit=checkout.commit if checkout else None,
        steps=flags.steps,
        iterations=flags.iterations,
        tokens=flags.tokens,
        samples=flags.samples,
        ours=flags.ours,
    )
    plan = Plan(asked, checkout, flags.out or fresh_folder())
    refuse_files_of_others(plan.folder, f"--out {plan.folder}", BENCH, {"runs"}, "bench")
    check_words(plan)
    began = datetime.now(UTC).isoformat(timespec="seconds")
    bench = open_bench(plan.folder, Bench(SCHEMA_VERSION, asked, began))
    kinds: list[Kind] = list(dict.fromkeys(PARTS[name].kind for name in flags.parts))
    planned = trials(plan, kinds, flags.rounds)
    if flags.dry_run:
        print_commands(plan, planned)
        return 0
    with Lock(plan.folder, f"--out {plan.folder}"):
        announce(plan, bench, planned)
        try:
            say_how_long(plan, bench, planned)
            if checkout:
                prepare_both(plan, checkout)
            bench = measure(plan, bench, planned)
        except STOPS as stopped:
            print(f"\nstopped; the measurements so far are in {plan.folder}")
            print(as_called(f"resume  {resume_command('bench', argv, plan.folder)}"))
            return exit_code(stopped)
        result = measures(bench, flags.loss, flags.equal_within)
        deliver(flags, plan.folder, replace(bench, work=whole_work(bench), result=result))
    return 0


def parse(argv: list[str]) -> tuple[Namespace, list[str]]:
    """Parse the command line into (flags, words for train.py)."""
    parts = "\n".join(f"  {name:9} {part.meaning}" for name, part in PARTS.items())
    parser = Parser("bench", (__doc__ or "").replace("{parts}", parts), usage=USAGE)
    add, number = partial(flag, parser), partial(within, int)
    add("--against DIR", "a checkout of nanoGPT, which runs unchanged", Path)
    add("--ours WORDS", "KEY=VALUE pairs for ours only, separated by spaces", str.split, default=[])
    which = f"some of {','.join(PARTS)} (default: all)"
    add("--parts NAME,...", which, names, default=",".join(PARTS))
    add("--rounds N", "processes of each kind; an interval needs 2 (default 3)", number(1), 3)
    timed = f"timed iterations of a process (default 300), after {WARM_UP} warm-up iterations"
    add("--steps N", timed, number(FEWEST_TIMED), 300)
    add(
        "--iterations N", "iterations of a full run (default 1000)", number(FEWEST_ITERATIONS), 1000
    )
    add("--tokens N", "tokens of a sampled sequence (default 200)", number(1), 200)
    add("--samples N", "sequences for the part samples (default 64)", number(1), 64)
    add("--loss L", f"validation loss to reach (default {TARGET})", within(float, 0), TARGET)
    equal_within_flag(parser)
    add("--out DIR", f"folder of the series; an existing series is continued (a new {OUT})", Path)
    output_flags(
        parser,
        json=f"the result as JSON (also DIR/{BENCH})",
        markdown="as Markdown (also DIR/bench.md)",
        html="as an HTML page (default DIR/bench.html)",
    )
    add("--dry-run", "print the commands and stop")
    refuse_own_program("bench", argv)
    flags, words = parser.parse_known_args(argv)
    if unknown := [word for word in words if word.startswith("-") and "=" not in word]:
        parser.error(f"unrecognized arguments: {unknown[0]}")
    for name in flags.parts:
        if name not in PARTS:
            raise ValueError(f"--parts {name}: no such part; use {', '.join(PARTS)}")
    if flags.steps % LOG_INTERVAL:
        raise ValueError(f"--steps {flags.steps}: must be a multiple of {LOG_INTERVAL}")
    check_outputs(flags)
    return flags, words


def fresh_folder() -> Path:
    """A folder that does not exist yet: out-bench, with a number appended if that is taken."""
    folders = map(Path, chain([OUT], (f"{OUT}-{number}" for number in count(2))))
    return next(folder for folder in folders if not folder.exists())


def print_commands(plan: Plan, planned: list[Trial]) -> None:
    """Print the command of each process, with a `cd` if it runs in the other checkout's folder."""
    for trial in planned:
        folder, words = command(plan, trial, {})
        print(f"cd {shlex.quote(str(folder))} && " * bool(folder) + shlex.join(words))


def announce(plan: Plan, bench: Bench, planned: list[Trial]) -> None:
    """Print what is about to run."""
    kinds = ", ".join(dict.fromkeys(trial.kind for trial in planned))
    sides = f", ours and {plan.checkout.name} in turns" if plan.checkout else ""
    say(f"{len(planned)} processes: {kinds}{sides}")
    if bench.processes:
        say(f"{len(bench.processes)} of this series are already done")
    say(f"folder  {plan.folder}")


def say_how_long(plan: Plan, bench: Bench, planned: list[Trial]) -> None:
    """Print how long the trials take that are not measured yet."""
    if left := trials_left(bench, planned):
        for line in duration_lines(plan, left, find_our_pace(plan)):
            say(as_called(line))


def prepare_both(plan: Plan, checkout: Checkout) -> None:
    """Prepare our text, and let the other checkout train on the same tokens.

    Raises ValueError if it cannot.
    """
    from data.prepare import prepare  # here: --help needs no tokenizers

    log = plan.folder / "runs" / "prepare-text.log"
    if not prepare_text(checkout, prepare(plan.config), log):
        say(f"{checkout.name}: prepared {checkout.folder}/data/shakespeare_char from our text")


def deliver(flags: Namespace, folder: Path, bench: Bench) -> None:
    """Write and print everything that the user asked for, and table and page in any case."""
    flags.html = flags.html or folder / "bench.html"
    save(bench, folder)
    document = bench_document(bench, flags.equal_within)
    write_outputs(flags, to_json(bench, indent=1), document)
    write_text(folder / "bench.md", markdown(document))
    print()
    show(document)
    print(f"\nrecord  {folder / BENCH}\ntable   {folder / 'bench.md'}\npage    {flags.html}\n")
    show_answer(document)
