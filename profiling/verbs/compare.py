"""Shows what changed between two captures or two run folders, and how certain the change is.

{flags}

Captures are .sqlite, .sqlite.gz, .nsys-rep and torch.profiler's .json, .json.gz. Two memory
snapshots (.pickle) are compared by their peaks: less, more, equal or cannot tell; so are two
folders of runs that have nothing else. If a folder has several, the newest is used. For two runs
(their out_dir), the step times are those of the unprofiled iterations, and the newest capture in
the folder explains them. In a folder of several runs of one configuration, such as a sweep over
seeds, each run counts once; both sides must then have several.

examples
  python -m profiling compare slow.sqlite flash.sqlite
  python -m profiling compare out-slow out-flash --html comparison.html
  python -m profiling compare slow-seeds/ flash-seeds/
  python -m profiling compare main.sqlite branch.sqlite --fail-on-regression 5
  python -m profiling compare out-slow out-flash --wandb profiling-nanogpt

ratio: candidate / baseline, of median step times; below 1 the candidate is faster. The 95 %
interval is a bootstrap over blocks of steps, or Welch's t over two to seven. It covers only these
two runs, and two starts of one program can differ by one per cent on a GPU, so an interval counts
as a difference only if it is at least that far from 1. On a CPU, starts differ with the other load
of the machine, so one run of each cannot decide it. `python -m profiling ab` measures how much
starts differ, and so do several runs of each: Welch's t over one median each. If the manifests of
captures have the steps around the window, these steps are compared, because no profiler slowed
them.

one of four answers: faster; slower; equal, if the whole interval is within --equal-within; cannot
tell, with the reason: one run of each on a CPU, noise (and the number of steps needed), a single
step on a side (no verdict), or a difference that is mostly host time, which a profiler lengthens.
If such a difference is too large for chance, the answer is faster or slower without a size.

exit code: 0; with --fail-on-regression 1 if the candidate is slower by more than PERCENT, and 3 if
the data cannot decide it (an interval that ends below PERCENT passes); 2 for a file that cannot be
read, or for two that are not comparable (without --force)
"""

import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from cli.keys import spell
from cli.parser import Parser, flag, names
from cli.plain import plain, without_controls
from cli.program import as_called
from profiling.analysis.difference.answer import ENOUGH_STEPS
from profiling.analysis.difference.comparability import (
    config_differences,
    reasons_against,
    timed_keys,
)
from profiling.analysis.difference.compared import (
    Compared,
    compared_capture,
    compared_run,
    compared_runs,
)
from profiling.analysis.difference.comparison import compare
from profiling.analysis.difference.comparison_records import COMMAND, Comparison
from profiling.analysis.difference.ranks import compared_ranks
from profiling.analysis.open_report import open_report
from profiling.analysis.ranks.files import StepNames
from profiling.analysis.ranks.found import TooFewRanks, rank_captures
from profiling.analysis.runs.folder import (
    RunFolder,
    is_run_folder,
    newest_capture,
    read_run,
    runs_below,
)
from profiling.launch import wandb_verdict
from profiling.report.comparison.document import comparison_document
from profiling.shared.json_records import to_json
from profiling.verbs.gate import equal_within_flag, gate, gate_flag
from profiling.verbs.memory import compare_memory
from profiling.verbs.progress import reading_bar
from profiling.verbs.ranks import read_folder, read_ranks
from profiling.verbs.report import RANKS
from profiling.verbs.results import check_outputs, output_flags, show, show_answer, write_outputs

MOST_EXPERIMENTS = 3  # that are proposed


def main(argv: list[str]) -> int:
    """Compare, print and write; return the exit code. Raises ValueError for bad input."""
    flags = parse(argv)
    if (code := compare_memory(flags)) is not None:
        return code
    comparison = compare(*both_sides(flags), flags.force, flags.equal_within)
    document = comparison_document(comparison)
    written = write_outputs(flags, to_json(comparison, indent=1), document)
    refuse_unlike(comparison)
    show(document)
    print(
        "",
        *(without_controls(f"written {path}") for path in written),
        *next_steps(flags, comparison),
        sep="\n",
    )
    if flags.wandb:
        print(wandb_verdict.log_comparison(comparison, flags.wandb))
    code = gate([comparison], flags.fail_on_regression)
    print()
    show_answer(document)
    return code


def refuse_unlike(comparison: Comparison) -> None:
    """Raise ValueError for two sides that are not comparable."""
    if comparison.verdict == "not_comparable":
        raise ValueError(f"{comparison.sentence}; --force compares them anyway")


def parse(argv: list[str]) -> Namespace:
    parser = Parser("compare", __doc__)
    side = (
        "a capture, a folder of captures (of one or several ranks), or the folder of one or "
        "several runs"
    )
    parser.add_argument("baseline", type=Path, help=side)
    parser.add_argument("candidate", type=Path, help="likewise")
    add = partial(flag, parser)
    add("--force", "compare even if GPU, batch, model, dtype, versions or cores differ")
    equal_within_flag(parser)
    gate_flag(parser)
    add("--ranks", RANKS)
    add("--step NAME", "name of the range of a step, in captures of other programs")
    add("--phases A,B", "names of the ranges of the phases, in captures of other programs", names)
    add("--wandb PROJECT", wandb_verdict.HELP, wandb_verdict.project)
    output_flags(
        parser,
        json="the comparison as JSON; docs/report-schema.md has the fields",
        markdown="as Markdown, for a pull request",
        html="as one self-contained HTML page",
    )
    flags = parser.parse_args(argv)
    check_outputs(flags, flags.baseline, flags.candidate)
    return flags


def both_sides(flags: Namespace) -> tuple[Compared, Compared]:
    """Both sides as they are compared: runs by their unprofiled steps, captures by their own steps.

    Runs that logged too few rows without a profiler are compared by their captures, with a note on
    stderr.
    """
    paths = [flags.baseline, flags.candidate]
    ranks = [rank_captures([path], flags.ranks) for path in paths]
    groups = [
        [] if of_ranks else runs_below(path) for path, of_ranks in zip(paths, ranks, strict=True)
    ]
    if any(len(group) > 1 for group in groups):
        return several_runs(paths, groups)
    paths = [group[0] if group else path for path, group in zip(paths, groups, strict=True)]
    runs = [read_run(path) if is_run_folder(path) else None for path in paths]
    captures = [newest_capture(path) if is_run_folder(path) else path for path in paths]
    check_outputs(flags, *filter(None, captures), *ranks[0], *ranks[1])
    short = [str(run.folder) for run in runs if run and len(run.step_ms) < ENOUGH_STEPS]
    if short and None not in captures:
        print(
            f"{plain(' and '.join(short))}: too few rows without a profiler for an interval, so "
            "the captures are compared instead",
            file=sys.stderr,
        )
        runs = [None, None]
    sides = zip(runs, captures, ranks, strict=True)
    one, other = (side(run, capture, of_ranks, flags) for run, capture, of_ranks in sides)
    if None not in runs and all(ranks):
        return with_ranks(one, other, ranks, StepNames(flags.step, flags.phases))
    return one, other


def several_runs(paths: Sequence[Path], groups: Sequence[list[Path]]) -> tuple[Compared, Compared]:
    """The sides of two folders of several runs. Raises ValueError if one has fewer than two."""
    for path, group in zip(paths, groups, strict=True):
        if len(group) < 2:
            raise ValueError(
                f"{path}: not a folder of several runs, unlike the other side; give two or more "
                "runs on both sides, or one on each"
            )
    one, other = (runs_of(path, group) for path, group in zip(paths, groups, strict=True))
    return one, other


def runs_of(path: Path, folders: Sequence[Path]) -> Compared:
    """The side of a folder's runs, explained by the newest capture of the first.

    Raises ValueError if they differ in a key that changes a step, or in their conditions.
    """
    capture = newest_capture(folders[0])
    report = open_report(capture).plain_report if capture else None
    why_none = "the first run has no capture, so families and kernels are not compared"
    first, *others = sides = [compared_run(read_run(run), report, why_none) for run in folders]
    for run in others:
        differences = config_differences(first.config, run.config) or {}
        reasons = [*timed_keys(differences), *reasons_against(first, run, {})]
        if reasons:
            raise ValueError(
                f"{path}: {Path(first.file).name} and {Path(run.file).name} differ in "
                f"{'; '.join(reasons)}; the runs of one side may differ only in keys that do not "
                "change a step, such as seed"
            )
    return compared_runs(sides, str(path))


def with_ranks(
    one: Compared, other: Compared, ranks: Sequence[list[Path]], names: StepNames
) -> tuple[Compared, Compared]:
    """Two runs with the reports of their ranks, or unchanged if their captures have no ranks to
    report, or different numbers of them."""
    try:
        reports = [read_ranks(paths, names).report for paths in ranks]
    except TooFewRanks:  # as captures of CPUs
        return one, other
    if len({len(report.ranks) for report in reports}) > 1:
        return one, other
    return replace(one, ranks=reports[0]), replace(other, ranks=reports[1])


def side(
    run: RunFolder | None, capture: Path | None, ranks: list[Path], flags: Namespace
) -> Compared:
    """One side: a run, or else the captures of several ranks, or a single capture."""
    if ranks and run is None:
        given = ranks[0] if len(ranks) == 1 else ranks[0].parent
        if analysis := read_folder([given], ranks, StepNames(flags.step, flags.phases)):
            return compared_ranks(analysis.report, str(given))
        capture = ranks[0]
    if run is None:
        assert capture, "a side that is not a run is a capture"
        with reading_bar(capture) as say:
            analysed = open_report(capture, step=flags.step, phases=flags.phases)
            say("analysing")
            _ = analysed.plain_report
        manifest = None if flags.step else analysed.manifest  # it has times of iterations only
        return compared_capture(analysed.plain_report, manifest, analysed.trace.file)
    if capture is None:
        profile = run.folder / "profile"
        tool = "torch" if run.on_cpu else "nsys"
        why = f"there is no capture in {profile}, so families and kernels are not compared; " + (
            f"run it with --kind {tool}" if run.command else f"train with profile={tool}"
        )
        return compared_run(run, None, why)
    report = open_report(capture).plain_report  # of this project: its ranges are known
    return compared_run(run, report)


def next_steps(flags: Namespace, comparison: Comparison) -> Iterator[str]:
    verb = as_called("next    python -m profiling")
    if not flags.html:
        pair = without_controls(shlex.join([str(flags.baseline), str(flags.candidate)]))
        yield f"{verb} compare {pair} --html comparison.html"
    differences = comparison.differences or {}
    keys = timed_keys(differences)
    if COMMAND in keys:
        keys.remove(COMMAND)
        if commands := differences[COMMAND].commands:
            one, other = map(shlex.join, commands)
            yield without_controls(f"{verb} ab -- {one} ::: {other}   # would other starts agree?")
    for key in keys[:MOST_EXPERIMENTS]:
        swept = f"{key}={','.join(map(spell, differences[key].values))}"
        words = without_controls(shlex.join([config_file(flags.baseline), swept]))
        alone = f"{key} alone" if len(keys) > 1 else "would other starts agree?"
        yield f"{verb} ab {words}   # {alone}"
    for path in (flags.baseline, flags.candidate):
        if path.is_file():
            yield without_controls(f"{verb} report {shlex.quote(str(path))}")


def config_file(side: Path) -> str:
    """Path of the config.yaml that a run left, or FILE if none is known."""
    folder = side if side.is_dir() else side.parent.parent  # the run of a capture in profile/
    known = [folder / "config.yaml", *(run / "config.yaml" for run in runs_below(side)[:1])]
    return next((str(path) for path in known if path.is_file()), "FILE")
