"""The run's folder: gives it one owner, and writes config.yaml and environment.json there."""

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from omegaconf import OmegaConf

from cli import process
from cli.files import replacement_for, write_text
from cli.lock import NAME as LOCK
from cli.lock import InUse, Lock
from cli.plain import plain
from configs.schema import Config
from profiling.recording.nvml import driver_version
from profiling.shared.json_records import JsonObject, to_json
from profiling.shared.run_files import BEGINNINGS, RUN_FILES, UNFINISHED
from profiling.shared.secrets import without_secret_values
from training.disk.checkpoint_file import read_checkpoint
from training.disk.previous_runs import check_previous, make_way
from training.disk.same_run import check_keys
from training.disk.shard_index import remove_unnamed
from training.ranks.distributed import Ranks

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "numpy", "triton", "hydra-core", "omegaconf", "wandb", "nvtx", "tiktoken")


@dataclass
class RunFolder:
    """out_dir, which this run alone writes to. Rank 0 has the lock, and keeps what it wrote."""

    path: Path
    lock: Lock | None = None  # None on ranks that write nothing
    texts: dict[str, str] = field(default_factory=dict)  # files that describe the run, by name
    lost: bool = False  # the folder was deleted, and another run has its name by now

    def missing(self) -> list[str]:
        """Names of files that somebody removed: those that describe the run, and the lock."""
        if self.lock is None:
            return []
        names = [name for name in self.texts if not (self.path / name).exists()]
        return names if self.lock.is_held() else [*names, LOCK]

    def make_again(self) -> None:
        """Takes the lock again and writes the missing files from memory.

        Raises ValueError if they cannot be written, and SystemExit if another run has taken the
        folder, of which nothing may be touched.
        """
        try:
            if self.lock:
                self.lock.take()
        except InUse as error:
            self.lost = True
            raise SystemExit(
                f"train.py: the folder was deleted during the run, and {error}"
            ) from None
        for name in self.missing():
            write_text(self.path / name, self.texts[name])


@contextmanager
def own_folder(config: Config, ranks: Ranks) -> Iterator[RunFolder]:
    """Owns out_dir within the block: rank 0 locks it. Raises ValueError as `lock_folder` does."""
    folder = RunFolder(Path(config.out_dir))
    with ExitStack() as until_the_end:

        def take() -> None:
            folder.lock = until_the_end.enter_context(lock_folder(config))

        ranks.from_first(take)
        yield folder


@contextmanager
def lock_folder(config: Config) -> Iterator[Lock]:
    """Locks out_dir within the block, which must enclose everything that is written there.

    Raises ValueError if out_dir cannot be written, if another process owns it, if a run lies there
    that keep_previous forbids to move, and if there is no checkpoint to resume or its keys differ.
    """
    folder = Path(config.out_dir)
    with Lock(folder, f"out_dir={config.out_dir}") as lock:
        if config.init_from != "resume":
            check_previous(folder, config.keep_previous)
        else:
            check_keys(read_checkpoint(folder / "ckpt.pt", at_a_glance=True), config)
        yield lock


def open_run_folder(folder: RunFolder, config: Config, in_force: JsonObject) -> None:
    """Writes config.yaml and environment.json into out_dir; for rank 0.

    An earlier run that lies there is moved, but only once the new files have found room on the
    disk. Raises ValueError if they cannot be written.
    """
    # Permission to change a run has to be given at each resume, so it is not written down.
    keys_text = OmegaConf.to_yaml(OmegaConf.create(asdict(config) | {"exact_resume": True}))
    facts = OmegaConf.to_yaml(OmegaConf.create({"in_force": in_force}))
    again = plain(shlex.quote(f"{folder.path}/config.yaml"))  # a comment is one line
    folder.texts["config.yaml"] = (
        f"{BEGINNINGS['config.yaml'].decode()}; again: python train.py {again}\n{keys_text}\n# "
        f"the resulting values in this run; ignored when this file is read\n{facts}"
    )
    folder.texts["environment.json"] = to_json(environment())
    with ExitStack() as until_moved:
        remove_unfinished(folder.path)
        for name, text in folder.texts.items():
            temporary = until_moved.enter_context(replacement_for(folder.path / name))
            temporary.write_text(text, encoding="utf-8")
        if config.init_from != "resume":
            make_way(folder.path, config.keep_previous)


def remove_unfinished(folder: Path) -> None:
    """Removes files that a killed process had begun to write."""
    names = "|".join(map(re.escape, RUN_FILES))
    for path in folder.glob("*.tmp"):
        if re.fullmatch(rf"({names}){UNFINISHED}", path.name):
            path.unlink(missing_ok=True)
    remove_unnamed(folder)


@cache  # git is asked once, for environment.json and for manifests
def environment() -> JsonObject:
    """Versions, hardware and commit, by which to judge whether two runs can be compared."""
    facts: JsonObject = {
        "command": without_secret_values(sys.argv),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_cores": os.cpu_count(),
        "usable_cores": process.usable_cores(),
        "compute_threads": torch.get_num_threads(),
        "openmp": process.wait_variables(),
        # a package of PyTorch from PyPI does not say for which CUDA it was built; PyTorch does
        "packages": {name: package_version(name) for name in PACKAGES}
        | {"torch": str(torch.__version__)},
        "git": git_state(),
        "cuda": torch.version.cuda,
        "driver": None,
        "gpus": [],
    }
    if torch.cuda.is_available():
        facts["driver"] = driver_version()
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
    """Commit, and whether files differ from it; None outside a checkout of this project.

    An installed copy may lie within a repository of the user's, whose commit is not this project's.
    """
    if not (PROJECT / ".git").exists():
        return None
    # Without optional locks: a run killed right now would leave git's index locked.
    ask = ["git", "--no-optional-locks", "status"]
    ask += ["--porcelain=v2", "--branch", "--no-ahead-behind"]
    try:
        lines = subprocess.check_output(
            ask, cwd=PROJECT, text=True, stderr=subprocess.DEVNULL, timeout=10
        ).splitlines()
        (commit,) = (line.split()[-1] for line in lines if line.startswith("# branch.oid "))
        if commit == "(initial)":
            return None
        return {"commit": commit, "dirty": not all(line.startswith("# ") for line in lines)}
    except (OSError, subprocess.SubprocessError):
        return None
