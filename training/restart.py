"""A run that torchrun or Slurm starts again, after a rank or a host was lost."""

import logging
import os
from dataclasses import replace
from pathlib import Path

from configs.schema import Config

log = logging.getLogger(__name__)


SHARED = (
    "torchrun shares its store with the ranks, and those of several hosts find there what their "
    "last life left (pytorch issue 135712); for restarts set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
)


def begun_or_gone_on(config: Config) -> Config:
    """What the run is to begin from: with go_on a checkpoint of out_dir, where there is one."""
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    several = os.environ.get("LOCAL_WORLD_SIZE") != os.environ.get("WORLD_SIZE")
    if restarts and several and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        log.warning(SHARED)
    if config.init_from == "resume":
        return config
    if config.go_on and (Path(config.out_dir) / "ckpt.pt").is_file():
        return replace(config, init_from="resume")
    if not config.go_on and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        log.warning("torchrun restarted this run, which begins anew; go_on=true goes on instead")
    return config
