"""Index of a sharded checkpoint: the part of its ckpt.pt that says where the tensors lie.

    out_dir/ckpt.pt                      what each rank has in full, and this index; written last
    out_dir/ckpt_shards/ITERATION/FILE   the shards, which training.disk.shard_files writes and
    reads

PyTorch keeps a similar index in `.metadata`, a pickle that may name code. Ours is read as data.
"""

import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

import torch
from torch import Tensor

from cli.records import entry
from profiling.shared.run_files import CHECKPOINTS, SHARDS

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
FILE = r"\w[\w.-]*"  # a name without a path, so that it cannot lead out of its folder


@dataclass(frozen=True)
class Shard:
    """Rows `first` to `first + rows` of a tensor: `size_bytes` of `file`, from `offset` on."""

    first: int
    rows: int
    file: str
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class ShardedTensor:
    """A tensor in shards, which hold all of its rows in order."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    shards: tuple[Shard, ...]

    def empty(self, device: torch.device | str) -> Tensor:
        """A tensor of its shape and type without values; on the meta device without memory, too."""
        return torch.empty(self.shape, dtype=self.dtype, device=device)

    def to_record(self) -> dict[str, object]:
        shards = [list(astuple(shard)) for shard in self.shards]
        return {"shape": list(self.shape), "dtype": NAMES[self.dtype], "shards": shards}

    @staticmethod
    def of_record(name: str, record: Mapping[str, object]) -> "ShardedTensor":
        """The sharded tensor that `to_record` wrote.

        Raises ValueError, TypeError or KeyError if `record` is malformed or lacks rows.
        """
        shape = tuple(entry(record, "shape", list))
        shards = tuple(Shard(*values) for values in entry(record, "shards", list))
        numbers = [n for s in shards for n in (s.first, s.rows, s.offset, s.size_bytes)]
        if not shape or not all(type(n) is int and n >= 0 for n in (*shape, *numbers)):
            raise ValueError(f"its index has an invalid number for {name}")
        if not all(re.fullmatch(FILE, shard.file) for shard in shards):
            raise ValueError(f"its index has an invalid file for {name}")
        at = 0
        for shard in shards:
            if shard.first != at:
                raise ValueError(f"its shards of {name} do not continue at row {at}")
            at += shard.rows
        if at != shape[0]:
            raise ValueError(f"its shards of {name} have {at} of {shape[0]} rows")
        return ShardedTensor(shape, DTYPES[entry(record, "dtype", str)], shards)


@dataclass(frozen=True)
class ShardIndex:
    """Tensors of a checkpoint that lie in shards; two names of one weight have equal entries."""

    folder: Path
    weights: dict[str, ShardedTensor]
    moments: dict[int, dict[str, ShardedTensor]]  # by the number of the parameter

    @staticmethod
    def of(path: Path, state: Mapping[str, object]) -> "ShardIndex | None":
        """Index in a checkpoint's state, or None if all tensors are in the file itself.

        Raises as ShardedTensor.of_record does.
        """
        if "shards" not in state:
            return None
        index = entry(state, "shards", dict)
        name, records = entry(index, "folder", str), entry(index, "tensors", dict)
        if not re.fullmatch(FILE, name):
            raise ValueError("its index has an invalid folder")
        tensors = {key: ShardedTensor.of_record(key, record) for key, record in records.items()}

        def sharded(entries: Mapping[str, object]) -> dict[str, ShardedTensor]:
            return {name: tensors[key] for name, key in entries.items() if isinstance(key, str)}

        optimizer = entry(state, "optimizer", dict)
        moments = {number: sharded(entries) for number, entries in optimizer.items()}
        return ShardIndex(
            path.parent / SHARDS / name, sharded(entry(state, "model", dict)), moments
        )

    def with_stand_ins(self, state: Mapping[str, object]) -> dict[str, object]:
        """The checkpoint's state with tensors without memory in place of the index's keys."""
        weights = {name: each.empty("meta") for name, each in self.weights.items()}
        optimizer = entry(state, "optimizer", dict)
        moments = {
            number: optimizer[number] | {name: e.empty("meta") for name, e in each.items()}
            for number, each in self.moments.items()
        }
        return {**state, "model": entry(state, "model", dict) | weights, "optimizer": moments}


def remove_unnamed(out_dir: Path) -> None:
    """Removes shards that no checkpoint in `out_dir` names: older and unfinished ones."""
    shards = out_dir / SHARDS
    if not shards.is_dir():
        return
    try:
        named = {named_folder(out_dir / name) for name in CHECKPOINTS}
    except Exception:  # a damaged checkpoint may need any of them
        return
    with suppress(OSError):  # the next save tries again; the last line fails if anything is left
        for folder in shards.iterdir():
            if folder.name not in named and is_ours(folder):
                shutil.rmtree(folder, ignore_errors=True)
        shards.rmdir()


def is_ours(folder: Path) -> bool:
    """Whether training.disk.shard_files has made `folder`; nothing else may be removed."""
    if not (folder.is_dir() and re.fullmatch(r"\d+(-\d+)?(\.tmp)?", folder.name)):
        return False
    return all(file.suffix == ".distcp" for file in folder.iterdir())


def named_folder(path: Path) -> str | None:
    """Name of the folder of shards that a checkpoint needs, or None if it needs none.

    Raises an exception if the checkpoint is damaged.
    """
    if not (path.exists() and (path.parent / SHARDS).is_dir()):
        return None
    state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return str(state["shards"]["folder"]) if "shards" in state else None
