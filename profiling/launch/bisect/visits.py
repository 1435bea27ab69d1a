"""Visits of a bisection: two commits in their worktrees, in turns, until their interval can tell.

Called by profiling.verbs.bisect. bisect.json is written anew after every visit, and results.json of
a visit after every process: a bisection that was stopped or killed goes on where it was.
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from cli.files import write_text
from profiling.analysis.difference.answer import change_words
from profiling.analysis.difference.comparison_records import (
    Against,
    Comparison,
    Experiment,
    ExperimentResult,
    ProcessRun,
)
from profiling.analysis.difference.experiment import analyse, process_times, with_result
from profiling.analysis.difference.pairs import over_pairs
from profiling.launch import git
from profiling.launch.bisect.search import (
    SCHEMA_VERSION,
    Bisection,
    Search,
    Told,
    Visit,
    differs,
)
from profiling.launch.experiment import captures, commands
from profiling.launch.experiment.against import plan_places
from profiling.launch.experiment.plan import order
from profiling.launch.experiment.processes import (
    Conditions,
    measure,
    open_experiment,
    save,
    say,
)
from profiling.shared.json_records import read_json, to_json
from profiling.shared.units import percent

STATE = "bisect.json"
# tells from a comparison, and from the ratios of its pairs of processes
Judge = Callable[[Against, list[float]], Told | None]
IDENTITY = ("good", "bad", "command", "steps", "warm_up", "min_effect_percent")


class Untestable(ValueError):
    """A commit whose command fails: it is skipped."""


@dataclass(frozen=True)
class Asked:
    """The bisection that was asked for."""

    root: Path
    commits: list[git.Commit]  # GOOD first, BAD last
    words: list[str]
    steps: int | None
    warm_up: int
    effect: float  # 0.01: one per cent
    repeats: int  # of each commit in a visit, at first
    most_repeats: int
    folder: Path
    capture: bool = False
    trees: dict[str, Path] = field(default_factory=dict)  # that are checked out, by commit


def open_bisection(asked: Asked) -> Bisection:
    """The state in the folder, or a new one. Raises ValueError if another bisection is there."""
    command = plan(asked, asked.commits[0], asked.commits[-1]).factor.values[0]
    good, bad = asked.commits[0].hash, asked.commits[-1].hash
    rest = command, asked.steps, asked.warm_up, asked.effect * 100
    new = Bisection(SCHEMA_VERSION, good, bad, *rest)
    if not (asked.folder / STATE).exists():
        return new
    earlier = read_json(asked.folder / STATE, Bisection, cure="give another folder with --out")
    for name in IDENTITY:
        if getattr(earlier, name) != getattr(new, name):
            raise ValueError(
                f"--out {asked.folder}: contains a bisection with another {name}; give another "
                "folder"
            )
    return earlier


def plan(asked: Asked, one: git.Commit, other: git.Commit) -> Experiment:
    labels = [one.short, other.short]
    return plan_places(asked.words, asked.root, asked.steps, asked.warm_up, labels)


def bisect(asked: Asked, state: Bisection) -> Bisection:
    """Visit commits until one is left; the state with its end. Raises ValueError for what the user
    can mend, such as a GOOD or BAD that does not run."""
    commits, good, bad = asked.commits, asked.commits[0], asked.commits[-1]
    with checked_out(asked, good):
        whole, state = visit(asked, state, 0, bad, good, partial(differs, effect=asked.effect))
        if whole.ratio is None:
            raise ValueError(f"BAD {bad.short} cannot be measured: {whole.reason}")
        if whole.told != "bad":
            return ended(asked, state, [], no_difference(asked, whole, good, bad))
        search = Search(len(commits) - 1, asked.effect, {len(commits) - 1: whole.ratios})
        place = 1
        while (number := search.next_commit()) is not None:
            judge = partial(search.side_of, number)
            found, state = visit(asked, state, place, commits[number], good, judge)
            if found.ratios:
                search.visited[number] = found.ratios
            else:
                search.failing.add(number)
            place += 1
    numbers = search.left()
    candidates = [commits[number] for number in numbers]
    if len(candidates) > 1:
        names = ", ".join(commit.short for commit in candidates)
        why = f"the difference came with one of {names}; not each of them could be told"
        return ended(asked, state, candidates, why)
    return name(asked, state, place, commits[numbers[0] - 1], candidates[0], whole)


def name(
    asked: Asked,
    state: Bisection,
    place: int,
    parent: git.Commit,
    commit: git.Commit,
    whole: Visit,
) -> Bisection:
    """Measure the commit that is left against the one before it: only that names it."""
    with checked_out(asked, parent):
        found, state = visit(
            asked, state, place, commit, parent, partial(differs, effect=asked.effect)
        )
        assert whole.ratio is not None
        if found.told != "bad" or found.ratio is None or (found.ratio > 1) != (whole.ratio > 1):
            said = found.reason or f"they differ by {span(found)}"
            why = f"{commit.short} is left, but against {parent.short} nothing proves it: {said}"
            return ended(asked, state, [commit], why)
        comparison = explain(asked, visit_folder(asked, place, commit), parent, commit)
    state = replace(state, named=commit.hash)
    return ended(asked, state, [commit], comparison.sentence)


def ended(asked: Asked, state: Bisection, candidates: list[git.Commit], sentence: str) -> Bisection:
    state = replace(state, candidates=[each.hash for each in candidates], sentence=sentence)
    write_text(asked.folder / STATE, to_json(state, indent=1))
    return state


def no_difference(asked: Asked, whole: Visit, good: git.Commit, bad: git.Commit) -> str:
    pair = f"{bad.short} and {good.short}"
    if whole.told == "good":
        return f"{pair} are equal within {percent(asked.effect * 100)}: {span(whole)}"
    return f"cannot tell whether {pair} differ: {span(whole)}; raise --most-repeats"


def span(found: Visit) -> str:
    """The interval of a visit in words: 0.3 % less to 4.1 % more time."""
    if (bounds := found.ci95) is None:
        return "an unknown part of the time"
    low, high = map(change_words, bounds)
    return f"{low} to {high} time"


def visit(
    asked: Asked,
    state: Bisection,
    place: int,
    commit: git.Commit,
    against: git.Commit,
    judge: Judge,
) -> tuple[Visit, Bisection]:
    """Visit number `place`, from the state or now; the visit, and the state with it."""
    if place < len(state.visits):
        return state.visits[place], state
    say(f"\nvisit {place + 1}  {commit.short} {commit.subject}, against {against.short}")
    try:
        found = run_visit(asked, place, commit, against, judge)
    except Untestable as error:
        found = Visit(commit.hash, against.hash, "skipped", str(error), None, None, 0, 0.0, [])
    ratio = "" if found.ratio is None else f"takes {found.ratio:.4f} times as long, {span(found)}; "
    say(f"{commit.short} {found.told}: {ratio}{found.reason or f'{found.processes} processes'}")
    state = replace(state, visits=[*state.visits, found])
    write_text(asked.folder / STATE, to_json(state, indent=1))
    return found, state


def visit_folder(asked: Asked, place: int, commit: git.Commit) -> Path:
    return asked.folder / "visits" / f"{place + 1:02d}-{commit.short}"


def run_visit(
    asked: Asked,
    place: int,
    commit: git.Commit,
    against: git.Commit,
    judge: Judge,
) -> Visit:
    """Run both commits in turns, more often as long as `judge` cannot tell.

    Raises Untestable if the commit fails, and ValueError if the one that it is held against does.
    """
    folder = visit_folder(asked, place, commit)
    experiment = open_experiment(folder, plan(asked, against, commit))
    folder.mkdir(parents=True, exist_ok=True)
    repeats = asked.repeats
    while 2 * repeats < len(experiment.runs) and repeats < asked.most_repeats:
        repeats = more(asked, repeats)  # that a stopped bisection came to
    with checked_out(asked, commit):
        while True:
            time_one = partial(time_process, asked, (against, commit))
            experiment = measure(experiment, order(2, repeats), time_one, folder)
            result, ratios = analysed(experiment, asked.effect)
            (found,) = result.comparisons
            told = judge(found, ratios)
            if told or repeats >= asked.most_repeats:
                break
            repeats = more(asked, repeats)
            say(f"not told by {found.ci95[0]:.4f} to {found.ci95[1]:.4f}: {repeats} of each")
    reason = None if told else f"{repeats} processes of each cannot tell"
    wall_s = round(sum(run.wall_s for run in experiment.runs), 1)
    known = found.ratio, found.ci95, len(experiment.runs), wall_s, ratios
    return Visit(commit.hash, against.hash, told or "skipped", reason, *known)


def analysed(experiment: Experiment, effect: float) -> tuple[ExperimentResult, list[float]]:
    """The result of an experiment, compared over pairs of processes, and the pairs' ratios."""
    result = analyse(experiment, effect * 100)
    (found,) = result.comparisons
    _, times = process_times(experiment)
    pairs = zip(times[found.baseline], times[found.candidate], strict=False)
    ratios = [one / other for other, one in pairs]
    compared = over_pairs(found, ratios, effect)
    return dataclasses.replace(result, comparisons=[compared]), ratios


def more(asked: Asked, repeats: int) -> int:
    """Number of processes of each commit for another look: a quarter more."""
    return min(repeats + max(1, repeats // 4), asked.most_repeats)


def time_process(
    asked: Asked,
    pair: tuple[git.Commit, git.Commit],
    experiment: Experiment,
    folder: Path,
    number: int,
    value: int,
) -> tuple[ProcessRun, Conditions]:
    """Run one process of a visit in its commit's worktree. Raises as `measured` does."""
    sides = asked.words, asked.words
    try:
        place = git.same_folder(asked.root, asked.trees[pair[value].hash])
        return commands.time_command(sides, (place, place), experiment, folder, number, value)
    except (ValueError, OSError) as error:
        if value == 1:
            raise Untestable(f"it does not run: {error}") from error
        raise ValueError(f"{pair[0].short}, held against, does not run: {error}") from error


@contextmanager
def checked_out(asked: Asked, commit: git.Commit) -> Iterator[None]:
    """Have the commit in `asked.trees` within the block."""
    with ExitStack() as stack:
        if commit.hash not in asked.trees:
            place = asked.folder / "trees" / commit.short
            asked.trees[commit.hash] = stack.enter_context(git.worktree(asked.root, commit, place))
            stack.callback(asked.trees.pop, commit.hash)
        yield


def explain(asked: Asked, folder: Path, parent: git.Commit, commit: git.Commit) -> Comparison:
    """The comparison of the named commit with the one before it, with captures if asked."""
    experiment = open_experiment(folder, plan(asked, parent, commit))
    captured: list[Comparison | None] = [None]
    if asked.capture:
        with checked_out(asked, commit):
            sides = asked.words, asked.words
            one, other = (asked.trees[each.hash] for each in (parent, commit))
            where = git.same_folder(asked.root, one), git.same_folder(asked.root, other)
            make = partial(commands.capture_command, sides, where, experiment, folder)
            captured = captures.explanations(experiment, make)
    result, _ = analysed(experiment, asked.effect)
    experiment = with_result(experiment, result, captured)
    save(experiment, folder)
    return experiment.comparisons[0]
