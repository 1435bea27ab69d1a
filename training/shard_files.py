"""The shards of a checkpoint, written and read by torch.distributed.checkpoint.

Each rank writes its own part, and a resume reads what it needs of them all, on any number of ranks.
Errors go from rank to rank as words: PyTorch would send them with their stacks, which Python 3.13
cannot pickle before torch 2.13.
"""

import io
import logging
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from cli.errors import one_line
from cli.files import empty_folder, sync_folder
from model import GPT
from training.checkpoint_file import AGAIN, Checkpoint, read_data
from training.optimizer import AdamW
from training.previous_runs import spelled
from training.saving import State, reason
from training.shard_index import SHARDS, Shard, ShardedTensor, ShardIndex, remove_unnamed

log = logging.getLogger(__name__)


def apart(state: State) -> tuple[State, dict[str, DTensor]]:
    """With a key for each tensor that the ranks share, and this rank's part of them; and these.

    The keys are the same on each rank; of two names for one weight, as embedding and head, one key.
    """
    keys: dict[Tensor, str] = {}
    tensors: dict[str, DTensor] = {}

    def key_of(value: Tensor, name: str) -> Tensor | str:
        if not isinstance(value, DTensor):
            return value
        key = keys.setdefault(value, name)
        tensors[key] = value
        return key

    weights = {name: key_of(each, f"model.{name}") for name, each in state["model"].items()}
    moments = {
        number: {name: key_of(each, f"optimizer.{number}.{name}") for name, each in of.items()}
        for number, of in state["optimizer"].items()
    }
    with torch.no_grad():
        parts = {key: tensor.to_local() for key, tensor in tensors.items()}
    return state | {"model": weights, "optimizer": moments, "parts": parts}, tensors


def write(
    out_dir: Path,
    tensors: dict[str, DTensor],
    group: dist.ProcessGroup,
    put: Callable[[State], None],
    state: State,
) -> None:
    """Writes this rank's part, as all of the group do; rank 0 then puts ckpt.pt in its place.

    `state` is of `apart`, but that its parts are copies; `tensors` say how they lie on the ranks.
    What any rank met is an OSError of rank 0, and the checkpoint before is still the newest.
    """
    own, began_s = state.pop("parts"), time.perf_counter()
    first = dist.get_rank(group) == 0
    temporary = out_dir / SHARDS / f"{state['iter_num']}.tmp"
    writer, planner = ShardWriter(temporary), PlannerOfCopies(own)

    def commit() -> None:
        index = writer.index()
        folder = moved(temporary, index)
        records = {key: tensor.to_record() for key, tensor in index.items()}
        put(state | {"shards": {"folder": folder.name, "tensors": records}})
        size, seconds = spelled(sum(ends_of_files(index).values())), time.perf_counter() - began_s
        log.info(
            "%s/ckpt.pt: iteration %d, shards of %d ranks in %s: %s in %.1f s",
            *(out_dir, state["iter_num"], dist.get_world_size(group), folder, size, seconds),
        )

    try:
        agreed(partial(empty_folder, temporary) if first else None, group)
        dcp.save(tensors, storage_writer=writer, planner=planner, process_group=group)
        agreed(writer.check, group)
        agreed(commit if first else None, group)
    except OSError:
        if first:
            remove_unnamed(out_dir)
            raise


def agreed(act: Callable[[], object] | None, group: dist.ProcessGroup) -> None:
    """Does it, and waits for the other ranks. Raises OSError on each of them where one fails."""
    error = ""
    try:
        if act:
            act()
    except (OSError, ValueError, RuntimeError) as met:
        error = one_line(met)
    if said := first_error(error, group):
        raise OSError(said)


def first_error(error: str, group: dist.ProcessGroup | None) -> str:
    """Of the ranks, on each of them; `group` None: all ranks, or the one of a plain run."""
    if not dist.is_initialized():
        return error
    errors = [""] * dist.get_world_size(group)
    dist.all_gather_object(errors, error, group=group)
    return next(filter(None, errors), "")


class PlannerOfCopies(DefaultSavePlanner):
    """Plans by how tensors lie on the ranks, and hands copies of their parts to the writer."""

    def __init__(self, parts: dict[str, Tensor]):
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.parts = parts

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        return self.parts[index.fqn]


class ShardWriter(dcp.FileSystemWriter):
    """Files as PyTorch writes them, and an index of our own."""

    def __init__(self, folder: Path):
        super().__init__(folder, per_thread_copy_ahead=0)  # all is on the host
        self.error = ""
        self.metadata, self.results = Metadata({}), list[list[WriteResult]]()

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        try:
            return super().write_data(plan, planner)
        except (OSError, RuntimeError) as error:
            self.error = f"rank {dist.get_rank()}: {one_line(str(reason(error)))}"
            return done([])

    def check(self) -> None:
        if self.error:
            raise OSError(self.error)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On rank 0. What save() returns lacks the places in files up to torch 2.11."""
        self.metadata, self.results = metadata, results

    def index(self) -> dict[str, ShardedTensor]:
        """By key, once all ranks have written."""
        written = [each for of_rank in self.results for each in of_rank]
        places = {(each.index.fqn, each.index.offset): each.storage_data for each in written}
        index = {}
        for key, tensor in self.metadata.state_dict_metadata.items():
            assert isinstance(tensor, TensorStorageMetadata)
            shards = []
            for chunk in sorted(tensor.chunks, key=lambda chunk: chunk.offsets[0]):
                assert chunk.sizes[1:] == tensor.size[1:], f"{key} is not shared by rows"
                if chunk.sizes[0]:  # few rows are not enough for many ranks
                    at = places[key, chunk.offsets]
                    place = at.relative_path, at.offset, at.length
                    shards.append(Shard(chunk.offsets[0], chunk.sizes[0], *place))
            index[key] = ShardedTensor(tuple(tensor.size), tensor.properties.dtype, tuple(shards))
        return index


def moved(temporary: Path, index: dict[str, ShardedTensor]) -> Path:
    """All shards are there: to the disk, and to a name of their own. Raises OSError."""
    for file, end in ends_of_files(index).items():
        path = temporary / file
        if not path.exists() or path.stat().st_size < end:
            raise OSError(
                f"{path}: another rank wrote it, and rank 0 does not find it whole; out_dir must "
                "be one folder for the ranks of all hosts"
            )
    sync_folder(temporary)
    name = temporary.with_suffix("")
    others = (name.with_name(f"{name.name}-{number}") for number in count(2))
    while name.exists():  # of the checkpoint that this one replaces
        name = next(others)
    os.rename(temporary, name)
    sync_folder(name.parent)
    return name


def ends_of_files(index: dict[str, ShardedTensor]) -> dict[str, int]:
    """The least size in bytes of each file."""
    ends: dict[str, int] = {}
    for tensor in index.values():
        for shard in tensor.shards:
            ends[shard.file] = max(ends.get(shard.file, 0), shard.offset + shard.size_bytes)
    return ends


def places(shards: ShardIndex, model: GPT, optimizer: AdamW) -> dict[ShardedTensor, Tensor]:
    """What lies on the ranks as each of these is to."""
    own, parameters = model.state_dict(), optimizer.numbered()
    like = {each: own[name] for name, each in shards.weights.items()}
    for number, moments in shards.moments.items():
        like |= dict.fromkeys(moments.values(), parameters[number])
    return like


def filled(
    saved: Checkpoint, like: dict[ShardedTensor, Tensor], device: torch.device | str
) -> Checkpoint:
    """With what lies in its shards: this rank's part `like` these, else whole, on `device`.

    All ranks call this. Raises as `read` does.
    """
    shards = saved.shards
    assert shards and saved.optimizer is not None
    moments = (each for of in shards.moments.values() for each in of.values())
    into = {
        each: torch.empty_like(like[each]) if each in like else each.empty(device)
        for each in (*shards.weights.values(), *moments)
    }
    read(shards.folder, into)
    weights = {name: into[each] for name, each in shards.weights.items()}
    states = {
        number: state | {name: into[each] for name, each in shards.moments[number].items()}
        for number, state in saved.optimizer.items()
    }
    return replace(saved, weights=saved.weights | weights, optimizer=states, shards=None)


def read(folder: Path, into: dict[ShardedTensor, Tensor]) -> None:
    """Fills these tensors, of a DTensor this rank's part. All ranks call this.

    Raises ValueError with one line, on all ranks, where a shard is missing, damaged or not finite.
    """
    sharded = {str(number): each for number, each in enumerate(into)}
    reader = ShardReader(folder, sharded)
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    tensors: dict[str, Any] = {key: into[each] for key, each in sharded.items()}
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # one process is fine
        dcp.load(tensors, storage_reader=reader, planner=planner)
    if error := first_error(reader.error, None):
        raise ValueError(error)


class ShardReader(StorageReader):
    """By our index."""

    def __init__(self, folder: Path, tensors: dict[str, ShardedTensor]):
        self.folder, self.tensors = folder, tensors
        self.error = ""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        return Metadata({key: described(each) for key, each in self.tensors.items()})

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        try:
            for item in plan.items:
                tensor = self.tensors[item.storage_index.fqn]
                assert item.storage_index.offset is not None
                first = item.storage_index.offset[0]
                (shard,) = (each for each in tensor.shards if each.first == first)
                value = shard_in(self.folder / shard.file, shard, tensor)
                ranges = zip(item.storage_offsets, item.lengths, strict=True)
                target = planner.resolve_tensor(item).detach()
                target.copy_(value[tuple(slice(at, at + length) for at, length in ranges)])
                planner.commit_tensor(item, target)
        except ValueError as error:
            self.error = str(error)
        return done(None)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        pass

    def set_up_storage_reader(self, *_: Any, **__: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True


def described(tensor: ShardedTensor) -> TensorStorageMetadata:
    """As PyTorch plans by it."""
    others = tensor.shape[1:]
    chunks = [
        ChunkStorageMetadata(
            torch.Size((each.first, *(0 for _ in others))), torch.Size((each.rows, *others))
        )
        for each in tensor.shards
    ]
    size = torch.Size(tensor.shape)
    return TensorStorageMetadata(TensorProperties(tensor.dtype), size, chunks)


def shard_in(path: Path, shard: Shard, tensor: ShardedTensor) -> Tensor:
    """(rows, ...) on the CPU. Raises ValueError."""
    try:
        with open(path, "rb") as file:
            file.seek(shard.offset)
            content = io.BytesIO(file.read(shard.size_bytes))
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read ({error.strerror}); ckpt.pt of several ranks needs the "
            f"folder {SHARDS} beside it; {AGAIN}"
        ) from error
    value = read_data(path, content)
    shape = shard.rows, *tensor.shape[1:]
    if not isinstance(value, Tensor) or value.shape != shape or value.dtype != tensor.dtype:
        raise ValueError(f"{path}: does not hold what ckpt.pt looks for in it; {AGAIN}")
    if not value.isfinite().all():
        raise ValueError(f"{path}: is spoilt: it holds numbers that are not finite; {AGAIN}")
    return value


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
