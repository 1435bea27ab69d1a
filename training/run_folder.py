"""The run's folder documents the run: config.yaml and environment.json, written at its start."""

import logging
import os
import platform
import shlex
import subprocess
import sys
from dataclasses import asdict
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path

import torch
from omegaconf import OmegaConf

from cli.files import write_text
from configs.schema import Config
from profiling.records import JsonObject, to_json
from profiling.run_files import RUN_FILES

log = logging.getLogger(__name__)

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("torch", "numpy", "triton", "hydra-core", "omegaconf", "wandb", "nvtx", "tiktoken")


def open_run_folder(config: Config, in_force: JsonObject) -> Path:
    """Rank 0 makes out_dir and describes the run in it. Raises ValueError naming out_dir.

    A finished run that lies there is moved to out_dir/previous-N, not overwritten.
    """
    out_dir = Path(config.out_dir)
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        if config.init_from == "scratch":
            move_aside(out_dir)
    except OSError as error:
        raise ValueError(
            f"out_dir={config.out_dir}: cannot write there: {error.strerror}"
        ) from error
    settled = OmegaConf.to_yaml(OmegaConf.create(asdict(config)))
    facts = OmegaConf.to_yaml(OmegaConf.create({"in_force": in_force}))
    write_text(
        out_dir / "config.yaml",
        f"# every key of this run; again: python train.py {shlex.quote(f'{out_dir}/config.yaml')}\n"
        f"{settled}"
        f"\n# what the keys came to here; ignored when this file is read\n{facts}",
    )
    write_text(out_dir / "environment.json", to_json(environment()))
    return out_dir


def move_aside(out_dir: Path) -> None:
    present = [out_dir / name for name in RUN_FILES if (out_dir / name).exists()]
    if not present:
        return
    folders = (out_dir / f"previous-{number}" for number in count(1))
    folder = next(folder for folder in folders if not folder.exists())
    folder.mkdir()
    for path in present:
        os.rename(path, folder / path.name)
    log.info("the run that lay in %s is now in %s", out_dir, folder)


@cache  # git is asked once, for environment.json and for manifests
def environment() -> JsonObject:
    """Versions, hardware and commit: what is needed to know whether two runs compare."""
    facts: JsonObject = {
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_cores": os.cpu_count(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "git": git_state(),
        "cuda": torch.version.cuda,
        "gpus": [],
    }
    if torch.cuda.is_available():
        facts["cudnn"] = torch.backends.cudnn.version()
        facts["gpus"] = [
            {"name": p.name, "memory_bytes": p.total_memory, "capability": f"{p.major}.{p.minor}"}
            for p in map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        ]
    return facts


def package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def git_state() -> JsonObject | None:
    """Commit and whether files differ from it; None outside a checkout."""
    ask = partial(
        subprocess.check_output, cwd=PROJECT, text=True, stderr=subprocess.DEVNULL, timeout=10
    )
    try:
        commit = ask(["git", "rev-parse", "HEAD"]).strip()
        return {"commit": commit, "dirty": bool(ask(["git", "status", "--porcelain"]))}
    except (OSError, subprocess.SubprocessError):
        return None
