"""Tells when a checkpoint is due by the clock, however far apart evaluations are.

Called by train.py.
"""

import time

import torch

from configs.training import TrainingConfig

# Defaults of checkpoint_interval_s. A CPU run is small; that of a GPU takes longer to write.
ON_CPU_S, ELSEWHERE_S = 60.0, 600.0


class SaveTimer:
    """Measures the time since the last checkpoint; with an `interval_s` of 0 none is ever due."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.restart()

    def restart(self) -> None:
        """Starts to count anew, after a checkpoint was made or tried."""
        self.began_s = time.monotonic()

    def is_due(self) -> bool:
        return 0 < self.interval_s <= time.monotonic() - self.began_s


def checkpoint_interval_s(config: TrainingConfig, device: torch.device) -> float:
    """Seconds between checkpoints: the key's, or its default on this kind of device."""
    if config.checkpoint_interval_s is not None:
        return config.checkpoint_interval_s
    return ON_CPU_S if device.type == "cpu" else ELSEWHERE_S
