"""Adds the profiler that section `profile` describes to a training run. Called by train.py."""

import logging
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from configs.capture import ProfileConfig
from configs.schema import Config
from profiling.capture.memory import MemoryRecorder
from profiling.capture.nsys import NsysRecorder, how_to_attach, is_attached
from profiling.capture.recording import NoRecording, Recorder, Recording
from profiling.capture.schedule import Schedule
from profiling.capture.spans import NoSpans, Spans, spans_for
from profiling.capture.torch_profiler import TorchRecorder
from profiling.capture.window import Window
from profiling.shared.manifest import SCHEMA_VERSION, CapturedWindow, Manifest
from profiling.shared.trigger import TRIGGER
from training.disk.run import Run
from training.disk.run_folder import environment
from training.machine.model_description import describe
from training.ranks.distributed import Ranks
from training.step.clock import CudaClock, HostClock
from training.step.warm_up import WarmUp
from training.trigger import config_with_window, take_request

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
