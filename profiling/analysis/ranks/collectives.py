"""The collectives that one rank ran, and what their names tell. Called by reduce.

A collective is a kernel that the breakdown counts as communication. What it is called, which group
it belongs to and how large it is, the host's side tells where PyTorch recorded that; else its kind
and its algorithm are in the kernel's name, its lane is its stream, and its size is not known.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import distinct, used_names
from profiling.analysis.gpu_time.attribution import OwnedOperations, open_rows
from profiling.analysis.gpu_time.breakdown import COMMUNICATION
from profiling.timeline.trace import CollectiveCalls

# of a name in lower case without underscores; the first that is in it decides
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
OTHER = "other"  # RCCL's and NCCL's generic kernels run every kind
# all ranks leave these together, so that their ends tell how the clocks differ
SIMULTANEOUS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier", OTHER)
# NCCL's, whose kernels run any protocol, whatever protocol their names say (github.com/NVIDIA/nccl
# issue 2196); then those of kernels that reach into other GPUs' memory by themselves
ALGORITHM = re.compile(r"(RING|TREE|COLLNET\w*?|NVLS_TREE|NVLS|PAT)_(?:LL128|LL|SIMPLE)")
SYMMETRIC = re.compile(r"multimem|one_?shot|two_?shot|symk|symm_?mem", re.I)


@dataclass(frozen=True)
class Collectives:
    """Columns, a row for each collective in the steps, by start; texts are indices in `names`."""

    names: list[str]
    start_ns: np.ndarray
    end_ns: np.ndarray
    ready_ns: np.ndarray  # when the kernels that it follows had ended; no later than start_ns
    step: np.ndarray  # index of the step that launched it
    kind: np.ndarray  # a name of KINDS
    lane: np.ndarray  # the process group, or the stream
    stream: np.ndarray  # "stream N": the N-th that this rank talks on
    algorithm: np.ndarray
    bytes: np.ndarray  # -1: not told
    sequence: np.ndarray  # in its group; -1: not told

    @property
    def told(self) -> bool:
        """Whether the host's side tells groups or numbers of any."""
        return bool(np.any((self.lane != self.stream) | (self.sequence >= 0)))

    def texts(self, column: np.ndarray) -> np.ndarray:
        return np.array([*self.names, ""])[column]


def collectives_of(analysis: Analysis) -> Collectives:
    """Of what belongs to the steps."""
    owned, names = analysis.owned, analysis.trace.names
    if owned is None:
        return Collectives([], *(np.empty(0, np.int64) for _ in fields(Collectives)[1:]))
    talks = owned.kernels_and_graphs & (analysis.family[owned.name] == COMMUNICATION)
    rows = np.flatnonzero(talks)
    calls = analysis.trace.collective_calls or CollectiveCalls.empty()
    call, texts = call_of(owned, rows, calls), Texts(names)
    kind = np.where(
        call >= 0,
        np.append(texts.numbered(calls.name, kind_of), -1)[call],
        texts.numbered(owned.name[rows], kind_of),
    )
    stream = texts.of([f"stream {n}" for n in ordinals(owned.operations.stream[owned.row[rows]])])
    group = np.append(groups_of(calls, texts), -1)[call]
    return Collectives(
        start_ns=owned.start_ns[rows],
        end_ns=owned.end_ns[rows],
        ready_ns=ready_ns(owned, rows, talks),
        step=owned.step[rows],
        kind=kind,
        lane=np.where(group >= 0, group, stream),
        stream=stream,
        algorithm=texts.numbered(owned.name[rows], algorithm_of),
        bytes=np.append(calls.bytes, -1)[call],
        sequence=np.append(calls.sequence, -1)[call],
        names=list(texts.numbers),
    )


class Texts:
    """Numbers for texts that are made of a trace's names."""

    def __init__(self, names: list[str]):
        self.names, self.numbers = names, dict[str, int]()

    def of(self, texts: list[str]) -> np.ndarray:
        numbers = [self.numbers.setdefault(text, len(self.numbers)) for text in texts]
        return np.array(numbers, np.int64)

    def numbered(self, name: np.ndarray, made: Callable[[str], str]) -> np.ndarray:
        """Of a column of names; `made` is asked once a name."""
        found = np.full(len(self.names) + 1, -1)
        if len(name):
            rows = used_names(name)
            found[rows] = self.of([made(self.names[row]) for row in rows])
        return found[name]


def call_of(owned: OwnedOperations, rows: np.ndarray, calls: CollectiveCalls) -> np.ndarray:
    """The host's side of each: the row of `calls` that was open on the thread that launched it."""
    found = np.full(len(rows), -1)
    for thread in distinct(np.sort(calls.thread)).tolist():
        of = np.flatnonzero(owned.thread[rows] == thread)
        mine = np.flatnonzero(calls.thread == thread)
        found[of] = open_rows(calls, mine, owned.launch_ns[rows[of]])
    return found


def ready_ns(owned: OwnedOperations, rows: np.ndarray, talks: np.ndarray) -> np.ndarray:
    """When the last of what was launched before each had ended, but for collectives."""
    others = np.flatnonzero(owned.kernels_and_graphs & ~talks)
    others = others[np.argsort(owned.launch_ns[others], kind="stable")]
    before = np.searchsorted(owned.launch_ns[others], owned.launch_ns[rows])
    ended = np.concatenate(([0], np.maximum.accumulate(owned.end_ns[others])))[before]
    return np.minimum(ended, owned.start_ns[rows])


def groups_of(calls: CollectiveCalls, texts: Texts) -> np.ndarray:
    told = calls.group >= 0
    found = np.full(len(told), -1)
    found[told] = texts.numbered(calls.group[told], lambda name: f"group {name}")
    return found


def ordinals(stream: np.ndarray) -> list[int]:
    """Which of the streams each is, in the order in which they are first used."""
    order = {number: i for i, number in enumerate(dict.fromkeys(stream.tolist()))}
    return [order[number] for number in stream.tolist()]


def kind_of(name: str) -> str:
    text = name.lower().replace("_", "").replace("-", "")
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, text)), OTHER)


def algorithm_of(name: str) -> str:
    """ring, tree, nvls, ...; symmetric memory; or nothing that is known."""
    if found := ALGORITHM.search(name):
        return found[1].lower().replace("_", " ")
    return "symmetric memory" if SYMMETRIC.search(name) else ""
