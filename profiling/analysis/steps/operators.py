"""Find steps and phases in a Kineto capture that has no ranges for them. Called by find.

A step ends where an optimizer's step ends. Its phases:

- backward lasts from its first autograd operator to the last
- forward is the time before it, back to the loader's last batch before the last matrix product
- optimizer is the time from backward to the end of the optimizer's own ranges (clipping included),
  or to the end of the step where it has none
- data is the time inside the loader's ranges, wherever they are, and between the draw of its seed
  and its first batch, in which its workers start
- evaluation is what comes before or after these and multiplies matrices: a forward pass that no
  backward follows, with the loader's time between its batches
- checkpoint is the time in which no operator runs, right behind a run of aten::detach: state_dict
  detaches every tensor of a model, and a file is what it is mostly for
- other is the rest: metrics, logging, files
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profiling.analysis.columns import Intervals, are_outermost, name_mask, union
from profiling.analysis.steps.steps import StepRanges, Steps
from profiling.timeline.trace import ANY_THREAD, Calls, Ranges, Trace

BACKWARD = "autograd::engine::evaluate_function"
OPTIMIZER = "Optimizer.step#"
OF_OPTIMIZER = "Optimizer."  # zero_grad too
LOADER = re.compile(r"enumerate\((DataLoader|\w*DataPipe)\).*")  # PyTorch's range around `next`
PRODUCTS = re.compile(r"aten::(addmm|mm|bmm|baddbmm|_?convolution|_scaled_dot_product_\w+)")
SEED = "aten::random_"  # a DataLoader's, drawn for each pass over it
FIRST, LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max  # before and after all times
DETACH = ("aten::detach", "detach")  # the second is inside the first
FEWEST_DETACHED = 4  # a few are values for a log
PHASES = ("forward", "backward", "optimizer", "data", "evaluation", "checkpoint", "other")
Span = tuple[int, int, str]  # begin and end in ns, one of PHASES


@dataclass(frozen=True)
class Host:
    """Operators and ranges of the steps' process that tell its phases, sorted by start."""

    backward: Ranges
    products: Ranges
    updates: Ranges  # ranges of the optimizer
    loading: Intervals
    saving: Intervals


def optimizer_steps(trace: Trace, process: int | None, device: int | None) -> Steps | None:
    """Steps that end with the optimizer's steps, or None where the capture has none of those."""
    operators = trace.operators
    if operators is None:
        return None
    for table in (trace.ranges, operators):
        if table is not None and len(rows := rows_with_prefix(trace, table, OPTIMIZER, process)):
            thread, name = int(table.thread[rows[0]]), OPTIMIZER.rstrip("#")
            of_process = operators.process == process
            first = operators.start_ns[of_process].min(initial=table.start_ns[rows[0]])
            ends = table.end_ns[rows]
            starts = np.concatenate(([first], ends[:-1])).astype(np.int64)
            return Steps(process, device, thread, name, None, starts, ends)
    return None


def rows_with_prefix(trace: Trace, table: Ranges, prefix: str, process: int | None) -> np.ndarray:
    wanted = name_mask(trace.names, table.name, lambda name: name.startswith(prefix))
    return np.flatnonzero(wanted & (table.process == process))


def operator_phases(trace: Trace, steps: Steps) -> StepRanges | None:
    """The phases of the steps, or None without autograd's operators.

    Appends the phases' names to `trace.names`.
    """
    host = host_of(trace, steps)
    if host is None:
        return None
    number = {name: name_index(trace, name) for name in PHASES}
    thread = ANY_THREAD if steps.thread is None else steps.thread
    spans = [
        (begin, end, number[name], thread, 0)
        for step in zip(steps.start_ns.tolist(), steps.end_ns.tolist(), strict=True)
        for begin, end, name in sorted(spans_of_step(*step, host))
        if end > begin
    ]
    return StepRanges(*np.array(spans, np.int64).reshape(-1, 5).T)


def host_of(trace: Trace, steps: Steps) -> Host | None:
    table = trace.operators
    if table is None or not len(rows := rows_with_prefix(trace, table, BACKWARD, steps.process)):
        return None
    own = table.rows(table.thread == steps.thread)
    updates = [
        each.rows(rows_with_prefix(trace, each, OF_OPTIMIZER, steps.process))
        for each in (trace.ranges, table)
        if each is not None
    ]
    return Host(
        table.rows(rows),
        own.rows(name_mask(trace.names, own.name, PRODUCTS.fullmatch)),
        max(updates, key=lambda each: len(each.name)),
        loading_times(trace, steps),
        saving_times(trace, own),
    )


def loading_times(trace: Trace, steps: Steps) -> Intervals:
    """The times at which the steps' thread was in PyTorch's DataLoader, or started it."""
    ranges = trace.ranges or Ranges.empty()
    mine = (ranges.process == steps.process) & (ranges.thread == steps.thread)
    loading = ranges.rows(mine & name_mask(trace.names, ranges.name, LOADER.fullmatch))
    inside = union(loading.start_ns, loading.end_ns)
    if trace.operators is None or trace.calls is None:  # on a CPU other work looks the same
        return inside
    return inside.union(loader_starts(steps, trace.names, trace.operators, trace.calls, inside))


def loader_starts(
    steps: Steps, names: list[str], operators: Ranges, calls: Calls, inside: Intervals
) -> Intervals:
    """The times from the draw of a DataLoader's seed to the first of its ranges `inside`.

    It draws the seed when it is iterated over, then starts its workers. There is no call of CUDA
    until it is asked for a batch.
    """
    own = operators.rows(operators.thread == steps.thread)
    seeds = name_mask(names, own.name, SEED.__eq__) & are_outermost(own.start_ns, own.end_ns)
    other_ns = np.append(calls.end_ns[calls.thread == steps.thread], inside.end_ns)
    other_ns = np.sort(np.append(other_ns, FIRST))
    before_ns = other_ns[np.searchsorted(other_ns, inside.start_ns, side="right") - 1]
    seed_ns = np.append(own.start_ns[seeds], LAST)
    drawn_ns = seed_ns[np.searchsorted(seed_ns, before_ns)]
    drawn = drawn_ns < inside.start_ns
    return Intervals(drawn_ns[drawn], inside.start_ns[drawn])


def saving_times(trace: Trace, own: Ranges) -> Intervals:
    """The times without an operator that follow a run of aten::detach, with the run itself.

    `own` are the operators of one thread.
    """
    detach = name_mask(trace.names, own.name, DETACH.__contains__)
    run = np.flatnonzero(np.diff(detach.astype(np.int8), prepend=0, append=0))
    first, behind = run[::2], run[1::2]
    outer = name_mask(trace.names, own.name, DETACH[0].__eq__)
    until = np.concatenate(([0], np.cumsum(outer)))
    long = until[behind] - until[first] >= FEWEST_DETACHED
    next_ns = np.append(own.start_ns, LAST)  # nothing follows the last operator
    return union(own.start_ns[first[long]], next_ns[behind[long]])


def spans_of_step(start: int, end: int, host: Host) -> Iterator[Span]:
    """Yield the phases of the step from `start` to `end`; none without a backward."""
    backward = inside(host.backward, start, end)
    if not len(backward.name):
        return
    first, last = int(backward.start_ns.min()), min(int(backward.end_ns.max()), end)
    updates = inside(host.updates, last, end)
    updated = min(int(updates.end_ns.max(initial=-1)), end) if len(updates.name) else end
    products = inside(host.products, start, first).start_ns
    needed = products[-1] if len(products) else first
    loaded = host.loading.end_ns[(host.loading.end_ns > start) & (host.loading.end_ns <= needed)]
    forward = int(loaded[-1]) if len(loaded) else start
    for begin, stop, name in (
        (forward, first, "forward"),
        (first, last, "backward"),
        (last, updated, "optimizer"),
        *around(start, forward, host),
        *around(updated, end, host),
    ):
        if name == "evaluation":
            yield begin, stop, name
            continue
        yield from pieces(host.loading, begin, stop, "data")
        yield from pieces(host.loading.gaps(begin, stop), begin, stop, name)


def around(begin: int, end: int, host: Host) -> Iterator[Span]:
    """Yield the phases of a time before forward or after the optimizer."""
    products = inside(host.products, begin, end)
    evaluated = min(int(products.end_ns.max(initial=begin)), end)
    yield begin, evaluated, "evaluation"
    yield from pieces(host.saving, evaluated, end, "checkpoint")
    yield from pieces(host.saving.gaps(evaluated, end), evaluated, end, "other")


def pieces(times: Intervals, begin: int, end: int, name: str) -> Iterator[Span]:
    """Yield the parts of [begin, end) that are in `times`."""
    part = times.clip(begin, end)
    for start_ns, end_ns in zip(part.start_ns.tolist(), part.end_ns.tolist(), strict=True):
        yield start_ns, end_ns, name


def inside(ranges: Ranges, begin: int, end: int) -> Ranges:
    """The ranges that begin in [begin, end)."""
    first, behind = np.searchsorted(ranges.start_ns, (begin, end))
    return ranges.rows(np.arange(first, behind))


def name_index(trace: Trace, name: str) -> int:
    if name not in trace.names:
        trace.names.append(name)
    return trace.names.index(name)
