"""The collectives that one rank ran, with kind, lane, size and algorithm. Called by reduce.

A collective is a kernel that the breakdown counts as communication, or copies from GPU to GPU that
one call launched. Where PyTorch recorded the call on the host, that call gives its kind, process
group, size and sequence number. Otherwise the kind is read from the kernel's name, the lane is the
stream, and the size is not known. The algorithm is always read from the kernel's name.

Where a host runs ahead of its GPU, collectives that were launched before the capture begins run in
it. Such a collective is `cut_off`: its kernel has no record of its launch. Its lane is that of the
later collectives on its stream, and its sequence number is counted back from theirs.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import distinct, used_names
from profiling.analysis.gpu_time.attribution import OwnedOperations, open_innermost, open_rows
from profiling.analysis.gpu_time.breakdown import COMMUNICATION
from profiling.timeline.reading import Names
from profiling.timeline.trace import COPY, CollectiveCalls, Table

# patterns of a kind in a name in lower case without underscores; the first that matches decides
KINDS = {
    "all_reduce": r"allreduce",
    "reduce_scatter": r"reducescatter",
    "all_gather": r"allgather",
    "all_to_all": r"alltoall|all2all|a2a|dispatch|combine",
    "broadcast": r"broadcast",
    "barrier": r"barrier",
    "send_recv": r"send|recv",
    "reduce": r"reduce",
}
COPIES = "copies"  # from GPU to GPU, beside kernels
NCCL = "NCCL"  # NVTX domain of its calls
OTHER = "other"  # RCCL's and NCCL's generic kernels run every kind
# all ranks leave these together, so that their ends show how the clocks differ
SIMULTANEOUS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier", OTHER)
# NCCL's algorithms: its kernels run any protocol, whatever protocol their names say
# (github.com/NVIDIA/nccl issue 2196). Then kernels that access other GPUs' memory by themselves.
ALGORITHM = re.compile(r"(RING|TREE|COLLNET\w*?|NVLS_TREE|NVLS|PAT)_(?:LL128|LL|SIMPLE)")
SYMMETRIC = re.compile(r"multimem|one_?shot|two_?shot|symk|symm_?mem", re.I)


@dataclass(frozen=True)
class Collectives:
    """Columns with a row for each collective in the steps, by start; texts index `names`."""

    names: list[str]
    start_ns: np.ndarray
    end_ns: np.ndarray
    ready_ns: np.ndarray  # end of the kernels launched before it; no later than start_ns
    step: np.ndarray  # index of the step that launched it
    kind: np.ndarray  # a name of KINDS
    lane: np.ndarray  # the process group, or the stream where the group is not known
    stream: np.ndarray  # "stream N": the N-th on which this rank communicates
    algorithm: np.ndarray
    bytes: np.ndarray  # -1: not known
    sequence: np.ndarray  # sequence number in its group; -1: not known
    cut_off: np.ndarray  # bool: it was launched before the capture began
    is_copy: np.ndarray  # bool: copies from GPU to GPU, which hold no multiprocessors

    @property
    def has_groups_or_numbers(self) -> bool:
        """Whether the host's calls give the group or sequence number of any collective."""
        return bool(np.any((self.lane != self.stream) | (self.sequence >= 0)))

    def texts(self, column: np.ndarray) -> np.ndarray:
        return np.take(np.array([*self.names, ""]), column)


@dataclass(frozen=True)
class Transfers(Table):
    """Rows of OwnedOperations that are collectives, with their times in ns and their calls."""

    row: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    ready_ns: np.ndarray
    call: np.ndarray  # row of CollectiveCalls; -1: none


def collectives_of(analysis: Analysis) -> Collectives:
    """Collect the collectives that belong to the steps of `analysis`; empty without GPU work."""
    owned, names = analysis.owned, analysis.trace.names
    if owned is None:
        return Collectives([], *(np.empty(0, np.int64) for _ in fields(Collectives)[1:]))
    of_family = analysis.family[owned.name] == COMMUNICATION
    kernels = owned.kernels_and_graphs & of_family
    # their launches tell when they could begin
    copies = (owned.kind == COPY) & of_family & (owned.call >= 0)
    cut_off = launched_before(owned)
    if cut_off.any() and outlast_window(
        owned
    ):  # which of them are in the steps says nothing of their order
        kernels &= ~cut_off
    calls = analysis.trace.collective_calls or CollectiveCalls.empty()
    single = transfers_of(owned, np.flatnonzero(kernels | copies), calls)
    is_copy = owned.kind[single.row] == COPY
    copied = single.rows(is_copy)
    copied = joined_copies(owned, copied, range_of_nccl(analysis, owned, copied.row))
    transfers = merge(single.rows(~is_copy), copied)
    is_copy = owned.kind[transfers.row] == COPY
    rows, call, texts = transfers.row, transfers.call, Texts(names)
    cut_off = cut_off[rows]
    kind = np.where(
        call >= 0,
        np.append(texts.map_names(calls.name, kind_of), -1)[call],
        texts.map_names(owned.name[rows], kind_of),
    )
    if not is_copy.all():  # the ends of kernels show better how the clocks differ
        kind = np.where(is_copy, texts.numbers_of([COPIES])[0], kind)
    stream = stream_lanes(owned.operations.stream[owned.row[rows]], is_copy, texts)
    group = np.append(groups_of(calls, texts), -1)[call]
    lane = lanes_by_stream(np.where(group >= 0, group, stream), stream, cut_off)
    return Collectives(
        start_ns=transfers.start_ns,
        end_ns=transfers.end_ns,
        ready_ns=transfers.ready_ns,
        step=owned.step[rows],
        kind=kind,
        lane=lane,
        stream=stream,
        algorithm=texts.map_names(owned.name[rows], algorithm_of),
        bytes=np.append(calls.bytes, -1)[call],
        sequence=count_back(np.append(calls.sequence, -1)[call], lane, cut_off),
        cut_off=cut_off,
        is_copy=is_copy,
        names=list(texts.numbers),
    )


def transfers_of(owned: OwnedOperations, rows: np.ndarray, calls: CollectiveCalls) -> Transfers:
    return Transfers(
        rows,
        owned.start_ns[rows],
        owned.end_ns[rows],
        ready_ns(owned, rows),
        call_of(owned, rows, calls),
    )


def range_of_nccl(analysis: Analysis, owned: OwnedOperations, rows: np.ndarray) -> np.ndarray:
    """Row of the range of NCCL's own that each of `rows` was launched in; -1: none."""
    ranges, names = analysis.trace.ranges, analysis.trace.names
    if ranges is None or NCCL not in names:
        return np.full(len(rows), -1)
    ranges = ranges.rows(ranges.domain == names.index(NCCL))
    return open_innermost(ranges, owned.launch_ns[rows], owned.thread[rows])


def joined_copies(owned: OwnedOperations, copies: Transfers, nccl_range: np.ndarray) -> Transfers:
    """Collectives that consist of these copies: one for each call that launched some.

    That is PyTorch's call, else NCCL's, whose range is `nccl_range`, else the one of the copy: from
    NCCL 2.28 on, copies of 4 bytes before and after those of the data tell the others how far they
    are. It begins when its copies could: a copy does not wait for other ranks by itself, its stream
    does, from the end of what ran there before.
    """
    if not len(copies.row):
        return copies
    stream = owned.operations.stream[owned.row[copies.row]]
    nccl_range = np.where(copies.call >= 0, -1, nccl_range)
    alone = (copies.call < 0) & (nccl_range < 0)
    launched_by = np.where(alone, owned.call[copies.row], -1)
    key = np.column_stack((stream, copies.call, nccl_range, launched_by))
    order = np.lexsort((copies.start_ns, *key.T))
    copies, key = copies.rows(order), key[order]
    begins = np.flatnonzero(np.concatenate(([True], np.any(key[1:] != key[:-1], axis=1))))
    ends_ns = np.maximum.reduceat(copies.end_ns, begins)
    first = copies.rows(begins)
    start_ns = np.maximum(first.ready_ns, stream_free_ns(owned, first))
    return replace(first, start_ns=start_ns, end_ns=ends_ns)


def stream_free_ns(owned: OwnedOperations, transfers: Transfers) -> np.ndarray:
    """End of what other calls ran before each transfer on its stream, in ns; 0 for the first."""
    stream = owned.operations.stream[owned.row]
    free_ns = np.zeros(len(transfers.row), np.int64)
    for number in distinct(np.sort(stream[transfers.row])).tolist():
        mine, rows = (np.flatnonzero(each == number) for each in (stream[transfers.row], stream))
        call, ended_ns = owned.call[rows], np.maximum.accumulate(owned.end_ns[rows])
        begins = np.concatenate(([True], (call[1:] != call[:-1]) | (call[1:] < 0)))
        first = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))
        place = first[np.searchsorted(rows, transfers.row[mine])]
        free_ns[mine] = np.concatenate(([0], ended_ns))[place]
    return free_ns


def merge(some: Transfers, others: Transfers) -> Transfers:
    """Transfers of both, by start."""
    merged = Transfers.joined([some, others])
    return merged.rows(np.argsort(merged.start_ns, kind="stable"))


class Texts(Names):
    """Numbering of texts that are derived from the names in a trace."""

    def __init__(self, names: list[str]):
        super().__init__()
        self.names = names

    def map_names(self, name: np.ndarray, text_of: Callable[[str], str]) -> np.ndarray:
        """Numbers of the texts for a column of names; `text_of` is called once for each name."""
        number_of_name = np.full(len(self.names) + 1, -1)
        if len(name):
            rows = used_names(name)
            number_of_name[rows] = self.numbers_of([text_of(self.names[row]) for row in rows])
        return np.take(number_of_name, name)


def call_of(owned: OwnedOperations, rows: np.ndarray, calls: CollectiveCalls) -> np.ndarray:
    """Row of `calls` that was open on the launching thread of each kernel in `rows`; -1: none."""
    call = np.full(len(rows), -1)
    for thread in distinct(np.sort(calls.thread)).tolist():
        launched = np.flatnonzero(owned.thread[rows] == thread)
        mine = np.flatnonzero(calls.thread == thread)
        call[launched] = open_rows(calls, mine, owned.launch_ns[rows[launched]])
    return call


def launched_before(owned: OwnedOperations) -> np.ndarray:
    """(operations,) bool: launched before the capture, which holds launches but not this one's.

    Its stream ran nothing yet whose launch was captured.
    """
    unknown = owned.call < 0
    if unknown.all() or not unknown.any():
        return np.zeros(len(unknown), bool)
    stream = np.unique(owned.operations.stream[owned.row], return_inverse=True)[1]
    first_ns = np.full(stream.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(first_ns, stream[~unknown], owned.start_ns[~unknown])
    return unknown & (owned.start_ns < first_ns[stream])


def outlast_window(owned: OwnedOperations) -> bool:
    """Whether operations that were launched before the capture start only after its last step.

    They belong to no step, while those before them on their stream count for the first.
    """
    operations, steps = owned.operations, owned.steps
    rows = steps.rows_of(operations)
    unknown = (operations.call[rows] < 0) & (operations.start_ns[rows] > steps.host_end_ns())
    launched = owned.start_ns[owned.call >= 0]
    return len(launched) > 0 and bool(np.any(operations.start_ns[rows[unknown]] < launched.max()))


def lanes_by_stream(lane: np.ndarray, stream: np.ndarray, cut_off: np.ndarray) -> np.ndarray:
    """`lane` with each cut-off row in the lane of its stream's other rows, where they have one."""
    lane = lane.copy()
    for number in distinct(np.sort(stream[cut_off])).tolist():
        others = np.unique(lane[(stream == number) & ~cut_off])
        if len(others) == 1:
            lane[(stream == number) & cut_off] = others[0]
    return lane


def count_back(sequence: np.ndarray, lane: np.ndarray, cut_off: np.ndarray) -> np.ndarray:
    """`sequence` with numbers for cut-off rows, where those of their lane go up by one each."""
    sequence = sequence.copy()
    for number in distinct(np.sort(lane[cut_off])).tolist():
        rows, before = (np.flatnonzero((lane == number) & mask) for mask in (~cut_off, cut_off))
        numbers = sequence[rows]
        if len(rows) and numbers[0] >= len(before) and np.all(np.diff(numbers) == 1):
            sequence[before] = numbers[0] - np.arange(len(before), 0, -1)
    return sequence


def ready_ns(owned: OwnedOperations, rows: np.ndarray) -> np.ndarray:
    """End of the last kernel that was launched before each collective in `rows`, in ns.

    Other collectives do not count, and the result is no later than the collective's own start.
    """
    others = np.setdiff1d(np.flatnonzero(owned.kernels_and_graphs), rows)
    others = others[np.argsort(owned.launch_ns[others], kind="stable")]
    before = np.searchsorted(owned.launch_ns[others], owned.launch_ns[rows])
    ended = np.concatenate(([0], np.maximum.accumulate(owned.end_ns[others])))[before]
    ready: np.ndarray = np.minimum(ended, owned.start_ns[rows])
    return ready


def groups_of(calls: CollectiveCalls, texts: Texts) -> np.ndarray:
    has_group = calls.group >= 0
    group = np.full(len(has_group), -1)
    group[has_group] = texts.map_names(calls.group[has_group], lambda name: f"group {name}")
    return group


def ordinals(stream: np.ndarray) -> list[int]:
    """Index of each row's stream in the order in which the streams are first used."""
    order = {number: i for i, number in enumerate(dict.fromkeys(stream.tolist()))}
    return [order[number] for number in stream.tolist()]


def stream_lanes(stream: np.ndarray, is_copy: np.ndarray, texts: Texts) -> np.ndarray:
    """Numbers of the texts that name each row's stream, counted apart for kernels and copies."""
    lanes = np.empty(len(stream), np.int64)
    for chosen, word in ((~is_copy, "stream"), (is_copy, "copies on stream")):
        lanes[chosen] = texts.numbers_of([f"{word} {n}" for n in ordinals(stream[chosen])])
    return lanes


def kind_of(name: str) -> str:
    text = name.lower().replace("_", "").replace("-", "")
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, text)), OTHER)


def algorithm_of(name: str) -> str:
    """Algorithm that a kernel's name tells: ring, tree, nvls, symmetric memory, ...; else ""."""
    if match := ALGORITHM.search(name):
        return match[1].lower().replace("_", " ")
    return "symmetric memory" if SYMMETRIC.search(name) else ""
