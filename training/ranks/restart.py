"""Handles a run that torchrun or Slurm starts again after a rank or a host was lost."""

import logging
import os
from dataclasses import replace
from pathlib import Path

from configs.schema import Config

log = logging.getLogger(__name__)

SHARED = (
    "torchrun shares its store with the ranks, and ranks of several hosts find old entries there "
    "after a restart (pytorch issue 135712); for restarts set "
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
)


def apply_go_on(config: Config) -> Config:
    """The configuration with init_from=resume if go_on is set and out_dir has a checkpoint."""
    if config.go_on and (Path(config.out_dir) / "ckpt.pt").is_file():
        return replace(config, init_from="resume")
    return config


def warn_of_restarts(config: Config) -> None:
    """Warns where torchrun's restarts will fail over its shared store, or begin the run anew."""
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    several = os.environ.get("LOCAL_WORLD_SIZE") != os.environ.get("WORLD_SIZE")
    if restarts and several and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        log.warning(SHARED)
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if restarted and not config.go_on and config.init_from != "resume":
        log.warning(
            "torchrun restarted this run, which starts from the beginning; with go_on=true it "
            "would continue instead"
        )
