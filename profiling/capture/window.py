"""The window of a run that is captured: opened, closed and described by one object.

train.py leans on it like this, with a NoWindow where nothing is profiled:

    with Window(...) as window:
        while ...:
            with window.iteration(iteration):
                ...
                clock.lap(window.label)
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch._dynamo.utils import counters

from configs.capture import Planned, ProfileConfig
from profiling.capture import manifest
from profiling.capture.layers import ranged_layers
from profiling.capture.schedule import Schedule
from profiling.capture.spans import NOTHING, Spans

log = logging.getLogger(__name__)

FREE_LAPS = 20  # uncaptured step times that a manifest compares with, before and after
CAPTURED, PREPARED = "captured", "prepared"  # labels of laps that are no training step times


class Recorder(Protocol):
    """A way to capture."""

    def prepare(self) -> None: ...
    def start(self) -> None: ...
    def stop(self, stem: Path) -> list[Path]: ...  # the files it wrote
    def close(self) -> None: ...
    def facts(self) -> dict[str, Any]: ...  # for the manifest


class Clock(Protocol):
    def start(self) -> None: ...
    def recent(self, label: str | None) -> list[float]: ...


class NoWindow:
    """The same surface for a run that is not profiled."""

    label = None

    def __enter__(self) -> "NoWindow":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def iteration(self, number: int) -> AbstractContextManager:
        return NOTHING

    def close(self, ended_by: str) -> None:
        pass


class Window:
    """Synchronises, starts the recorder, lets the iterations run, synchronises, stops it; always.

    Every rank has one, so that their step times are labelled alike; only ranks with a recorder
    capture. `folder` gets the files, their names ending in `suffix`; `facts` go into the manifest.
    """

    def __init__(
        self,
        profile: ProfileConfig,
        schedule: Schedule,
        recorder: Recorder | None,
        spans: Spans,
        clock: Clock,
        model: nn.Module,
        folder: Path,
        suffix: str = "",
        facts: dict[str, Any] | None = None,
    ):
        self.profile, self.schedule, self.recorder = profile, schedule, recorder
        self.spans, self.clock, self.model = spans, clock, model
        self.folder, self.suffix, self.facts = folder, suffix, facts or {}
        self.device = next(model.parameters()).device
        self.label: str | None = None
        self.planned: Planned | None = None  # the window that is open
        self.inside = ExitStack()  # what holds while it is open
        self.told: Path | None = None  # a manifest that waits for the step times after it
        self.rest()

    def __enter__(self) -> "Window":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        self.close(f"{kind.__name__}: {error}".splitlines()[0] if kind else "the end of the run")
        self.finish_telling()
        if self.recorder:
            self.attempt(self.recorder.close)
        if not self.schedule.finished():
            log.warning("profile=%s: the run ended before its window", self.profile.kind)

    @contextmanager
    def iteration(self, number: int) -> Iterator[None]:
        """Around everything that makes up an iteration."""
        self.before(number)
        with self.spans.iteration(number):
            yield
        self.after(number)

    def before(self, iteration: int) -> None:
        schedule = self.schedule
        if schedule.wants_laps(iteration):
            self.clock.start()
            schedule.settle(iteration, self.clock.recent(self.label))
        planned = schedule.next()
        if planned is None or self.planned:
            return
        if self.label is None and iteration >= planned.first - self.profile.lead:
            self.prepare()
        if iteration == planned.first:
            self.open(planned)

    def after(self, iteration: int) -> None:
        self.last = iteration
        if self.planned and iteration == self.planned.first + self.profile.steps - 1:
            self.close(None)
        elif self.told and iteration == self.tell_at:
            self.finish_telling()

    def prepare(self) -> None:
        self.finish_telling()  # here, because the next laps are not free ones
        self.clock.start()
        self.free_ms = self.clock.recent(None)[-FREE_LAPS:]
        self.label = PREPARED
        if self.recorder:
            self.attempt(self.recorder.prepare)
        self.clock.start()

    def open(self, planned: Planned) -> None:
        self.planned, self.last = planned, planned.first - 1
        self.label = CAPTURED
        self.compiled = dynamo_facts()
        if self.recorder:
            self.enter_inside()
            self.attempt(self.synchronize)
            self.attempt(self.recorder.start)
        self.schedule.agreed(True)  # or the first all-reduce waits for a slower rank's recorder
        self.clock.start()

    def enter_inside(self) -> None:
        if self.profile.backward_on_calling_thread:
            self.inside.enter_context(torch.autograd.set_multithreading_enabled(False))
        if self.profile.detail == "layers":
            self.inside.enter_context(ranged_layers(self.model, self.spans))
        self.spans.recording = self.profile.kind == "torch"
        self.inside.callback(setattr, self.spans, "recording", False)

    def close(self, ended_by: str | None) -> None:
        """Closes the window if one is open; `ended_by` says why before its time."""
        if self.planned is None:
            return
        planned, self.planned = self.planned, None
        self.schedule.windows.remove(planned)
        if self.recorder:
            number = manifest.next_number(self.folder, self.suffix)
            stem = self.folder / f"window-{number}{self.suffix}"
            files: list[Path] = []
            self.attempt(self.synchronize)
            self.attempt(lambda: self.folder.mkdir(parents=True, exist_ok=True))
            self.attempt(lambda: files.extend(self.recorder.stop(stem)))
            self.inside.close()
        self.attempt(self.clock.start)
        if self.recorder:
            self.tell(stem.with_name(stem.name + ".json"), planned, ended_by, files)
            if self.schedule.finished():
                self.attempt(self.recorder.close)
        self.rest()

    def rest(self) -> None:
        """Between the windows."""
        always = self.profile.kind == "memory" and not self.schedule.finished()
        self.label = PREPARED if always else None
        self.free_ms: list[float] = []
        self.errors: list[str] = []

    def attempt(self, action: Callable[[], object]) -> None:
        """Training is not to die of its profiler: an error is said once, and recorded."""
        try:
            action()
        except Exception as error:
            self.errors.append(" ".join(f"{type(error).__name__}: {error}".split())[:300])
            log.warning("profile=%s: %s", self.profile.kind, self.errors[-1])

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def tell(self, path: Path, planned: Planned, ended_by: str | None, files: list[Path]) -> None:
        """Writes the manifest, and remembers to add the step times that follow."""
        steps = self.last - planned.first + 1  # whole ones
        inside = {key: count - self.compiled[key] for key, count in dynamo_facts().items()}
        if inside["graphs"]:
            log.warning("profile: torch.compile made %d graphs inside the window", inside["graphs"])
        captured_ms = self.clock.recent(CAPTURED)
        step_ms = {
            "before": manifest.step_times(self.free_ms),
            "captured": manifest.step_times(captured_ms[len(captured_ms) - steps :]),
            "after": None,
        }
        self.manifest = {
            "schema_version": manifest.SCHEMA_VERSION,
            "kind": self.profile.kind,
            "window": {
                "first_iteration": planned.first,
                "last_iteration": self.last if steps else None,
                "steps": steps,
                "steps_asked": self.profile.steps,
                "moved_from": planned.asked if planned.moved else None,
                "complete": ended_by is None and not self.errors,
                "ended_by": ended_by,
                "errors": self.errors,
            },
            "step_ms": step_ms,
            "overhead_percent": manifest.overhead_percent(step_ms),
            "backward_on_calling_thread": self.profile.backward_on_calling_thread,
            "compiled_inside": inside,
            **self.recorder.facts(),
            "files": [file.name for file in files],
            **self.facts,
        }
        self.told, self.tell_at = path, self.last + FREE_LAPS
        self.attempt(lambda: manifest.write(path, self.manifest))
        early = "" if ended_by is None else f", then {ended_by}"
        log.info("profile: %d iterations from %d on%s: %s", steps, planned.first, early, path)
        for file in files:
            log.info("profile: %s", file)

    def finish_telling(self) -> None:
        """Adds what the step times are after the window to its manifest."""
        if self.told is None:
            return
        path, self.told = self.told, None
        self.attempt(self.clock.start)
        step_ms = self.manifest["step_ms"]
        step_ms["after"] = manifest.step_times(self.clock.recent(None, after=CAPTURED)[:FREE_LAPS])
        self.manifest["overhead_percent"] = manifest.overhead_percent(step_ms)
        self.attempt(lambda: manifest.write(path, self.manifest))


def dynamo_facts() -> dict[str, int]:
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "graph_breaks": sum(counters["graph_break"].values()),
    }
