"""The run's folder: one owner, and config.yaml and environment.json, which document the run."""

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from omegaconf import OmegaConf

from cli import threads
from cli.files import replacement_for, write_text
from cli.lock import NAME as LOCK
from cli.lock import InUse, Lock
from cli.plain import plain
from configs.schema import Config
from profiling.capture.nvml import driver_version
from profiling.records import JsonObject, to_json
from profiling.run_files import BEGINNINGS, RUN_FILES, UNFINISHED
from training.checkpoint_file import opened
from training.distributed import Ranks
from training.previous_runs import check_previous, make_way
from training.same_run import check_keys
from training.shard_index import remove_unnamed

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("torch", "numpy", "triton", "hydra-core", "omegaconf", "wandb", "nvtx", "tiktoken")


@dataclass
class RunFolder:
    """out_dir, which this run alone writes to. Rank 0 has the lock, and knows what it wrote."""

    path: Path
    lock: Lock | None = None  # None: of a rank that writes nothing
    texts: dict[str, str] = field(default_factory=dict)  # by name: what describes the run
    lost: bool = False  # deleted, and another run's by now

    def missing(self) -> list[str]:
        """What somebody removed: of the texts that describe the run, and the lock."""
        if self.lock is None:
            return []
        gone = [name for name in self.texts if not (self.path / name).exists()]
        return gone if self.lock.is_held() else [*gone, LOCK]

    def make_again(self) -> None:
        """What is missing, from memory. Raises ValueError where it cannot be written.

        Raises SystemExit where another run has taken the place: nothing of it may be touched.
        """
        try:
            if self.lock:
                self.lock.take()
        except InUse as error:
            self.lost = True
            raise SystemExit(f"train.py: deleted in the midst of the run, and {error}") from None
        for name in self.missing():
            write_text(self.path / name, self.texts[name])


@contextmanager
def owned(config: Config, ranks: Ranks) -> Iterator[RunFolder]:
    """out_dir on every rank, locked by the first until the end. Raises ValueError as `locked`."""
    folder = RunFolder(Path(config.out_dir))
    with ExitStack() as until_the_end:

        def take() -> None:
            folder.lock = until_the_end.enter_context(locked(config))

        ranks.from_first(take)
        yield folder


@contextmanager
def locked(config: Config) -> Iterator[Lock]:
    """Around all that is written into out_dir, before anything is made for it.

    Raises ValueError where it cannot be written, where another process owns it, where a run lies
    there that keep_previous does not want moved, and where there is none to resume, or another one.
    """
    folder = Path(config.out_dir)
    with Lock(folder, f"out_dir={config.out_dir}") as lock:
        if config.init_from != "resume":
            check_previous(folder, config.keep_previous)
        else:
            check_keys(opened(folder / "ckpt.pt", at_a_glance=True), config)
        yield lock


def open_run_folder(folder: RunFolder, config: Config, in_force: JsonObject) -> None:
    """Rank 0 describes the run in out_dir. Raises ValueError where it cannot be written.

    A run that lies there makes way, not before there is room for what describes the new one.
    """
    # what a resume may change is asked for each time
    settled = OmegaConf.to_yaml(OmegaConf.create(asdict(config) | {"exact_resume": True}))
    facts = OmegaConf.to_yaml(OmegaConf.create({"in_force": in_force}))
    again = plain(shlex.quote(f"{folder.path}/config.yaml"))  # a comment is one line
    folder.texts["config.yaml"] = (
        f"{BEGINNINGS['config.yaml'].decode()}; again: python train.py {again}\n{settled}"
        f"\n# what the keys came to here; ignored when this file is read\n{facts}"
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
    """What a killed process had begun to write."""
    names = "|".join(map(re.escape, RUN_FILES))
    for path in folder.glob("*.tmp"):
        if re.fullmatch(rf"({names}){UNFINISHED}", path.name):
            path.unlink(missing_ok=True)
    remove_unnamed(folder)


@cache  # git is asked once, for environment.json and for manifests
def environment() -> JsonObject:
    """Versions, hardware and commit: what is needed to know whether two runs compare."""
    facts: JsonObject = {
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_cores": os.cpu_count(),
        "usable_cores": threads.usable_cores(),
        "compute_threads": torch.get_num_threads(),
        "openmp": threads.wait_variables(),
        "packages": {name: package_version(name) for name in PACKAGES},
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
    """Commit and whether files differ from it; None outside a checkout.

    What is installed may lie in a repository of the user's, whose commit says nothing of this.
    """
    if not (PROJECT / ".git").exists():
        return None
    ask = partial(
        subprocess.check_output, cwd=PROJECT, text=True, stderr=subprocess.DEVNULL, timeout=10
    )
    try:
        commit = ask(["git", "rev-parse", "HEAD"]).strip()
        # without locks: a run that is killed now would leave its index locked
        status = ask(["git", "--no-optional-locks", "status", "--porcelain"])
        return {"commit": commit, "dirty": bool(status)}
    except (OSError, subprocess.SubprocessError):
        return None
