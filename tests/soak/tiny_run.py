"""Tiny training that the trials disturb: its undisturbed end, and the difference of another end.

Whatever happens to it on the way, its end has to be bitwise equal to that of an undisturbed one.
"""

import json
import signal
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.soak import forks
from tests.soak.forks import ProcessEnd
from tests.soak.moments import call_on_entry
from training.disk import checkpoint_file, whole_checkpoint

ITERATIONS, SAVED_EACH = 60, 5
WORDS = (
    f"out_dir=run device=cpu compile=false data_source=text.txt n_layer=1 n_head=2 n_embd=16 "
    f"block_size=16 batch_size=2 dropout=0.1 max_iters={ITERATIONS} eval_iters=1 log_interval=1 "
    f"eval_interval={SAVED_EACH} always_save_checkpoint=true wandb.mode=disabled"
).split()
LOSSES = ("train/loss", "val/loss", "eval/train_loss")
SAVE, ROW = "training.disk.checkpoint.write", "training.metrics.tracker.Tracker.log"


@dataclass(frozen=True)
class Whole:
    """A training that nothing disturbed."""

    end: dict[str, object]  # as read_end() gives it
    wall_s: float


@contextmanager
def own_folder() -> Iterator[Path]:
    """Change into a new folder for the block, with a text in it, where texts are prepared too."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name, chdir(name):
        forks.use_data_folder(Path(name) / "data")
        Path("text.txt").write_text("To be, or not to be, that is the question.\n" * 60, "utf-8")
        yield Path(name)


def train_whole(words: list[str], limit_s: float) -> Whole:
    """Train into the folder `run` without disturbance. Raises ValueError where it fails."""
    ended = forks.run_in_fork(forks.program("train", [*WORDS, *words]), {}, limit_s)
    if ended.status:
        raise ValueError(f"the training without interruption failed: {ended.err}")
    return Whole(read_end(Path("run")), ended.wall_s)


def leave_half(folder: str, limit_s: float) -> None:
    """Leave in `folder` what a training leaves that is killed after the save halfway."""
    call = forks.program("train", [*WORDS, f"out_dir={folder}"])
    half = ITERATIONS // 2
    rows = iter(range(half + half // SAVED_EACH + 1))  # of iterations, and of evaluations

    def kill_at_the_next() -> None:
        if next(rows, None) is None:
            signal.raise_signal(signal.SIGKILL)

    ended = forks.run_in_fork(call_on_entry(call, ROW, kill_at_the_next), {}, limit_s)
    if ended.status != -signal.SIGKILL:
        raise ValueError(f"the training up to its middle failed: {ended.err}")


def fault_of(ended: ProcessEnd) -> str | None:
    """Traceback or hang, which no process may show whatever happened to it; None without one."""
    last = " ".join(ended.err.split())[-200:]
    if "Traceback (most recent call last)" in ended.err + ended.out:
        return f"traceback: {last}"
    return f"hung for {ended.wall_s:.0f} s" if ended.status is None else None


def saved_iteration(folder: Path) -> int | None:
    """Iteration that ckpt.pt holds, or None without one. Raises ValueError if it is damaged."""
    path = folder / "ckpt.pt"
    return whole_checkpoint.load(path).iteration if path.exists() else None


def read_end(folder: Path) -> dict[str, object]:
    """End of a training: its state without the configuration, and its losses."""
    state = checkpoint_file.read_state(folder / "ckpt.pt")
    state.pop("config")
    return {"state": state, "losses": {key: value for key, value in rows(folder)}}


def rows(folder: Path) -> Iterator[tuple[tuple[int, str], float]]:
    """((iteration, name), loss) in metrics.jsonl; work that was done twice is there twice."""
    for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        yield from (((row["iter"], name), row[name]) for name in LOSSES if name in row)


def difference(expected: object, found: object, place: str = "") -> str | None:
    """First place where two states are not bitwise equal, as a message, or None."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if set(expected) != set(found):
            return f"{place}: other entries"
        pairs = (
            (difference(value, found[key], f"{place}/{key}")) for key, value in expected.items()
        )
        return next(filter(None, pairs), None)
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        both = enumerate(zip(expected, found, strict=True))
        each = (difference(*pair, f"{place}/{number}") for number, pair in both)
        return next(filter(None, each), None)
    if isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor):
        same = torch.equal(expected, found)
    else:
        same = expected == found
    return None if same else f"{place}: differs from the training without interruption"
