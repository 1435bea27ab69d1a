"""When a run is captured: windows that open and close by the iteration.

train.py leans on it like this, with a schedule that has no windows where nothing is profiled:

    with Window(...) as window:
        while ...:
            with window.iteration(iteration):
                ...
                clock.lap(window.label)
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from configs.capture import PlannedWindow, ProfileConfig
from profiling.capture.dynamo import compiled
from profiling.capture.recording import (
    CAPTURED,
    FREE_LAPS,
    PREPARED,
    Clock,
    NoRecording,
    OpenWindow,
    Recording,
)
from profiling.capture.schedule import Schedule
from profiling.capture.spans import NoSpans, Spans

log = logging.getLogger(__name__)


@dataclass
class Window(AbstractContextManager["Window"]):
    """Opens as the schedule says, lets the iterations run, and closes, also when the run ends.

    Every rank has one, so that their step times are labelled alike; those that capture have a
    Recording, the others a NoRecording.
    """

    profile: ProfileConfig
    schedule: Schedule
    recording: Recording | NoRecording
    spans: Spans | NoSpans
    clock: Clock
    settle: Callable[[], None] = lambda: None  # what the loop owes, before a window opens or closes
    opened: OpenWindow | None = None
    due: int | None = None  # the iteration that brings the last step time behind a window
    free_ms: list[float] = field(default_factory=list)  # step times before what was prepared

    def __post_init__(self) -> None:
        self.label = self.label_between()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self.close(f"{kind.__name__}: {error}".splitlines()[0] if kind else "the end of the run")
        self.complete()
        self.recording.end()
        if not self.schedule.finished():
            log.warning("profile=%s: the run ended before its window", self.profile.kind)

    def ask(
        self, profile: ProfileConfig, schedule: Schedule, recording: Recording | NoRecording
    ) -> None:
        """One more window, of a run whose own ones are over."""
        self.complete()
        self.profile, self.schedule, self.recording = profile, schedule, recording
        self.label = self.label_between()

    @property
    def is_open(self) -> bool:
        return self.opened is not None

    @property
    def over(self) -> bool:
        """Whether no window is open and none comes."""
        return self.opened is None and self.schedule.finished()

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
        if planned is None or self.opened:
            return
        if self.label is None and iteration >= planned.first - self.profile.lead:
            self.prepare()
        if iteration == planned.first:
            self.open(planned)

    def after(self, iteration: int) -> None:
        if self.opened:
            self.opened.last = iteration
        if self.opened and iteration == self.opened.planned.first + self.profile.steps - 1:
            self.close(None)
        elif iteration == self.due:
            self.complete()

    def prepare(self) -> None:
        self.settle()
        self.complete()  # here, because the next laps are not free ones
        self.clock.start()
        self.free_ms = self.clock.recent(None)[-FREE_LAPS:]
        self.label = PREPARED
        self.recording.prepare()
        self.clock.start()

    def open(self, planned: PlannedWindow) -> None:
        self.settle()
        self.opened = OpenWindow(planned, self.free_ms, compiled(), last=planned.first - 1)
        self.label = CAPTURED
        self.recording.open()
        self.schedule.agreed(True)  # or the first all-reduce waits for a slower rank's recorder
        self.clock.start()

    def close(self, ended_by: str | None) -> None:
        """Closes the window if one is open; `ended_by` says why before its time."""
        if self.opened is None:
            return
        self.settle()
        opened, self.opened, self.free_ms = self.opened, None, []
        self.schedule.windows.remove(opened.planned)
        self.recording.close(opened, self.clock, ended_by)
        self.due = opened.last + FREE_LAPS
        if self.schedule.finished():
            self.recording.end()
        self.label = self.label_between()

    def complete(self) -> None:
        """The last window's manifest gets the step times behind it; the clocks of all ranks begin
        anew for it."""
        if self.due is not None:
            self.due = None
            self.recording.complete(self.clock)

    def label_between(self) -> str | None:
        """Of laps outside a window: memory is recorded all the time until the last one."""
        always = self.profile.kind == "memory" and not self.schedule.finished()
        return PREPARED if always else None
