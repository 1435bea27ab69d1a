"""Recording of a window by one rank: its recorder, whose errors are caught, and the manifest."""

import logging
import statistics
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from torch import nn

from cli.errors import one_line
from cli.files import write_text
from configs.profiling import PlannedWindow, ProfileConfig
from profiling.recording import process_meter
from profiling.recording.dynamo import compile_counts
from profiling.recording.layers import layer_ranges
from profiling.recording.spans import Spans
from profiling.shared.json_records import to_json
from profiling.shared.manifest import (
    CapturedWindow,
    CompileCounts,
    Laps,
    Manifest,
    ProcessUse,
    WindowSteps,
)
from profiling.shared.metric_names import CPU_MEMORY_BYTES

log = logging.getLogger(__name__)

T = TypeVar("T")
FREE_LAPS = 20  # step times without a profiler in a manifest, before the window and after it
CAPTURED, PREPARED = "captured", "prepared"  # labels of laps that a profiler may have lengthened


class Recorder(Protocol):
    """A way to capture: profiling.recording.nsys, torch_profiler, memory."""

    return_codes: dict[str, int] | None = None  # for the manifest; only nsys has them
    nsys_attached: bool | None = None

    def start(self) -> None: ...
    def stop(self, stem: Path) -> list[Path]: ...  # returns the files that it wrote

    def prepare(self) -> None:
        return None  # some recorders have nothing to do before the window

    def close(self) -> None:
        return None  # nor after the last one


class Clock(Protocol):
    """The training loop's clock, as far as it is used here.

    Its laps are times of iterations in ms, with a label; that of an ordinary iteration is None.
    """

    def start(self) -> None: ...
    def recent(self, label: str | None, after: str | None = None) -> list[float]: ...


@dataclass
class OpenWindow:
    """A window between its opening and its close: its state at the opening, and its progress."""

    planned: PlannedWindow
    free_ms: list[float]  # step times before the window
    compiled: CompileCounts  # counts at the opening
    last: int  # the last complete iteration; at first the one before the window


class NoRecording:
    """Stands in for a Recording on a rank that captures nothing."""

    def nothing(self, *_: object) -> None:
        pass

    prepare = open = end = nothing

    # A clock that starts anew drops a wait from its next lap, and all ranks' laps are summed up
    # together: so it is started here wherever a rank that captures starts its own.
    def close(self, window: OpenWindow, clock: Clock, ended_by: str | None) -> None:
        self.complete(clock)

    def complete(self, clock: Clock) -> None:
        with suppress(Exception):  # the error that ends the run is the one to see
            clock.start()


@dataclass
class Recording:
    """Runs a recorder for each window, between two synchronisations, and writes its manifest.

    Whatever fails is logged and noted in the manifest, and training goes on.
    """

    recorder: Recorder
    profile: ProfileConfig
    spans: Spans
    model: nn.Module
    folder: Path  # for the files
    run: Manifest  # as far as it is known before any window
    suffix: str = ""  # this rank's suffix of file names
    inside: ExitStack = field(default_factory=ExitStack)  # undone when the window closes
    errors: list[str] = field(default_factory=list)
    times_at_open: process_meter.Times | None = None  # the process's, when the window opened
    # the last manifest and its file, until the step times after its window are known
    waiting: tuple[Path, Manifest] | None = None

    def attempt(self, action: Callable[[], T]) -> T | None:
        """Result of `action`, or None if it raises: training must not die of its profiler.

        The error is logged and added to `errors`.
        """
        try:
            return action()
        except Exception as error:
            self.errors.append(one_line(f"{type(error).__name__}: {error}")[:300])
            log.warning("profile=%s: %s", self.profile.kind, self.errors[-1])
            return None

    def prepare(self) -> None:
        self.attempt(self.recorder.prepare)

    def open(self) -> None:
        if self.profile.backward_on_calling_thread:
            self.inside.enter_context(torch.autograd.set_multithreading_enabled(False))
        self.spans.recording = self.profile.kind == "torch"
        self.inside.callback(setattr, self.spans, "recording", False)
        if self.profile.detail == "layers":
            layers = layer_ranges(self.model, self.spans)
            self.attempt(lambda: self.inside.enter_context(layers))
        self.attempt(self.synchronize)
        self.attempt(self.recorder.start)
        self.times_at_open = process_meter.now()

    def synchronize(self) -> None:
        device = next(self.model.parameters()).device
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def close(self, window: OpenWindow, clock: Clock, ended_by: str | None) -> None:
        stem = self.next_stem()
        self.attempt(self.synchronize)
        process = self.attempt(self.process_use)
        self.attempt(lambda: self.folder.mkdir(parents=True, exist_ok=True))
        files = self.attempt(lambda: self.recorder.stop(stem)) or []
        self.attempt(self.inside.close)
        self.attempt(clock.start)
        manifest = self.manifest_of(window, clock.recent(CAPTURED), ended_by, files)
        manifest = replace(manifest, process=process)
        path = stem.with_name(stem.name + ".json")
        self.waiting = path, manifest
        self.attempt(lambda: write_text(path, to_json(manifest)))
        self.errors = []
        steps, first = manifest.window.steps, window.planned.first
        early = "" if ended_by is None else f", then {ended_by}"
        step = self.spans.step
        log.info("profile: %d %ss from %d on%s: %s", steps, step, first, early, path)
        for file in files:
            log.info("profile: %s", file)

    def process_use(self) -> ProcessUse:
        """Use of CPU and memory since the window opened; asked before the recorder writes files."""
        opened = self.times_at_open
        percent = opened and opened.percent_until(process_meter.now())
        memory_bytes = process_meter.threads_and_memory()[CPU_MEMORY_BYTES.name]
        return ProcessUse(
            cores_used=None if percent is None else percent / 100,
            compute_threads=torch.get_num_threads(),
            memory_bytes=None if memory_bytes is None else int(memory_bytes),
        )

    def next_stem(self) -> Path:
        """Path of the first window-N without a manifest in the folder: N is above 1 after a resume.

        Files of several ranks lie side by side, told apart by the suffix.
        """
        stems = (self.folder / f"window-{number}{self.suffix}" for number in count(1))
        return next(stem for stem in stems if not stem.with_name(stem.name + ".json").exists())

    def manifest_of(
        self, window: OpenWindow, captured_ms: list[float], ended_by: str | None, files: list[Path]
    ) -> Manifest:
        planned, before, now = window.planned, window.compiled, compile_counts()
        steps = window.last - planned.first + 1  # complete ones
        laps = captured_ms[-steps:] if steps else []
        step_ms = WindowSteps(before=step_times(window.free_ms), captured=step_times(laps))
        inside = CompileCounts(now.graphs - before.graphs, now.graph_breaks - before.graph_breaks)
        if inside.graphs:
            log.warning(
                "profile: torch.compile compiled %d graphs inside the window", inside.graphs
            )
        captured = CapturedWindow(
            first_iteration=planned.first,
            last_iteration=window.last if steps else None,
            steps=steps,
            steps_asked=self.profile.steps,
            moved_from=planned.asked if planned.moved else None,
            complete=ended_by is None and not self.errors,
            ended_by=ended_by,
            errors=self.errors,
        )
        return replace(
            self.run,
            window=captured,
            step_ms=step_ms,
            overhead_percent=step_ms.overhead_percent,
            backward_on_calling_thread=self.profile.backward_on_calling_thread,
            compiled_inside=inside,
            return_codes=self.recorder.return_codes,
            nsys_attached=self.recorder.nsys_attached,
            files=[file.name for file in files],
        )

    def complete(self, clock: Clock) -> None:
        """Add the step times that there are after the last window to its manifest."""
        self.attempt(clock.start)
        if self.waiting is None:
            return
        (path, manifest), self.waiting = self.waiting, None
        after_ms = clock.recent(None, after=CAPTURED)[:FREE_LAPS]
        step_ms = replace(manifest.step_ms, after=step_times(after_ms))
        whole = replace(manifest, step_ms=step_ms, overhead_percent=step_ms.overhead_percent)
        self.attempt(lambda: write_text(path, to_json(whole)))

    def end(self) -> None:
        """Close the recorder: no window comes any more."""
        self.attempt(self.recorder.close)


def step_times(laps_ms: list[float]) -> Laps | None:
    return Laps(statistics.median(laps_ms), laps_ms) if laps_ms else None
