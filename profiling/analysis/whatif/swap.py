"""Another attention backend in a run of this project, as the lab measured both. Called by whatif.

The GPU's time of each call of attention is what the capture has, times how much longer the lab saw
the other backend take for the same shape on the same GPU. Fused kernels are known by their names.
An unfused attention has products that look like any other: there the operations around its softmax
count, as many as the lab's time for it. The launches stay those of the capture.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from configs.backends import BACKENDS, is_fused
from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import name_mask
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.analysis.whatif.changes import Change
from profiling.analysis.whatif.constants import LAB_AGREES
from profiling.analysis.whatif.work import Work
from profiling.shared.json_records import read_json
from profiling.shared.manifest import Manifest, Milliseconds
from profiling.timeline.trace import KERNEL

DIRECTIONS = ("forward", "backward")
BACKWARD = re.compile(r"bwd|bprop|backward", re.IGNORECASE)


@dataclass(frozen=True)
class Shape:
    """A call of attention, as rows of the lab name it."""

    batch: int
    heads: int
    seq: int
    head_dim: int
    dtype: str
    dropout: float

    def words(self, backends: str) -> str:
        """The command that measures the backends at this shape."""
        return (
            f"python -m profiling attention --backward --backends {backends} --batch {self.batch} "
            f"--heads {self.heads} --seq {self.seq} --head-dim {self.head_dim} --dtype "
            f"{self.dtype} --dropout {self.dropout:g} --json attention.json"
        )


@dataclass(frozen=True)
class LabRow(Shape):
    backend: str
    direction: str
    median_ms: Milliseconds | None = None  # None: it failed
    note: str | None = None  # where another backend ran


@dataclass(frozen=True)
class Lab:
    """The file of `python -m profiling attention --json`."""

    kind: str
    device: str
    rows: list[LabRow]

    def ms(self, backend: str, shape: Shape) -> tuple[float, float] | None:
        """Time of a forward and of a backward, or None where it was not measured."""
        found = {
            row.direction: row.median_ms
            for row in self.rows
            if row.backend == backend and row.median_ms and not row.note and is_of(row, shape)
        }
        both = [found.get(direction) for direction in DIRECTIONS]
        return (both[0], both[1]) if both[0] and both[1] else None


@dataclass(frozen=True)
class Keys:
    """Keys of the trainer that say how its attention is called."""

    n_layer: int
    n_head: int
    n_embd: int
    block_size: int
    batch_size: int
    dropout: float
    dtype: str
    gradient_accumulation_steps: int = 1


def is_of(row: LabRow, shape: Shape) -> bool:
    return all(getattr(row, name) == value for name, value in vars(shape).items())


def read_lab(path: Path) -> Lab:
    """The lab's times. Raises ValueError for a file of something else."""
    cure = "give a file of python -m profiling attention --backward --json FILE"
    try:
        lab = read_json(path, Lab)
    except ValueError as error:
        raise ValueError(f"--lab {error}; {cure}") from error
    if lab.kind != "attention":
        raise ValueError(f"--lab {path}: is of another verb; {cure}")
    return lab


def swapped(
    analysis: Analysis, manifest: Manifest | None, cycle: Work, backend: str, lab: Lab | None
) -> Change:
    """The change to another backend. Raises ValueError where nothing measured says what it buys."""
    words = f"--swap attention={backend}"
    ran = manifest and manifest.attention and manifest.attention.ran
    if manifest is None or manifest.config is None or ran not in BACKENDS:
        raise ValueError(
            f"{words}: needs a capture of this trainer, with its manifest: it has the shapes, and "
            "the backend that ran"
        )
    if ran == backend:
        raise ValueError(f"{words}: the capture already has it")
    try:
        keys = msgspec.convert(manifest.config, Keys)
    except msgspec.ValidationError as error:
        raise ValueError(f"{words}: the configuration in the manifest: {error}") from error
    head_dim = keys.n_embd // max(keys.n_head, 1)
    sizes = keys.batch_size, keys.n_head, keys.block_size, head_dim
    shape = Shape(*sizes, keys.dtype, keys.dropout)
    compiled = bool(manifest.compile and manifest.compile.compile)
    before, after = ("compile" if compiled and each == "slow" else each for each in (ran, backend))
    used = [each.name for each in analysis.trace.devices if each.id == analysis.steps.device]
    gpu = used[0] if used else "its GPU"
    known = lab if lab and lab.device == gpu else Lab("attention", gpu, [])
    one, other = known.ms(before, shape), known.ms(after, shape)
    if one is None or other is None:
        raise ValueError(
            f"{words}: nothing measured says what it buys; measure both on {gpu}: "
            f"{shape.words(f'{before},{after}')}; then --lab attention.json"
        )
    calls = keys.n_layer * keys.gradient_accumulation_steps * cycle.steps
    times = np.ones(len(cycle.gpu.call))
    for backward, now_ms, then_ms in zip((False, True), one, other, strict=True):
        rows = attention_rows(cycle, ran, backward, calls, now_ms)
        if not len(rows):
            raise ValueError(
                f"{words}: the kernels of {before}'s {DIRECTIONS[backward]} are not found in the "
                "capture, or not in each call"
            )
        held_ms = float(cycle.gpu.took_ns[rows].sum()) / 1e6 / calls
        if not 1 / LAB_AGREES <= held_ms / now_ms <= LAB_AGREES:
            raise ValueError(
                f"{words}: a {DIRECTIONS[backward]} of {before} takes {held_ms:.3f} ms in the "
                f"capture and {now_ms:.3f} in the lab, which is another program or GPU clock"
            )
        times[rows] = then_ms / now_ms
    return Change(words, with_times(times), ("the launches of its kernels",))


def attention_rows(
    cycle: Work, backend: str, backward: bool, calls: int, now_ms: float
) -> np.ndarray:
    """Rows of the operations that are the backend's, in one direction; empty if they are not all
    there."""
    gpu, names = cycle.gpu, cycle.names
    is_backward = name_mask(names, gpu.name, lambda name: bool(BACKWARD.search(name)))
    chosen = (gpu.kind == KERNEL) & (is_backward == backward)
    if is_fused(backend):
        kernels = BACKENDS[backend].kernels
        own = name_mask(names, gpu.name, lambda name: any(each in name for each in kernels))
        return np.flatnonzero(chosen & own)
    softmax = np.flatnonzero(chosen & (gpu.family == FAMILIES.index("softmax")))
    if len(softmax) != calls:
        return softmax[:0]
    until_ns = np.cumsum(gpu.took_ns)
    middle_ns = until_ns[softmax] - gpu.took_ns[softmax] / 2
    first = np.searchsorted(until_ns, middle_ns - now_ms * 5e5)
    stop = np.searchsorted(until_ns, middle_ns + now_ms * 5e5)
    edges = np.zeros(len(until_ns) + 1, np.int64)
    np.add.at(edges, first, 1)
    np.add.at(edges, stop, -1)
    return np.flatnonzero(np.cumsum(edges)[:-1] > 0)


def with_times(times: np.ndarray) -> Callable[[Work], Work]:
    """A change: each operation of the cycle takes so many times as long."""

    def change(work: Work) -> Work:
        return replace(work, gpu=replace(work.gpu, took_ns=work.gpu.took_ns * times))

    return change
