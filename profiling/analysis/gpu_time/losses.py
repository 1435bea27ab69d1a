"""Count the kernels that were launched but are not in the capture. Called by analysis.

The tool loses records where a buffer is full or a file is cut off. These launches have no kernel
and lost none:

- launches that failed, and launches while a CUDA graph was captured, which are recorded, not run;
- launches of a CUDA graph without kernels. Launches of other graphs are counted by node, where the
  tool records nodes: a launch runs the nodes that other launches of its graph run;
- at the end of the capture, launches after the last one that has a kernel, if one kernel that still
  ran when the capture ended explains them.

Where the launches are lost, too, only the tool's own count of events tells.
"""

import re
from dataclasses import dataclass

import numpy as np

from profiling.analysis.columns import (
    are_outermost,
    concatenate_columns,
    distinct,
    is_one_of,
    name_mask,
)
from profiling.timeline.trace import (
    COPY,
    KERNEL,
    MEMSET,
    Calls,
    EventCounts,
    Operations,
    Trace,
)

SUFFIX = r"(_ptsz|_spt)?(_v\d+)?"
LAUNCH = re.compile(
    r"(cudaLaunch(Cooperative)?Kernel(ExC|MultiDevice)?|cuLaunch(Cooperative)?Kernel(Ex)?|"
    rf"hip(Ext)?(Module)?Launch(Cooperative)?Kernel(ExC)?){SUFFIX}"
)
GRAPH_LAUNCH = re.compile(rf"(cuda|cu|hip)GraphLaunch{SUFFIX}")
BEGIN_CAPTURE = re.compile(rf"(cuda|cu|hip)StreamBeginCapture(ToGraph|_v2)?{SUFFIX}")
END_CAPTURE = re.compile(rf"(cuda|cu|hip)StreamEndCapture{SUFFIX}")
LATENCY_NS = 100_000  # a kernel begins within this time after its launch or the kernel before it
FOREVER_NS = 1 << 62
WARNED, REFUSED = 0.01, 0.05  # shares of lost kernels above which to warn, or to give no verdict
# of the events that the tool counted: 25 whole captures hold 91 % and more, as some kinds are not
# exported, and one whose events nsys could not process holds 23 %
WHOLE = 0.75


@dataclass(frozen=True)
class Losses:
    """Lost kernels of one process; `kernels` is the number that its launches should have run."""

    kernels: int
    lost: int
    captured: bool = True  # False: the capture holds no kernel at all, so how many is not known
    events: EventCounts | None = None  # where the tool kept so few that kernels must be missing

    @property
    def share(self) -> float | None:
        """Share of the kernels that were lost, 0 to 1, or None where it is not known."""
        known = self.kernels and self.captured and self.events is None
        return self.lost / self.kernels if known else None

    @property
    def is_worth_a_warning(self) -> bool:
        return self.share is None or self.share > WARNED

    @property
    def allows_no_verdict(self) -> bool:
        """Whether so many are lost that the figures no longer describe this program."""
        return self.share is None or self.share > REFUSED

    @property
    def sentence(self) -> str:
        if self.events is not None:
            recorded, kept = self.events.recorded, self.events.kept
            return f"the capture holds only {kept:,} of {recorded:,} recorded events"
        if not self.captured:
            return f"the capture has no kernel for any of its {self.kernels:,} launches"
        return (
            f"{self.lost:,} of {self.kernels:,} launched kernels are not in the capture "
            f"({100 * (self.share or 0.0):.1f} %)"
        )


def losses_of(trace: Trace, process: int | None) -> Losses | None:
    """The losses of a process, or None where nothing tells what was launched."""
    losses, events = kernel_losses(trace, process), trace.events
    if events is None or events.kept >= WHOLE * events.recorded:
        return losses
    return Losses(losses.kernels if losses else 0, 0, events=events)


def kernel_losses(trace: Trace, process: int | None) -> Losses | None:
    """The launches without kernels; None where no call that launches a kernel was captured."""
    calls, operations = trace.calls, trace.operations
    if calls is None or operations is None:
        return None
    own = operations.process == process
    kernels = np.flatnonzero(own & (operations.kind == KERNEL) & (operations.call >= 0))
    has = np.zeros(len(calls.name), bool)
    has[operations.call[kernels]] = True
    launches = running_launches(trace.names, calls, process, has)
    group, first = groups_of_nested(calls, launches)
    has_kernel = np.zeros(len(first), bool)
    has_kernel[group[has[launches]]] = True
    if not len(kernels):
        others = own & is_one_of(operations.kind, (COPY, MEMSET))
        return (
            Losses(len(has_kernel), 0, captured=False) if len(has_kernel) and others.any() else None
        )
    end_ns = capture_end_ns(trace, operations, own)
    pending = ~has_kernel & cut_off_mask(calls, first, has_kernel, *end_ns)
    graphs = graph_launches(trace, calls, process)
    graphs = graphs[~cut_off_mask(calls, graphs, has[graphs], *end_ns)]
    of_graphs, of_graphs_ran = graph_kernels(operations, kernels, graphs)
    expected = int(np.count_nonzero(~pending)) + of_graphs
    lost = int(np.count_nonzero(~has_kernel & ~pending)) + of_graphs - of_graphs_ran
    return Losses(expected, lost) if expected else None


def running_launches(
    names: list[str], calls: Calls, process: int | None, has: np.ndarray
) -> np.ndarray:
    """Rows of the process's launches that succeeded and were not recorded into a CUDA graph.

    `has` is (calls,): whether each call has a kernel.
    """
    of_process = calls.process == process
    launches = of_process & ~calls.failed & name_mask(names, calls.name, LAUNCH.fullmatch)
    rows = np.flatnonzero(launches)
    begins_ns = calls.start_ns[of_process & name_mask(names, calls.name, BEGIN_CAPTURE.fullmatch)]
    ends_ns = np.sort(
        calls.end_ns[of_process & name_mask(names, calls.name, END_CAPTURE.fullmatch)]
    )
    recorded = np.zeros(len(rows), bool)
    for begin_ns, end_ns in recordings(begins_ns, ends_ns):
        start_ns = calls.start_ns[rows]
        inside = (start_ns >= begin_ns) & (start_ns <= end_ns)
        is_whole = begin_ns > -FOREVER_NS and end_ns < FOREVER_NS
        # begin or end of a recording may have been lost, too: then launches inside have kernels
        if is_whole or not np.any(has[rows[inside]]):
            recorded |= inside & ~has[rows]
    return rows[~recorded]


def recordings(begins_ns: np.ndarray, ends_ns: np.ndarray) -> list[tuple[int, int]]:
    """(begin, end) in ns of each period in which a graph was captured.

    Both arguments are ascending. A begin or end that is missing becomes -FOREVER_NS or FOREVER_NS.
    """
    periods = [(-FOREVER_NS, int(ends_ns[0]))] if len(ends_ns) else []
    if periods and len(begins_ns) and begins_ns[0] < ends_ns[0]:
        periods = []
    end = np.append(ends_ns, FOREVER_NS)[np.searchsorted(ends_ns, begins_ns)]
    return periods + list(zip(begins_ns.tolist(), end.tolist(), strict=True))


def groups_of_nested(calls: Calls, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(a group number for each of the calls at `rows`, the row of the first call of each group).

    Calls nested in one another share a group, and one kernel.
    """
    group, firsts, count = np.zeros(len(rows), np.int64), list[np.ndarray](), 0
    for thread in distinct(calls.thread[rows]).tolist():
        mine = np.flatnonzero(calls.thread[rows] == thread)
        outermost = are_outermost(calls.start_ns[rows[mine]], calls.end_ns[rows[mine]])
        group[mine] = count + np.cumsum(outermost) - 1
        firsts.append(rows[mine[outermost]])
        count += len(firsts[-1])
    return group, concatenate_columns(firsts)


def capture_end_ns(trace: Trace, operations: Operations, own: np.ndarray) -> tuple[int, int]:
    """(end of the last of the `own` operations, time from which on a kernel may be cut off), in ns.

    A kernel that the end of the capture cut off is assumed to take no longer than the longest one.
    """
    tables = (trace.calls, operations, trace.ranges)
    end_ns = max(int(table.end_ns.max()) for table in tables if table is not None)
    took_ns = operations.end_ns - operations.start_ns
    longest_ns = int(took_ns.max(where=own & (operations.kind == KERNEL), initial=0))
    ran_ns = int(operations.end_ns.max(where=own, initial=-FOREVER_NS))
    return ran_ns, end_ns - longest_ns - LATENCY_NS


def cut_off_mask(
    calls: Calls, rows: np.ndarray, found: np.ndarray, ran_ns: int, cut_off_ns: int
) -> np.ndarray:
    """Mask of the launches at `rows` whose kernels the end of the capture may have cut off.

    `found` is a mask of those that have a kernel; `capture_end_ns` tells the times. Launches run in
    their order, so the kernel that did not end is of the last launch with a kernel or of the next
    one. It begins behind the operation that ended last, be that a long copy.
    """
    start_ns = calls.start_ns[rows]
    last_ns = int(start_ns[found].max(initial=-FOREVER_NS))
    begun_ns = np.maximum(calls.end_ns[rows], ran_ns)
    cut_off: np.ndarray = (start_ns >= last_ns) & (begun_ns >= cut_off_ns)
    return cut_off


def graph_launches(trace: Trace, calls: Calls, process: int | None) -> np.ndarray:
    """Rows of the process's calls that launched CUDA graphs and did not fail."""
    launches = name_mask(trace.names, calls.name, GRAPH_LAUNCH.fullmatch)
    return np.flatnonzero(launches & (calls.process == process) & ~calls.failed)


def graph_kernels(
    operations: Operations, kernels: np.ndarray, launched: np.ndarray
) -> tuple[int, int]:
    """(number of kernels that the launches of CUDA graphs should have run, number that ran).

    `kernels` are the rows of all kernels with a call, `launched` the calls that launch a graph.
    Graphs are recognised by their nodes: launches that share a node are of the same graph.
    """
    kernels = kernels[operations.graph_node[kernels] >= 0]
    kernels = kernels[np.isin(operations.call[kernels], launched)]
    nodes, node = np.unique(operations.graph_node[kernels], return_inverse=True)
    launches, launch = np.unique(operations.call[kernels], return_inverse=True)
    graph = np.arange(len(nodes))
    while True:
        of_launch = np.full(len(launches), len(nodes))
        np.minimum.at(of_launch, launch, graph[node])
        joined = graph.copy()
        np.minimum.at(joined, node, of_launch[launch])
        if np.array_equal(joined, graph):
            break
        graph = joined
    sizes, times = (np.bincount(each, minlength=len(nodes)) for each in (graph, of_launch))
    runs = np.sort(node * len(launches) + launch)  # np.unique hashes such keys ten times as slowly
    ran = len(runs) and 1 + int(np.count_nonzero(runs[1:] != runs[:-1]))
    graph_of = np.full(len(launched), -1)
    graph_of[np.searchsorted(launched, launches)] = of_launch
    return int(sizes @ times + sizes[lost_graphs(graph_of)].sum()), ran


def lost_graphs(graph: np.ndarray) -> np.ndarray:
    """The graphs that were most likely run by the launches without any kernel.

    `graph` is the graph of each launch in order, -1 for one without a kernel. A program repeats
    itself: the graph that elsewhere follows the same graph at the same distance is the lost one. If
    none does, the launched graph holds no kernel.
    """
    graphs = []
    ran = np.flatnonzero(graph >= 0)
    for empty in np.flatnonzero(graph < 0).tolist():
        before = ran[ran < empty]
        if not len(before):
            continue
        distance = empty - before[-1]
        alike = ran[(graph[ran] == graph[before[-1]]) & (ran + distance < len(graph))]
        followers = graph[alike + distance]
        graphs += np.bincount(followers[followers >= 0]).argsort()[-1:].tolist()
    return np.array(graphs, np.int64)
