"""What one rank captures of a window: its recorder under a guard, and the manifest of its files."""

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
from configs.capture import PlannedWindow, ProfileConfig
from profiling.capture import process_meter
from profiling.capture.dynamo import compiled
from profiling.capture.layers import ranged_layers
from profiling.capture.spans import Spans
from profiling.manifest import (
    CapturedWindow,
    CompileCounts,
    Laps,
    Manifest,
    ProcessUse,
    WindowSteps,
)
from profiling.metric_names import CPU_MEMORY_BYTES
from profiling.records import to_json

log = logging.getLogger(__name__)

T = TypeVar("T")
FREE_LAPS = 20  # uncaptured step times that a manifest compares with, before and after
CAPTURED, PREPARED = "captured", "prepared"  # labels of laps that are no training step times


class Recorder(Protocol):
    """A way to capture: profiling.capture.nsys, torch_profiler, memory."""

    return_codes: dict[str, int] | None = None  # for the manifest; of nsys alone
    nsys_attached: bool | None = None

    def start(self) -> None: ...
    def stop(self, stem: Path) -> list[Path]: ...  # the files it wrote

    def prepare(self) -> None:
        return None  # some have nothing to do before the window

    def close(self) -> None:
        return None  # nor behind the last one


class Clock(Protocol):
    """Of the training loop; its laps have labels, None for an ordinary iteration."""

    def start(self) -> None: ...
    def recent(self, label: str | None, after: str | None = None) -> list[float]: ...


@dataclass
class OpenWindow:
    """A window from its opening to its close: what it began with, and how far it has come."""

    planned: PlannedWindow
    free_ms: list[float]  # step times before it
    compiled: CompileCounts  # by then
    last: int  # the last whole iteration, at first the one before it


class NoRecording:
    """The same surface on a rank that captures nothing."""

    def nothing(self, *_: object) -> None:
        pass

    prepare = open = end = nothing

    # a clock that begins anew drops a wait from its next lap, and ranks count theirs together: so
    # these begin wherever those of ranks that capture do
    def close(self, window: OpenWindow, clock: Clock, ended_by: str | None) -> None:
        self.complete(clock)

    def complete(self, clock: Clock) -> None:
        with suppress(Exception):  # the error that ends the run is the one to see
            clock.start()


@dataclass
class Recording:
    """Synchronises, starts the recorder; synchronises, stops it, and tells of it in a manifest.

    Whatever fails is said and recorded, and training goes on.
    """

    recorder: Recorder
    profile: ProfileConfig
    spans: Spans
    model: nn.Module
    folder: Path  # for the files
    run: Manifest  # as far as it is known before any window
    suffix: str = ""  # of the files' names: this rank's
    inside: ExitStack = field(default_factory=ExitStack)  # what holds while a window is open
    errors: list[str] = field(default_factory=list)
    opened: process_meter.Times | None = None  # the process's times when its window did
    waiting: tuple[Path, Manifest] | None = None  # for the step times after its window

    def attempt(self, action: Callable[[], T]) -> T | None:
        """Training is not to die of its profiler."""
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
            layers = ranged_layers(self.model, self.spans)
            self.attempt(lambda: self.inside.enter_context(layers))
        self.attempt(self.synchronize)
        self.attempt(self.recorder.start)
        self.opened = process_meter.now()

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
        """Since the window was opened; before the recorder writes its files."""
        percent = self.opened and self.opened.percent_until(process_meter.now())
        memory_bytes = process_meter.held()[CPU_MEMORY_BYTES.name]
        return ProcessUse(
            cores_used=None if percent is None else percent / 100,
            compute_threads=torch.get_num_threads(),
            memory_bytes=None if memory_bytes is None else int(memory_bytes),
        )

    def next_stem(self) -> Path:
        """window-1, or one more than the last of which a manifest lies there: after a resume.

        Files of several ranks lie side by side.
        """
        stems = (self.folder / f"window-{number}{self.suffix}" for number in count(1))
        return next(stem for stem in stems if not stem.with_name(stem.name + ".json").exists())

    def manifest_of(
        self, window: OpenWindow, captured_ms: list[float], ended_by: str | None, files: list[Path]
    ) -> Manifest:
        planned, before, now = window.planned, window.compiled, compiled()
        steps = window.last - planned.first + 1  # whole ones
        laps = captured_ms[-steps:] if steps else []
        step_ms = WindowSteps(before=step_times(window.free_ms), captured=step_times(laps))
        inside = CompileCounts(now.graphs - before.graphs, now.graph_breaks - before.graph_breaks)
        if inside.graphs:
            log.warning("profile: torch.compile made %d graphs inside the window", inside.graphs)
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
            overhead_percent=overhead_percent(step_ms),
            backward_on_calling_thread=self.profile.backward_on_calling_thread,
            compiled_inside=inside,
            return_codes=self.recorder.return_codes,
            nsys_attached=self.recorder.nsys_attached,
            files=[file.name for file in files],
        )

    def complete(self, clock: Clock) -> None:
        """Adds what step times there are after the last window to its manifest."""
        self.attempt(clock.start)
        if self.waiting is None:
            return
        (path, manifest), self.waiting = self.waiting, None
        after_ms = clock.recent(None, after=CAPTURED)[:FREE_LAPS]
        step_ms = replace(manifest.step_ms, after=step_times(after_ms))
        whole = replace(manifest, step_ms=step_ms, overhead_percent=overhead_percent(step_ms))
        self.attempt(lambda: write_text(path, to_json(whole)))

    def end(self) -> None:
        """No window comes any more."""
        self.attempt(self.recorder.close)


def step_times(laps_ms: list[float]) -> Laps | None:
    return Laps(statistics.median(laps_ms), laps_ms) if laps_ms else None


def overhead_percent(step_ms: WindowSteps) -> float | None:
    """By how much captured steps are longer than those before and after; None if it is unknown."""
    free = [laps.median for laps in (step_ms.before, step_ms.after) if laps]
    if not free or not step_ms.captured:
        return None
    return (step_ms.captured.median / statistics.fmean(free) - 1) * 100
