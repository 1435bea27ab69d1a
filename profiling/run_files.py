"""The files that belong to a run, an experiment, a prepared text: no verb writes onto them.

Names alone, which training.run_folder writes; the rule is asked for by profiling.verbs.results.
What removes an earlier run removes these files and no others.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from profiling.flight_recorder import DUMP, EARLIER, REQUEST
from profiling.step_times import STEP_TIMES

METRICS = "metrics.jsonl"
CHECKPOINTS = ("ckpt.pt", "ckpt_best.pt")
SHARDS = "ckpt_shards"  # the folder that a checkpoint of parallel=fsdp or hsdp has beside it
# what a run leaves in its out_dir, and takes along when it is moved aside
RUN_FILES = (
    *("config.yaml", "environment.json", METRICS, "summary.json", "wandb"),
    *(*CHECKPOINTS, SHARDS, "profile", "sample", "tensorboard", STEP_TIMES),
)
# how the files begin that say of a folder that a run of ours lies there
BEGINNINGS = {"config.yaml": b"# every key of this run", METRICS: b'{"run":'}
UNFINISHED = r"(\.\d+)?\.tmp"  # behind the name of a file, while it is written
CAPTURES = r".+\.(sqlite|sqlite\.gz|trace\.json|trace\.json\.gz|nsys-rep|pickle|operators\.txt)"
DEEPEST = 4  # folders between such a file and the folder that owns it: sample/profile/NAME, wandb's


@dataclass(frozen=True)
class Owner:
    """A kind of folder whose files are nobody else's to write."""

    name: str
    marks: tuple[str, ...]  # a folder with one of these is such a folder
    files: re.Pattern[str]  # relative to it


OWNERS = (
    Owner(
        "run",
        (METRICS, "ckpt.pt"),
        re.compile(
            r"config\.yaml|environment\.json|metrics\.jsonl|summary\.json|step_times\.json|run\.lock"
            r"|trigger\.json"
            rf"|multirun\.yaml|ckpt[^/]*\.pt|({SHARDS}|wandb|tensorboard|compiled)/.+"
            rf"|(sample/)?profile/(window-\d+(-rank\d+)?\.json|{CAPTURES})"
            rf"|profile/(({DUMP}|{EARLIER})\d+|{REQUEST})"
        ),
    ),
    Owner("experiment", ("results.json",), re.compile(r"results\.json")),
    Owner("series", ("bench.json",), re.compile(r"bench\.json")),
    Owner("prepared text", ("train.bin",), re.compile(r"(train|val)\.bin|(meta|vocab)\.json")),
)


def check_output(path: Path, *inputs: Path) -> None:
    """Refuses to write onto what is read, or onto a file of a run. Raises ValueError.

    `inputs` are files and folders that are read. Links count as what they lead to.
    """
    for source in inputs:
        for file in own_files(source) if source.is_dir() else (source,):
            if is_same(path, file):
                raise ValueError(f"{path}: is read by this command ({file}); name another file")
    if owned := owner(path):
        kind, folder = owned
        raise ValueError(f"{path}: belongs to the {kind} in {folder}; name another file")


def is_same(one: Path, other: Path) -> bool:
    """By path, or the same file under two names."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


def owner(path: Path) -> tuple[str, Path] | None:
    """(run, its folder) of a run's own file, and the like of the others; None of all else."""
    real = Path(os.path.realpath(path))
    for folder in real.parents[:DEEPEST]:
        name = real.relative_to(folder).as_posix()
        for kind in OWNERS:
            if kind.files.fullmatch(name) and any((folder / mark).exists() for mark in kind.marks):
                return kind.name, folder
    return None


def own_files(folder: Path) -> Iterator[Path]:
    """The files of the run in `folder`, whatever their names here: its own, and its captures."""
    for place in (folder, folder / "profile"):
        for file in place.iterdir() if place.is_dir() else ():
            if file.is_file() and owner(file):
                yield file


def is_run(folder: Path) -> bool:
    """Whether a run of ours lies there, by how its own files begin."""
    for name, beginning in BEGINNINGS.items():
        with suppress(OSError), open(folder / name, "rb") as file:
            if file.read(len(beginning)) == beginning:
                return True
    return False


def remove_run(folder: Path) -> list[Path]:
    """Removes the run that lies in `folder`, and the folder where nothing else is in it.

    Returns what is not the run's own, and stays. Raises OSError where the disk refuses.
    """
    if folder.is_symlink():  # what it leads to stays
        folder.unlink()
        return []
    if not is_run(folder):
        return [folder] if folder.exists() else []
    left = [other for path in list(folder.iterdir()) for other in remove_of_run(path)]
    if not left:
        folder.rmdir()
    return left


def remove_of_run(path: Path) -> list[Path]:
    """Removes one of the entries of a run's folder as far as it is the run's own; returns the rest.

    A link goes, what it leads to stays.
    """
    if path.is_symlink() or not path.is_dir():
        places = [(str(path.parent), list[str](), [path.name])]
    elif path.name in RUN_FILES:
        places = [*os.walk(path, topdown=False)]
    else:
        return [path]
    left = []
    for place, folders, files in places:
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for found in (Path(place, name) for name in [*files, *links]):
            name = re.sub(rf"{UNFINISHED}$", "", found.relative_to(path.parent).as_posix())
            if name in RUN_FILES or OWNERS[0].files.fullmatch(name):
                found.unlink()
            else:
                left.append(found)
        if Path(place) != path.parent:
            with suppress(OSError):  # something is left in it
                os.rmdir(place)
    return left
