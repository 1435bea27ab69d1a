"""Group runs: those of a group differ only in their seed, the groups of a section share their text.

Called by the dashboard. Losses compare only inside a section.
"""

import re
import shlex
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cli.keys import spell
from profiling.analysis.runs.configuration import (
    flatten,
    leading_keys,
    same_work,
)
from profiling.analysis.runs.folder import RunFolder
from profiling.analysis.statistics import (
    BETWEEN_PROCESSES,
    EQUAL_WITHIN_PERCENT,
    Answer,
    Ratio,
    answer,
    noise_of_processes,
    processes_to_tell,
    ratio_over_processes,
    ratio_over_steps,
)
from profiling.shared.artifact_names import defines_configuration
from profiling.shared.json_records import JsonObject
from profiling.shared.metric_names import ENERGY_PER_TOKEN, VAL_LOSS

CONDITIONS = {"device": "machine", "ranks": "ranks", "torch": "torch"}  # key of in_force -> name
TEXT = ("data", "text_sha256", "tokenizer", "vocab_size")  # keys of in_force that decide the loss
LONGEST_LABEL = 3  # keys in the name of a group
ENOUGH_ROWS = 5  # logged rows that a single run needs for a comparison
OPTION = re.compile(r"(--)?[A-Za-z][\w.-]*")  # name of an option in a command
MOST_STEPS = 500  # steps in an interval; more are thinned out evenly


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, each with its own seed."""

    label: str
    runs: list[RunFolder]
    settings: JsonObject  # configuration, and conditions of the machine


@dataclass(frozen=True)
class Section:
    """Groups that were trained on the same text."""

    name: str
    groups: list[Group]
    differs: list[str]  # settings that are not the same in all groups

    @property
    def runs(self) -> list[RunFolder]:
        return [run for group in self.groups for run in group.runs]

    @property
    def time_axis(self) -> str:
        """Meaning of `elapsed_s` in the columns; read_runs makes it the same for all runs."""
        return self.runs[0].time_axis

    @property
    def per_token(self) -> bool:
        """Whether tokens per second stand for step times, because steps differ in their tokens."""
        tokens = {run.tokens for run in self.runs}
        return len(tokens) > 1 and all(tokens)


@dataclass(frozen=True)
class Speed:
    """A candidate's time over a baseline's, and whether that is more than noise."""

    ratio: Ratio
    noise: float  # share by which equal runs differ
    # medians of the runs of both sides; None: the ratio is over the steps of one run a side
    medians_ms: tuple[list[float], list[float]] | None
    on_cpu: bool = False  # a run of either side was on a CPU
    equal_work: bool = False  # what differs between the sides leaves a step as it is

    @property
    def over_runs(self) -> bool:
        return self.medians_ms is not None

    @property
    def by_chance(self) -> bool:
        """Whether it compares single runs on a CPU, where starts of a program differ by chance."""
        return self.on_cpu and not self.over_runs

    @property
    def answer(self) -> Answer:
        outcome = answer(self.ratio, self.noise, EQUAL_WITHIN_PERCENT / 100)
        unsure = self.by_chance or (self.equal_work and outcome != "equal")
        return "cannot_tell" if unsure else outcome

    def runs_to_tell(self) -> int | None:
        """Approximate number of runs a side that would give an answer; None: not known."""
        if self.medians_ms is None:
            return None
        return processes_to_tell(*self.medians_ms, EQUAL_WITHIN_PERCENT / 100)


@dataclass(frozen=True)
class Spread:
    """A metric of a group: mean, least and greatest of its runs at the same iterations."""

    iteration: np.ndarray
    elapsed_s: np.ndarray  # mean of the runs
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def sections_of(runs: list[RunFolder]) -> list[Section]:
    """The sections in the order of their first runs."""
    return [section_of(runs_of_text) for runs_of_text in gather(runs, text_of).values()]


def gather(
    runs: list[RunFolder], key: Callable[[RunFolder], tuple[object, ...]]
) -> dict[tuple[object, ...], list[RunFolder]]:
    groups: dict[tuple[object, ...], list[RunFolder]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def text_of(run: RunFolder) -> tuple[object, ...]:
    return (
        run.config.get("dataset"),
        *(run.in_force.get(key) for key in TEXT),
        run.command and program_name(run.command),
    )


def program_name(command: str) -> str:
    """The program in a command: its first file of Python, or the module behind -m, or its first
    word."""
    words = shlex.split(command)
    files = [word for word in words if word.endswith(".py")]
    modules = [name for flag, name in pairwise(words) if flag == "-m"]
    return [*files, *modules, *words][0]


def section_of(runs: list[RunFolder]) -> Section:
    settings_of_run = {run.folder: settings_of(run) for run in runs}
    keys = dict.fromkeys(key for known in settings_of_run.values() for key in known)
    spelled = {
        run.folder: tuple(spell(settings_of_run[run.folder].get(key)) for key in keys)
        for run in runs
    }
    grouped = list(gather(runs, lambda run: spelled[run.folder]).values())
    settings = [settings_of_run[group[0].folder] for group in grouped]
    differs = [key for key in keys if len({spell(known.get(key)) for known in settings}) > 1]
    labels = distinct_labels(labels_of(settings, leading_keys(differs)), settings, differs)
    groups = [Group(*row) for row in zip(labels, grouped, settings, strict=True)]
    dataset, data, *_, program = text_of(runs[0])
    name = str(dataset) if data in (None, dataset) else f"{dataset} ({data})"
    name = str(program or name)
    return Section(name, groups, differs)


def settings_of(run: RunFolder) -> JsonObject:
    """All keys that define a run, and the machine that it ran on."""
    config = {
        key: value for key, value in flatten(run.config).items() if defines_configuration(key)
    }
    if run.command:
        config = split_command(run.command)
    if config.get("attention") == "auto" and run.in_force.get("attention"):
        config["attention"] = run.in_force["attention"]
    conditions = {name: run.in_force.get(key) for key, name in CONDITIONS.items()}
    return config | conditions


def labels_of(settings: list[JsonObject], telling: list[str]) -> list[str]:
    """Labels of groups: flash; dropout=0.1; or attention=flash, compile=true.

    `telling` are the keys that differ. After the first one, a value that most groups have is left
    out if the labels stay different.
    """
    if not telling:
        return [str(known.get("command") or known.get("attention")) for known in settings]
    first, *others = telling[:LONGEST_LABEL]
    values = [known.get(first) for known in settings]
    if len(telling) == 1 and all(isinstance(value, str) for value in values):
        return list(map(str, values))
    usual = {key: usual_value(known.get(key) for known in settings) for key in others}
    short = [
        label(known, [first, *(key for key in others if spell(known.get(key)) != usual[key])])
        for known in settings
    ]
    full = [label(known, [first, *others]) for known in settings]
    return short if len(set(short)) == len(set(full)) else full


def usual_value(values: Iterable[object]) -> str | None:
    """The spelling of the value that more than half have, or None."""
    spelled = list(map(spell, values))
    most = max(spelled, key=spelled.count)
    return most if 2 * spelled.count(most) > len(spelled) else None


def label(settings: JsonObject, keys: list[str]) -> str:
    return ", ".join(f"{key}={spell(settings.get(key))}" for key in keys)


def distinct_labels(labels: list[str], settings: list[JsonObject], differs: list[str]) -> list[str]:
    """The labels; those that several groups share get the keys in which these groups differ."""
    sharing: dict[str, list[int]] = {}
    for number, label_of_group in enumerate(labels):
        sharing.setdefault(label_of_group, []).append(number)
    longer = list(labels)
    for groups in sharing.values():
        for key in differs:
            if len({longer[number] for number in groups}) == len(groups):
                break
            if len({spell(settings[number].get(key)) for number in groups}) > 1:
                for number in groups:
                    longer[number] += f", {label(settings[number], [key])}"
    return longer


def split_command(command: str) -> JsonObject:
    """The options of a command with their values, and its other words under "command".

    An option is --lr=1, --lr 1 or lr=1; one without a value is true. A seed is left out, as it is
    of the keys of a configuration.
    """
    options: JsonObject = {}
    rest, left = [], deque(shlex.split(command))
    while left:
        word = left.popleft()
        name, equals, value = word.partition("=")
        if not OPTION.fullmatch(name) or not (equals or name.startswith("--")):
            rest.append(word)
        elif equals:
            options[name] = value
        else:
            has_value = left and not left[0].startswith("--") and "=" not in left[0]
            options[name] = left.popleft() if has_value else True
    known = {name: value for name, value in options.items() if name.strip("-") != "seed"}
    return {"command": shlex.join(rest), **known}


def spread_of(runs: list[RunFolder], name: str) -> Spread | None:
    """A metric's spread over the iterations that all runs reached; None where no run has it."""
    columns = [run.columns[name] for run in runs if name in run.columns]
    if not columns:
        return None
    grid = columns[0].iteration
    if any(not np.array_equal(grid, column.iteration) for column in columns):
        grid = np.unique(np.concatenate([column.iteration for column in columns]))
        first = max(column.iteration[0] for column in columns)
        last = min(column.iteration[-1] for column in columns)
        shared = grid[(grid >= first) & (grid <= last)]
        grid = shared if len(shared) else columns[0].iteration
    values = np.stack([np.interp(grid, c.iteration, c.value) for c in columns])
    elapsed_s = np.stack([np.interp(grid, c.iteration, c.elapsed_s) for c in columns])
    return Spread(
        grid, elapsed_s.mean(axis=0), values.mean(axis=0), values.min(axis=0), values.max(axis=0)
    )


def best_loss(run: RunFolder) -> float | None:
    column = run.columns.get(VAL_LOSS.name)
    return float(column.value.min()) if column else None


def loss_that_all_reach(runs: list[RunFolder]) -> float | None:
    """The lowest validation loss that every run reached, rounded up to two decimals, or None."""
    best = [loss for run in runs if (loss := best_loss(run)) is not None]
    return float(np.ceil(max(best) * 100) / 100) if best else None


def time_to_loss(run: RunFolder, losses: np.ndarray) -> np.ndarray:
    """Seconds until the validation loss first was at most each of `losses`, NaN for never.

    Between two evaluations the loss is assumed to fall linearly.
    """
    column = run.columns.get(VAL_LOSS.name)
    if column is None:
        return np.full(len(losses), np.nan)
    value, elapsed_s = column.value, column.elapsed_s
    first = np.searchsorted(-np.minimum.accumulate(value), -losses)  # evaluation at or below
    reached = first < len(value)
    first = np.minimum(first, len(value) - 1)
    before = np.maximum(first - 1, 0)
    fall = np.where(before < first, value[before] - value[first], 1.0)
    share = np.where(before < first, (value[before] - losses) / np.where(fall, fall, 1.0), 0.0)
    seconds = elapsed_s[before] + share * (elapsed_s[first] - elapsed_s[before])
    return np.where(reached, seconds, np.nan)


def compare_speed(section: Section, baseline: Group, candidate: Group) -> Speed | None:
    """Time a step of candidate over baseline, or time a token if steps differ in their work.

    The ratio is over runs where both groups have two, else over the steps of one run each. None
    with too few steps.
    """
    sides = [
        [run.step_ms * time_scale(run, section) for run in group.runs if len(run.step_ms) > 1]
        for group in (baseline, candidate)
    ]
    on_cpu = any(run.on_cpu for group in (baseline, candidate) for run in group.runs)
    equal = equal_work(baseline, candidate)
    if min(map(len, sides)) >= 2:
        one, other = ([float(np.median(values)) for values in side] for side in sides)
        ratio, noise = ratio_over_processes(one, other), noise_of_processes(one, other)
        return Speed(ratio, noise, (one, other), on_cpu, equal)
    if not all(sides) or min(len(side[0]) for side in sides) < ENOUGH_ROWS:
        return None
    first, second = (side[0][:: max(1, len(side[0]) // MOST_STEPS)] for side in sides)
    ratio_of_two = ratio_over_steps(first, second)
    if ratio_of_two is None:
        return None
    return Speed(ratio_of_two, BETWEEN_PROCESSES, None, on_cpu, equal)


def equal_work(baseline: Group, candidate: Group) -> bool:
    """Whether all that differs leaves the work of a step, and the machine, as they are."""
    one, other = baseline.settings, candidate.settings
    return all(same_work(key, one.get(key), other.get(key)) for key in one | other)


def time_scale(run: RunFolder, section: Section) -> float:
    """The factor that makes times of `run` comparable: 1, or one over its tokens an iteration."""
    return 1.0 / run.tokens if section.per_token and run.tokens else 1.0


def typical_ms(group: Group) -> float | None:
    """Median over the runs of their median step time in ms, or None without steps."""
    medians = [float(np.median(run.step_ms)) for run in group.runs if len(run.step_ms)]
    return float(np.median(medians)) if medians else None


def tokens_per_s(group: Group) -> float | None:
    """Tokens per second at the typical step time, or None where either is not known."""
    ms, tokens = typical_ms(group), group.runs[0].tokens
    return 1e3 * tokens / ms if ms and tokens else None


def losses_of(group: Group) -> list[float]:
    return [loss for run in group.runs if (loss := best_loss(run)) is not None]


def seconds_to_loss(group: Group, loss: float) -> float | None:
    """Mean time in s in which the runs reached the loss; None where one of them never did."""
    seconds = [float(time_to_loss(run, np.array([loss]))[0]) for run in group.runs]
    return None if np.isnan(seconds).any() else float(np.mean(seconds))


def mean_over_runs(
    group: Group, name: str, reduce: Callable[[np.ndarray], float] = np.median
) -> float | None:
    """A metric reduced over the rows of each run, then averaged over the runs; None without it."""
    values = [float(reduce(run.columns[name].value)) for run in group.runs if name in run.columns]
    return float(np.mean(values)) if values else None


def energy_per_token(group: Group) -> float | None:
    """Mean energy of the runs in J a token while training, or None.

    That of a run is of the whole run once it has ended, else the median of its rows.
    """
    values = []
    for run in group.runs:
        whole = (run.summary or {}).get(ENERGY_PER_TOKEN.name)
        if whole is None and ENERGY_PER_TOKEN.name in run.columns:
            whole = float(np.median(run.columns[ENERGY_PER_TOKEN.name].value))
        if whole is not None:
            values.append(whole)
    return float(np.mean(values)) if values else None
