"""Time of a step without a GPU in which the model does not compute, by class. Called by cpu.

The names of phases tell what they are for. Time without an operator is `cpu` between the phases and
in the phase `other`, however short: Python between many small operators has no long pause. More
than LONG_NS of it (as where a GPU waits, gpu_time.host_activity) is `communication` where the ranks
exchange data, in any other phase.
"""

import re
from dataclasses import dataclass
from functools import reduce

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import Intervals, distinct, name_mask, union
from profiling.analysis.gpu_time.host_activity import DATA_PHASES, NOTHING, long_pauses
from profiling.analysis.steps.operators import BACKWARD, LOADER, rows_with_prefix

# class, one of causes.VERDICTS -> words in the name of a phase, in lower case; the first match
# counts: an evaluation's own loader belongs to it
WORDS = {
    "checkpoint": re.compile(r"checkpoint|save_(model|state)|torch\.save"),
    "evaluation": re.compile(r"(?<![a-z])(eval|valid|val(?![a-z])|test(?![a-z]))"),
    "data": re.compile(
        rf"^({'|'.join(DATA_PHASES)})$|^{LOADER.pattern.lower()}|"
        r"data_?loader|(?<![a-z])(get|next|load|fetch)\w*_batch"
    ),
    "logging": re.compile(r"(?<![a-z])(log(s|ging|ger)?(?!_?softmax|[a-z])|metrics?|wandb|print)"),
}
TRAINING = re.compile(r"(?<![a-z])(train|backward|optimi[sz])")
OTHER = "other"
# operators that hand it over, and ranges of gloo's threads that end when all ranks have sent
COLLECTIVE = re.compile(r"c10d::|gloo:")


@dataclass(frozen=True)
class HostTimes:
    """Times of a run without a GPU; `host_times` works them out once for all that describes it."""

    operators: Intervals  # one computes
    pauses: Intervals  # long, without an operator or a collective on any thread
    by_class: dict[str, Intervals]
    steps: int

    @property
    def waiting_ms(self) -> dict[str, float]:
        """Milliseconds a step of each class that occurs, the longest first."""
        ns = {name: times.total_ns() for name, times in self.by_class.items()}
        ranked = sorted(ns.items(), key=lambda item: -item[1])
        return {name: total / 1e6 / self.steps for name, total in ranked if total}


def host_times(analysis: Analysis) -> HostTimes:
    begin, end = analysis.begin_ns, analysis.end_ns
    computing, shared = operators(analysis), collectives(analysis)
    busy = computing.union(shared)
    pauses = long_pauses(busy, begin, end)
    exchanges = shared.intersection(long_pauses(computing, begin, end), begin, end)
    by_class = times_by_class(analysis, busy.gaps(begin, end), exchanges)
    return HostTimes(computing.clip(begin, end), pauses, by_class, analysis.step_count)


def times_by_class(
    analysis: Analysis, quiet: Intervals, exchanges: Intervals
) -> dict[str, Intervals]:
    """Class -> its times, from those in which no operator runs, however short.

    `exchanges` are long ones of collectives without an operator.
    """
    phases, names = analysis.steps.phases, analysis.trace.names
    begin, end = analysis.begin_ns, analysis.end_ns
    class_of = {number: class_of_phase(names[number]) for number in set(phases.name.tolist())}
    times = {}
    for name in WORDS:
        rows = np.isin(phases.name, [number for number, named in class_of.items() if named == name])
        times[name] = union(phases.start_ns[rows], phases.end_ns[rows]).clip(begin, end)
    evaluated = times["evaluation"] = whole_evaluations(analysis, times["evaluation"], class_of)
    outside = evaluated.gaps(begin, end)
    if trains(analysis):
        times["data"] = times["data"].intersection(outside, begin, end)
    else:  # an evaluation by itself
        del times["evaluation"]
    elsewhere = reduce(Intervals.union, times.values()).gaps(begin, end)
    times["communication"] = exchanges.intersection(elsewhere, begin, end)
    # XLA's events on a CPU do not cover all that it computes
    if len(phases.name) and analysis.trace.kind != "jax":
        known = phases.rows(phases.name != (names.index(OTHER) if OTHER in names else -1))
        elsewhere = union(known.start_ns, known.end_ns).gaps(begin, end)
        if "evaluation" in times:
            elsewhere = elsewhere.intersection(outside, begin, end)
        times["cpu"] = quiet.intersection(elsewhere, begin, end)
    return times


def whole_evaluations(
    analysis: Analysis, passes: Intervals, class_of: dict[int, str | None]
) -> Intervals:
    """The passes of an evaluation, joined where nothing is trained between two of them.

    So an evaluation's own loader and metrics belong to it.
    """
    phases, names = analysis.steps.phases, analysis.trace.names
    computing = [n for n, named in class_of.items() if named is None and names[n] != OTHER]
    trained = np.sort(phases.start_ns[np.isin(phases.name, computing)])
    first = np.unique(np.searchsorted(trained, passes.start_ns), return_index=True)[1]
    last = np.append(first[1:], len(passes.start_ns)) - 1
    return Intervals(passes.start_ns[first], passes.end_ns[last[: len(first)]])


def class_of_phase(name: str) -> str | None:
    """The class of a phase by its name, or None for one that computes."""
    plain = name.lower()
    return next((each for each, words in WORDS.items() if words.search(plain)), None)


def trains(analysis: Analysis) -> bool:
    """Whether the steps hold more than an evaluation."""
    trace, steps = analysis.trace, analysis.steps
    table = trace.operators
    if table is not None and len(rows_with_prefix(trace, table, BACKWARD, steps.process)):
        return True
    return any(TRAINING.search(trace.names[n].lower()) for n in set(steps.phases.name.tolist()))


def operators(analysis: Analysis) -> Intervals:
    """The times in which an operator computes on a thread; all time where none were recorded.

    A collective that an operator of autograd starts, as in DDP, is no part of it.
    """
    trace, table = analysis.trace, analysis.trace.operators
    begin, end, times = analysis.begin_ns, analysis.end_ns, NOTHING
    if table is None:
        return Intervals(np.array([begin]), np.array([end]))
    mine = table.rows(table.process == analysis.steps.process)
    for thread in distinct(mine.thread):
        own = mine.rows(mine.thread == thread)
        shared = own.rows(name_mask(trace.names, own.name, COLLECTIVE.match))
        outside = union(shared.start_ns, shared.end_ns).gaps(begin, end)
        times = times.union(union(own.start_ns, own.end_ns).intersection(outside, begin, end))
    return times


def collectives(analysis: Analysis) -> Intervals:
    trace, times = analysis.trace, NOTHING
    for table in (trace.operators, trace.ranges):
        if table is not None:
            rows = name_mask(trace.names, table.name, COLLECTIVE.match)
            rows &= table.process == analysis.steps.process
            times = times.union(union(table.start_ns[rows], table.end_ns[rows]))
    return times
