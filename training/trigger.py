"""Opens a window that a user asks for while the run is under way. Called by training.capture.

Rank 0 looks for a file when it logs a row, and all ranks act on the request that it read there.
"""

import logging
import os
from dataclasses import replace
from pathlib import Path

from configs.schema import Config
from profiling.capture.nsys import is_attached
from profiling.shared.records import read_json
from profiling.shared.trigger import KINDS, TRIGGER, Trigger
from training.ranks.distributed import Ranks

log = logging.getLogger(__name__)


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
    profile = replace(known, kind=trigger.kind, steps=steps, windows=1, start=str(iteration))
    profile = replace(profile, start=str(iteration + profile.lead))
    profile.check_machine(ranks.device.type, ranks.world_size)
    attached = is_attached(os.environ)
    if profile.kind == "nsys" and not attached:
        raise ValueError("kind nsys: the run was not started under nsys")
    if profile.kind == "torch" and ranks.device.type == "cuda" and attached:
        raise ValueError("kind torch: nsys is attached, and only one of the two can record the GPU")
    return replace(config, profile=profile)  # which checks that it fits into the run
