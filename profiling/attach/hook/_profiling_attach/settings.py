"""The settings that `profiling run` passes to the hook, in one environment variable."""

import json
import os
from typing import NamedTuple, Optional

VARIABLE = "PROFILING_ATTACH"


class Settings(NamedTuple):
    folder: str  # of the run; absolute
    command: list  # as typed, without secrets
    kind: str  # of the window: torch | nsys | memory | none
    start: Optional[int]  # first step of the window; None: as soon as step times are steady
    steps: int  # in the window
    step: Optional[str]  # kind of mark that ends a step; None: by the rule
    stop_after: Optional[int]  # steps after which the process ends; None: at its own end
    stack: bool = False  # torch.profiler also records Python's functions
    every_step: bool = False  # all steps are timed, however short they are
    samples: Optional[str] = None  # socket that starts py-spy; None: it is not installed


def read_settings():
    """Settings of this process, or None where no `profiling run` started it."""
    text = os.environ.get(VARIABLE)
    return Settings(**json.loads(text)) if text else None
