"""Puts the profiler of section `profile` into a training run. Called by train.py."""

import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from configs.schema import Config
from model import GPT
from profiling.capture.memory import MemoryRecorder
from profiling.capture.nsys import NsysRecorder, how_to_attach, is_attached
from profiling.capture.schedule import Schedule
from profiling.capture.spans import NoSpans, Spans
from profiling.capture.torch_profiler import TorchRecorder
from profiling.capture.window import NoWindow, Recorder, Window
from training.checkpoint import Progress
from training.clock import Clock
from training.distributed import Ranks
from training.run_folder import environment
from training.warm_up import WarmUp

log = logging.getLogger(__name__)


def recorder_for(config: Config, ranks: Ranks) -> Recorder | None:
    """What captures on this rank, if anything; made first, because memory is recorded at once.

    Raises ValueError where nsys is in torch.profiler's way.
    """
    profile = config.profile
    on_cuda = ranks.device.type == "cuda"
    if profile.kind == "torch" and on_cuda and is_attached(os.environ):
        raise ValueError(
            "profile=torch: nsys is attached, and only one of them can record the GPU; "
            "use profile=nsys, or start without nsys"
        )
    if profile.kind == "none" or ranks.rank not in profile.ranks:
        return None
    if profile.kind == "torch":
        return TorchRecorder(profile, on_cuda)
    if profile.kind == "memory":
        return MemoryRecorder(folder_of(config), suffix_of(ranks))
    if not is_attached(os.environ):
        log.warning(
            "profile=nsys: nsys is not attached, so nothing is recorded; start it with %s",
            how_to_attach(profile),
        )
    return NsysRecorder()


def window_for(
    config: Config,
    model: GPT,
    recorder: Recorder | None,
    spans: Spans | NoSpans,
    clock: Clock,
    warm: WarmUp,
    progress: Progress,
    ranks: Ranks,
) -> Window | NoWindow:
    if isinstance(spans, NoSpans):
        return NoWindow()
    schedule = Schedule(
        config.profile,
        progress.iteration,
        config.max_iters,
        config.eval_interval,
        agreed=lambda answer: not ranks.any(not answer),
    )
    facts = facts_of(config, model, warm, ranks) if recorder else None
    return Window(
        config.profile,
        schedule,
        recorder,
        spans,
        clock,
        model,
        folder_of(config),
        suffix_of(ranks),
        facts,
    )


def facts_of(config: Config, model: GPT, warm: WarmUp, ranks: Ranks) -> dict[str, Any]:
    """What a manifest says of the run."""
    return {
        "rank": ranks.rank,
        "world_size": ranks.world_size,
        "device": str(ranks.device),
        "vocab_size": model.lm_head.out_features,
        "attention": asdict(warm.attention),
        "compile": {
            "compile": config.compile,
            "cuda_graphs": config.cuda_graphs == "true",
            "graphs": warm.compiled_graphs,
            "graph_breaks": warm.graph_breaks,
            "compile_s": warm.compile_s,
            "capture_s": warm.capture_s,
        },
        "environment": environment(),
        "config": asdict(config),
    }


def folder_of(config: Config) -> Path:
    return Path(config.out_dir) / "profile"


def suffix_of(ranks: Ranks) -> str:
    """Files of several ranks lie side by side."""
    return f"-rank{ranks.rank}" if ranks.world_size > 1 else ""
