"""The files of a run, an experiment or a prepared text: their names, and the records of small ones.

No verb overwrites them, and removing an earlier run removes these files and no others.
training.disk.run_folder writes the files, profiling.verbs.results asks for the rule.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

# Times of all iterations since the last start of a run, the first ones included. metrics.jsonl has
# medians over the iterations that were logged together, which hide slow first ones.
STEP_TIMES = "step_times.json"
STEP_TIMES_OF_RANK_0 = "step_times-rank0.json"  # of a program of several ranks that is not ours


@dataclass(frozen=True)
class StepTimes:
    first_iteration: int
    # one time per iteration; None if it was logged together with one under a profiler
    ms: list[float | None] = field(default_factory=list)


# The request of `python -m profiling trigger` for a window in a run that is under way. Rank 0 looks
# for it when it logs a row, and removes it (training.profiler, and the hook's run_files.py).
TRIGGER = "trigger.json"
STACK = "stack"  # torch.profiler, with Python's functions
KINDS = ("torch", STACK, "memory", "nsys")


@dataclass(frozen=True)
class Trigger:
    kind: str  # of KINDS
    steps: int | None = None  # iterations; the run's profile.steps if None


# PyTorch's flight recorder keeps the last collectives of a rank in memory. torch dumps them when
# NCCL's watchdog runs out of patience, training.ranks.flight_recorder when a run dies or is asked.
# `python -m profiling hang` reads the dumps in OUT_DIR/profile.
DUMP = "flight-rank"  # the rank's number follows, without an ending: torch names its files so
HOSTS_GROUP = "hosts"  # torch's description of the group by which all hosts of a run talk
EARLIER = f"earlier-{DUMP}"  # a dump of the run before a resume
REQUEST = "flight-request"  # asks the ranks of a run for their dumps; a rank that dies signs it
LOOK_S = 2.0  # between two looks for a request


@dataclass(frozen=True)
class Note:
    """The trainer's JSON at the end of a dump, after torch's part.

    torch's part is a pickle from each of its recorders: NCCL's calls, then gloo's.
    """

    rank: int
    world_size: int
    dumped_ns: int  # since 1970
    host: str
    pid: int
    error: str | None = None  # the error that ended the rank
    in_collective: bool = False  # the error came out of the rank's very last collective
    # frames of the rank's main thread, as `place` spells them
    stack: list[str] = field(default_factory=list)


def place(filename: str, line: int, function: str) -> str:
    """Spell a stack frame as FOLDER/FILE:LINE in FUNCTION.

    Only the file's own folder is kept: enough to find it, without anybody's home folder.
    """
    file = "/".join(re.split(r"[/\\]", filename)[-2:])
    return f"{file}:{line} in {function}"


METRICS = "metrics.jsonl"
# what the hook leaves of a program of others beside the files of a run (profiling/attach)
FACTS = "facts"  # folder of rankN.json: profiling.shared.program_facts
PROCESSES = "processes.jsonl"
HOOK_FILES = (
    r"metrics-rank\d+\.jsonl|step_times-rank\d+\.json|trained-rank\d+|trigger-ranks\.json"
    rf"|{PROCESSES}"
)
CHECKPOINTS = ("ckpt.pt", "ckpt_best.pt")
SHARDS = "ckpt_shards"  # the folder that a checkpoint of parallel=fsdp or hsdp has beside it
# what a run leaves in its out_dir; moved together when a run is moved aside
RUN_FILES = (
    *("config.yaml", "environment.json", METRICS, "summary.json", "wandb"),
    *(*CHECKPOINTS, SHARDS, "profile", "sample", "tensorboard", STEP_TIMES),
    *(FACTS, PROCESSES),
)
# first bytes of the files that mark a folder as a run of ours
BEGINNINGS = {"config.yaml": b"# every key of this run", METRICS: b'{"run":'}
UNFINISHED = r"(\.\d+)?\.tmp"  # suffix of a file's name while it is written
CAPTURES = r".+\.(sqlite|sqlite\.gz|trace\.json|trace\.json\.gz|nsys-rep|pickle|operators\.txt)"
DEEPEST = 4  # folders searched upwards from a file for its owner: sample/profile/NAME, wandb's


@dataclass(frozen=True)
class Owner:
    """A kind of folder whose files nobody else may write."""

    name: str
    marks: tuple[str, ...]  # files; a folder with one of them is such a folder
    files: re.Pattern[str]  # the protected files, relative to the folder


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
            rf"|{HOOK_FILES}"
            rf"|{FACTS}/rank\d+\.json"
        ),
    ),
    Owner("experiment", ("results.json",), re.compile(r"results\.json")),
    Owner("series", ("bench.json",), re.compile(r"bench\.json")),
    Owner("prepared text", ("train.bin",), re.compile(r"(train|val)\.bin|(meta|vocab)\.json")),
)


def check_output(path: Path, *inputs: Path) -> None:
    """Raise ValueError if writing `path` would overwrite an input or a file of a run.

    `inputs` are files and folders that are read. A link counts as what it points to.
    """
    for source in inputs:
        for file in own_files(source) if source.is_dir() else (source,):
            if is_same(path, file):
                raise ValueError(f"{path}: this command reads {file}; name another output file")
    if kind_and_folder := owner(path):
        kind, folder = kind_and_folder
        raise ValueError(
            f"{path}: this file belongs to the {kind} in {folder}; name another output file"
        )


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths are the same, or the same file under two names."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


def owner(path: Path) -> tuple[str, Path] | None:
    """(kind of owner, its folder) of a file that belongs to a run or another kind in OWNERS, or
    None for any other file."""
    real = Path(os.path.realpath(path))
    for folder in real.parents[:DEEPEST]:
        name = real.relative_to(folder).as_posix()
        for kind in OWNERS:
            if kind.files.fullmatch(name) and any((folder / mark).exists() for mark in kind.marks):
                return kind.name, folder
    return None


def own_files(folder: Path) -> Iterator[Path]:
    """Files of the run in `folder`, its captures included, whatever the names of its links."""
    for place in (folder, folder / "profile"):
        for file in place.iterdir() if place.is_dir() else ():
            if file.is_file() and owner(file):
                yield file


def is_run(folder: Path) -> bool:
    """Whether `folder` holds a run of ours, judged by the first bytes of its files."""
    for name, beginning in BEGINNINGS.items():
        with suppress(OSError), open(folder / name, "rb") as file:
            if file.read(len(beginning)) == beginning:
                return True
    return False


def remove_run(folder: Path) -> list[Path]:
    """Remove the run in `folder`, and the folder itself if nothing else is in it.

    Returns the paths that are not the run's own and stay. Raises OSError if the disk refuses.
    """
    if folder.is_symlink():  # its target stays
        folder.unlink()
        return []
    if not is_run(folder):
        return [folder] if folder.exists() else []
    left = [other for path in list(folder.iterdir()) for other in remove_of_run(path)]
    if not left:
        folder.rmdir()
    return left


def remove_of_run(path: Path) -> list[Path]:
    """Remove one entry of a run's folder as far as it is the run's own; return the paths that stay.

    A link is removed, its target stays.
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
        for file in (Path(place, name) for name in [*files, *links]):
            name = re.sub(rf"{UNFINISHED}$", "", file.relative_to(path.parent).as_posix())
            if name in RUN_FILES or OWNERS[0].files.fullmatch(name):
                file.unlink()
            else:
                left.append(file)
        if Path(place) != path.parent:
            with suppress(OSError):  # something is left in it
                os.rmdir(place)
    return left
