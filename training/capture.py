"""Puts the profiler of section `profile` into a training run. Called by train.py."""

import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from configs.capture import ProfileConfig
from configs.schema import Config
from profiling.capture.memory import MemoryRecorder
from profiling.capture.nsys import NsysRecorder, how_to_attach, is_attached
from profiling.capture.recording import NoRecording, Recorder, Recording
from profiling.capture.schedule import Schedule
from profiling.capture.spans import Spans, spans_for
from profiling.capture.torch_profiler import TorchRecorder
from profiling.capture.window import Window
from profiling.manifest import SCHEMA_VERSION, CapturedWindow, Manifest
from training.clock import Clock
from training.distributed import Ranks
from training.run import Run
from training.run_folder import environment
from training.warm_up import WarmUp

log = logging.getLogger(__name__)


@dataclass
class Profiler:
    """What `profile` means on this rank: the ranges from the beginning, the window for the loop.

    Raises ValueError where nsys is in torch.profiler's way.
    """

    config: Config
    ranks: Ranks

    def __post_init__(self) -> None:
        self.folder = Path(self.config.out_dir) / "profile"
        self.spans = spans_for(self.config.profile.kind)
        self.recorder = self.recorder_of_rank()  # now, because memory is recorded at once

    def recorder_of_rank(self) -> Recorder | None:
        profile, on_cuda = self.config.profile, self.ranks.device.type == "cuda"
        check_alone(profile, on_cuda)
        if self.ranks.rank not in profile.ranks:
            return None
        return recorder_for(profile, on_cuda, self.folder, self.ranks.suffix)

    def window(self, run: Run, warm: WarmUp, clock: Clock) -> Window:
        """For the loop; it never opens without `profile=`."""
        profile = run.config.profile
        schedule = Schedule(
            profile,
            run.progress.iteration,
            run.config.max_iters,
            run.config.eval_interval,
            agreed=lambda answer: not run.ranks.any(not answer),
        )
        recording: Recording | NoRecording = NoRecording()
        if self.recorder and isinstance(self.spans, Spans):
            known = manifest_of_run(run, warm)
            recording = Recording(
                self.recorder, profile, self.spans, run.model, self.folder, known, run.ranks.suffix
            )
        return Window(profile, schedule, recording, self.spans, clock)


def check_alone(profile: ProfileConfig, on_cuda: bool) -> None:
    """Raises ValueError where nsys is in torch.profiler's way."""
    if profile.kind == "torch" and on_cuda and is_attached(os.environ):
        raise ValueError(
            "profile=torch: nsys is attached, and only one of them can record the GPU; "
            "use profile=nsys, or start without nsys"
        )


def recorder_for(
    profile: ProfileConfig, on_cuda: bool, folder: Path, suffix: str = ""
) -> Recorder | None:
    """What records a window of this kind; None: there is none."""
    if profile.kind == "none":
        return None
    if profile.kind == "torch":
        return TorchRecorder(profile, on_cuda)
    if profile.kind == "memory":
        return MemoryRecorder(folder / f"out-of-memory{suffix}.pickle")
    if not is_attached(os.environ):
        log.warning(
            "profile=nsys: nsys is not attached, so nothing is recorded; start it with %s",
            how_to_attach(profile),
        )
    return NsysRecorder()


def manifest_of_run(run: Run, warm: WarmUp) -> Manifest:
    """What is known before there is a window."""
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
    )
