"""Sum up the kernels of the steps by the line that made them. Called by summary.

What a CUDA graph replays has no line, as that of the replay says nothing, unless inductor has told
it. Without a GPU it is the time of PyTorch's operators, each without those inside it.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import name_mask
from profiling.analysis.gpu_time.launch_lines import COMPILED, SOURCES
from profiling.analysis.gpu_time.launch_places import launch_places
from profiling.analysis.gpu_time.losses import GRAPH_LAUNCH
from profiling.analysis.gpu_work.sums import operators_of_steps
from profiling.analysis.source.source_files import Place
from profiling.analysis.sum_records import Lines, LineSource, LineSum


@dataclass(frozen=True)
class Work:
    """Work of the steps: kernels, or operators where there is no GPU."""

    kind: Literal["kernels", "operators"]
    name: np.ndarray
    call: np.ndarray  # row in Trace.calls, -1: none
    took_ns: np.ndarray
    launch_ns: np.ndarray
    thread: np.ndarray
    process: np.ndarray
    replayed: np.ndarray  # mask of what a CUDA graph launched


@dataclass
class Sum:
    """Time of what one line made, while it is being summed up."""

    count: int = 0
    source_ns: dict[LineSource, int] = field(default_factory=lambda: defaultdict(int))
    name_ns: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def lines(analysis: Analysis) -> Lines | None:
    """The lines of the program, those that take the most time first; None without stacks."""
    if not analysis.has_stacks or (work := work_of(analysis)) is None:
        return None
    launched = work.name, work.call, work.launch_ns, work.thread, work.process
    trace, found = analysis.trace, launch_places(analysis, *launched)
    replayed = work.replayed & (found.source != COMPILED)
    has = (found.place >= 0) & ~replayed
    keys = np.stack((found.place[has], found.source[has], work.name[has])).astype(np.int64)
    distinct, which, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    took_ns = np.zeros(len(counts), np.int64)
    np.add.at(took_ns, which.reshape(-1), work.took_ns[has])
    sums = [Sum() for _ in found.places]
    for at, source, what, count, ns in zip(
        *distinct.tolist(), counts.tolist(), took_ns.tolist(), strict=True
    ):
        sums[at].count += count
        sums[at].source_ns[SOURCES[source]] += ns
        sums[at].name_ns[trace.names[what]] += ns
    whole_ns, with_line_ns, steps = int(work.took_ns.sum()), int(took_ns.sum()), analysis.step_count
    pairs = zip(found.places, sums, strict=True)
    rows = [line_sum(place, each, whole_ns, steps) for place, each in pairs if each.count]
    return Lines(
        of=work.kind,
        total_ns=whole_ns,
        with_line_ns=with_line_ns,
        replayed_ns=int(work.took_ns[replayed].sum()),
        percent=100 * with_line_ns / whole_ns if whole_ns else None,
        lines=sorted(rows, key=lambda row: (-row.total_ns, row.place)),
    )


def line_sum(place: Place, each: Sum, whole_ns: int, steps: int) -> LineSum:
    total_ns = sum(each.source_ns.values())
    return LineSum(
        place=place.text,
        function=place.function,
        exact=place.exact,
        also=list(place.also),
        count=each.count,
        total_ns=total_ns,
        ms=total_ns / 1e6 / steps,
        percent=100 * total_ns / whole_ns if whole_ns else 0.0,
        found_ms={source: ns / 1e6 / steps for source, ns in each.source_ns.items()},
        longest=max(each.name_ns, key=lambda what: each.name_ns[what]),
    )


def work_of(analysis: Analysis) -> Work | None:
    """The kernels of the steps, or the operators of a run without a GPU; None without either."""
    owned = analysis.owned
    if owned is not None:
        ran, call = owned.kernels_and_graphs, owned.call[owned.kernels_and_graphs]
        trace, process = analysis.trace, np.full(len(call), -1)
        replayed = np.zeros(len(call), bool)
        if (calls := trace.calls) is not None:
            process[call >= 0] = calls.process[call[call >= 0]]
            launches = name_mask(trace.names, calls.name, GRAPH_LAUNCH.fullmatch)
            replayed[call >= 0] = launches[call[call >= 0]]
        return Work(
            "kernels",
            owned.name[ran],
            call,
            owned.duration_ns[ran],
            owned.launch_ns[ran],
            owned.thread[ran],
            process,
            replayed,
        )
    if (found := operators_of_steps(analysis)) is None:
        return None
    table, self_ns = found
    none, no_call = np.zeros(len(table.name), bool), np.full(len(table.name), -1)
    by = table.start_ns, table.thread, table.process
    return Work("operators", table.name, no_call, self_ns, *by, none)
