"""Adds the profiler that section `profile` describes to a training run. Called by train.py.

It also opens a window that a user asks for while the run is under way: rank 0 looks for a file when
it logs a row, and all ranks act on the request that it read there.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from configs.profiling import ProfileConfig
from configs.schema import Config
from profiling.recording.memory_history import MemoryRecorder
from profiling.recording.nsys import NsysRecorder, how_to_attach, is_attached
from profiling.recording.recording import NoRecording, Recorder, Recording
from profiling.recording.schedule import Schedule
from profiling.recording.spans import NoSpans, Spans, spans_for
from profiling.recording.torch_profiler import TorchRecorder
from profiling.recording.window import Window
from profiling.shared.json_records import read_json
from profiling.shared.manifest import SCHEMA_VERSION, CapturedWindow, Manifest
from profiling.shared.run_files import KINDS, STACK, TRIGGER, Trigger
from training.disk.run_folder import environment
from training.disk.run_parts import Run
from training.machine.model_description import describe
from training.ranks.distributed import Ranks
from training.step.clock import CudaClock, HostClock
from training.step.warm_up import WarmUp

log = logging.getLogger(__name__)


@dataclass
class Profiler:
    """Profiling of this rank: the ranges, from the beginning, and the window for the loop.

    Raises ValueError if nsys is in torch.profiler's way.
    """

    config: Config
    ranks: Ranks

    def __post_init__(self) -> None:
        self.folder = Path(self.config.out_dir) / "profile"
        self.spans = spans_for(self.config.profile.kind)
        # made now and not with the window, because memory is recorded from the beginning
        self.recorder = self.recorder_of_rank(self.config.profile)

    def recorder_of_rank(self, profile: ProfileConfig) -> Recorder | None:
        """The recorder of this rank, or None if this rank captures nothing."""
        on_cuda = self.ranks.device.type == "cuda"
        check_alone(profile, on_cuda)
        if self.ranks.rank not in profile.captured_ranks(self.ranks.world_size):
            return None
        return recorder_for(profile, on_cuda, self.folder, self.ranks.suffix)

    def window(
        self, run: Run, warm: WarmUp, clock: CudaClock | HostClock, settle: Callable[[], None]
    ) -> Window:
        """Makes the window for the training loop; without `profile=` it opens only on request.

        `settle` is called before recording starts and stops, to finish what the loop still owes.
        """
        self.run, self.warm = run, warm
        if self.ranks.rank == 0:  # a request to a run that ended before it looked
            (self.folder.parent / TRIGGER).unlink(missing_ok=True)
        schedule = self.schedule(run.config, run.progress.iteration)
        recording = self.recording(run.config, self.recorder)
        return Window(run.config.profile, schedule, recording, self.spans, clock, settle)

    def schedule(self, config: Config, first_iteration: int) -> Schedule:
        return Schedule(
            config.profile,
            first_iteration,
            config.max_iters,
            config.eval_interval,
            all_agree=lambda answer: not self.ranks.any(not answer),
        )

    def recording(self, config: Config, recorder: Recorder | None) -> Recording | NoRecording:
        if recorder is None:
            return NoRecording()
        spans = self.spans if isinstance(self.spans, Spans) else self.spans.wake()
        known = manifest_of_run(replace(self.run, config=config), self.warm)
        return Recording(
            *(recorder, config.profile, spans, self.run.model, self.folder, known),
            suffix=self.ranks.suffix,
        )

    def open_if_asked(self, window: Window, iteration: int) -> None:
        """Opens a window if `python -m profiling trigger` has asked for one.

        All ranks call this after a row and before `iteration`, and do the same. A request that
        cannot be met is logged as a warning, and training goes on.
        """
        if isinstance(self.spans, NoSpans) and self.spans.awake and window.is_over:
            self.spans.sleep()
        out_dir = self.folder.parent
        if not self.ranks.any(self.ranks.rank == 0 and (out_dir / TRIGGER).exists()):
            return
        trigger = self.ranks.from_first(lambda: take_request(out_dir))
        if trigger is None:
            return
        try:
            if not window.is_over:
                raise ValueError("a window is already open or planned; try again after it")
            config = config_with_window(trigger, self.config, iteration, self.ranks)
        except ValueError as error:
            log.warning("trigger: no window: %s", error)
            return
        recording = self.recording(config, self.recorder_of_rank(config.profile))
        window.follow(config.profile, self.schedule(config, iteration), recording)


def check_alone(profile: ProfileConfig, on_cuda: bool) -> None:
    """Raises ValueError if nsys is attached, which keeps torch.profiler from recording the GPU."""
    if profile.kind == "torch" and on_cuda and is_attached(os.environ):
        raise ValueError(
            "profile=torch: nsys is attached, and only one of the two can record the GPU; use "
            "profile=nsys, or start without nsys"
        )


def recorder_for(
    profile: ProfileConfig, on_cuda: bool, folder: Path, suffix: str = ""
) -> Recorder | None:
    """The recorder for a window of this kind, or None for profile=none.

    `suffix` tells the files of several ranks apart. Warns if nsys is asked for and not attached.
    """
    if profile.kind == "none":
        return None
    if profile.kind == "torch":
        return TorchRecorder(profile, on_cuda)
    if profile.kind == "memory":
        return MemoryRecorder(folder / f"out-of-memory{suffix}.pickle")
    if not is_attached(os.environ):
        log.warning(
            "profile=nsys: nsys is not attached, so nothing is recorded; start training with %s",
            how_to_attach(profile),
        )
    return NsysRecorder()


def manifest_of_run(run: Run, warm: WarmUp) -> Manifest:
    """The manifest of a capture, with all that is known before its window opens."""
    config = run.config
    return Manifest(
        schema_version=SCHEMA_VERSION,
        kind=config.profile.kind,
        window=CapturedWindow(),
        rank=run.ranks.rank,
        world_size=run.ranks.world_size,
        device=str(run.ranks.device),
        vocab_size=run.model.lm_head.out_features,
        attention=warm.attention,
        compile=warm.compile,
        environment=environment(),
        config=asdict(config),
        model=describe(config, run.model.lm_head.out_features),
    )


def take_request(folder: Path) -> Trigger | None:
    """Reads the request in `folder` and removes its file.

    None, with a warning, if it cannot be read or its file cannot be removed.
    """
    path = folder / TRIGGER
    request: Trigger | None = None
    try:
        request = read_json(path, Trigger)
    except ValueError as error:
        log.warning("trigger: %s", error)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:  # if the file stayed, each row would open a window
        log.warning("trigger: no window: cannot remove %s: %s", path, error.strerror)
        return None
    return request


def config_with_window(trigger: Trigger, config: Config, iteration: int, ranks: Ranks) -> Config:
    """The configuration with the requested window, `profile.lead` iterations after `iteration`.

    The recorder warms up in between. Raises ValueError with the reason if no such window can be.
    """
    known, steps = config.profile, trigger.steps or config.profile.steps
    if trigger.kind not in KINDS:
        raise ValueError(f"kind {trigger.kind}: must be one of {', '.join(KINDS)}")
    kind, stack = trigger.kind, known.stack
    if kind == STACK:
        kind, stack = "torch", True
    start = str(iteration)
    profile = replace(known, kind=kind, stack=stack, steps=steps, windows=1, start=start)
    profile = replace(profile, start=str(iteration + profile.lead))
    profile.check_machine(ranks.device.type, ranks.world_size)
    attached = is_attached(os.environ)
    if profile.kind == "nsys" and not attached:
        raise ValueError("kind nsys: the run was not started under nsys")
    if profile.kind == "torch" and ranks.device.type == "cuda" and attached:
        raise ValueError("kind torch: nsys is attached, and only one of the two can record the GPU")
    return replace(config, profile=profile)  # which checks that it fits into the run
