"""Capture windows of a run, opened and closed by the iteration.

train.py uses it like this, with a schedule that has no windows if nothing is profiled:

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

from configs.profiling import PlannedWindow, ProfileConfig
from profiling.recording.dynamo import compile_counts
from profiling.recording.recording import (
    CAPTURED,
    FREE_LAPS,
    PREPARED,
    Clock,
    NoRecording,
    OpenWindow,
    Recording,
)
from profiling.recording.schedule import Schedule
from profiling.recording.spans import NoSpans, Spans

log = logging.getLogger(__name__)


@dataclass
class Window(AbstractContextManager["Window"]):
    """Opens windows as the schedule says, and closes them, also when the run ends.

    Every rank has a Window, so that step times are labelled alike on all of them; ranks that
    capture have a Recording, the others a NoRecording.
    """

    profile: ProfileConfig
    schedule: Schedule
    recording: Recording | NoRecording
    spans: Spans | NoSpans
    clock: Clock
    write_pending: Callable[[], None] = lambda: None  # called before a window opens or closes
    current: OpenWindow | None = None
    due: int | None = None  # the iteration with the last step time that a closed window waits for
    free_ms: list[float] = field(default_factory=list)  # step times before the recorder's prepare

    def __post_init__(self) -> None:
        self.label = self.label_between()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self.close(f"{kind.__name__}: {error}".splitlines()[0] if kind else "the end of the run")
        self.complete()
        self.recording.end()
        if not self.schedule.finished():
            log.warning("profile=%s: the run ended before the window opened", self.profile.kind)

    def follow(
        self, profile: ProfileConfig, schedule: Schedule, recording: Recording | NoRecording
    ) -> None:
        """Take a new schedule and recording, in a run whose own windows are over."""
        self.complete()
        self.profile, self.schedule, self.recording = profile, schedule, recording
        self.label = self.label_between()

    @property
    def is_open(self) -> bool:
        return self.current is not None

    @property
    def is_over(self) -> bool:
        """Whether no window is open and none comes."""
        return self.current is None and self.schedule.finished()

    @contextmanager
    def iteration(self, number: int) -> Iterator[None]:
        """Run one iteration within the block, and open or close a window where it is due."""
        self.before(number)
        with self.spans.iteration(number):
            yield
        self.after(number)

    def before(self, iteration: int) -> None:
        schedule = self.schedule
        if schedule.wants_laps(iteration):
            self.clock.start()
            schedule.decide_if_stable(iteration, self.clock.recent(self.label))
        planned = schedule.next()
        if planned is None or self.current:
            return
        if self.label is None and iteration >= planned.first - self.profile.lead:
            self.prepare()
        if iteration == planned.first:
            self.open(planned)

    def after(self, iteration: int) -> None:
        if self.current:
            self.current.last = iteration
        if self.current and iteration == self.current.planned.first + self.profile.steps - 1:
            self.close(None)
        elif iteration == self.due:
            self.complete()

    def prepare(self) -> None:
        self.write_pending()
        self.complete()  # here, because the next laps are no longer free of a profiler
        self.clock.start()
        self.free_ms = self.clock.recent(None)[-FREE_LAPS:]
        self.label = PREPARED
        self.recording.prepare()
        self.clock.start()

    def open(self, planned: PlannedWindow) -> None:
        self.write_pending()
        self.current = OpenWindow(planned, self.free_ms, compile_counts(), last=planned.first - 1)
        self.label = CAPTURED
        self.recording.open()
        # meets all ranks, or the first all-reduce would wait for a slower rank's recorder
        self.schedule.all_agree(True)
        self.clock.start()

    def close(self, ended_by: str | None) -> None:
        """Close the window if one is open; `ended_by` says why it ends before its time, if it
        does."""
        if self.current is None:
            return
        self.write_pending()
        closing, self.current, self.free_ms = self.current, None, []
        self.schedule.windows.remove(closing.planned)
        self.recording.close(closing, self.clock, ended_by)
        self.due = closing.last + FREE_LAPS
        if self.schedule.finished():
            self.recording.end()
        self.label = self.label_between()

    def complete(self) -> None:
        """Add the step times after the last window to its manifest.

        The clocks of all ranks start anew for it.
        """
        if self.due is not None:
            self.due = None
            self.recording.complete(self.clock)

    def label_between(self) -> str | None:
        """Label of laps outside a window: PREPARED while profile=memory still records, which it
        does all the time until the last window; else None."""
        always = self.profile.kind == "memory" and not self.schedule.finished()
        return PREPARED if always else None
