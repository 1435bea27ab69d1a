"""Writes and reads the shards of a checkpoint, with torch.distributed.checkpoint.

Each rank writes its own part. A resume may have any number of ranks, each of which reads what it
needs of all parts. Errors are passed from rank to rank as text: PyTorch would send them with their
stacks, which Python 3.13 cannot pickle before torch 2.13.
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
from typing import TypeVar

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
from profiling.shared.run_files import SHARDS
from training.disk.checkpoint_file import AGAIN, Checkpoint, read_data
from training.disk.previous_runs import size_text
from training.disk.saving import State, reason
from training.disk.shard_index import Shard, ShardedTensor, ShardIndex, remove_unnamed
from training.optimizers.optimizer import AdamW

log = logging.getLogger(__name__)

Value = TypeVar("Value")


def split_shared(state: State) -> tuple[State, dict[str, DTensor]]:
    """Splits `state` into the same state with a key for each sharded tensor, and these, by key.

    The new state has this rank's parts of them, by key, under "parts". The keys are the same on
    each rank. A weight with two names, such as that of embedding and head, has one key.
    """
    keys: dict[Tensor, str] = {}
    tensors: dict[str, DTensor] = {}

    def key_of(value: Tensor | str, name: str) -> Tensor | str:
        if not isinstance(value, DTensor):
            return value
        key = keys.setdefault(value, name)
        tensors[key] = value
        return key

    weights = {name: key_of(each, f"model.{name}") for name, each in state["model"].items()}
    moments = {
        number: {name: key_of(each, f"optimizer.{number}.{name}") for name, each in named.items()}
        for number, named in state["optimizer"].items()
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
    """Writes this rank's part; all ranks of `group` call it. Rank 0 then writes ckpt.pt by `put`.

    `state` comes from `split_shared`, but has copies of the parts; `tensors` give their layout over
    the ranks. An error of any rank becomes an OSError on rank 0, and the checkpoint before it stays
    the newest.
    """
    own, began_s = state.pop("parts"), time.perf_counter()
    first = dist.get_rank(group) == 0
    temporary = out_dir / SHARDS / f"{state['iter_num']}.tmp"
    writer, planner = ShardWriter(temporary), PlannerOfCopies(own)

    def commit() -> None:
        index = writer.index()
        folder = publish(temporary, index)
        records = {key: tensor.to_record() for key, tensor in index.items()}
        put(state | {"shards": {"folder": folder.name, "tensors": records}})
        size, seconds = size_text(sum(ends_of_files(index).values())), time.perf_counter() - began_s
        log.info(
            "%s/ckpt.pt: iteration %d, shards of %d ranks in %s: %s in %.1f s",
            *(out_dir, state["iter_num"], dist.get_world_size(group), folder, size, seconds),
        )

    try:
        run_and_agree(partial(empty_folder, temporary) if first else None, group)
        dcp.save(tensors, storage_writer=writer, planner=planner, process_group=group)
        run_and_agree(writer.check, group)
        run_and_agree(commit if first else None, group)
    except OSError:
        if first:
            remove_unnamed(out_dir)
            raise


def run_and_agree(act: Callable[[], object] | None, group: dist.ProcessGroup) -> None:
    """Calls `act`, if given, and waits for the other ranks. Raises OSError on all if one failed."""
    own_error = ""
    try:
        if act:
            act()
    except (OSError, ValueError, RuntimeError) as error:
        own_error = one_line(error)
    if message := first_error(own_error, group):
        raise OSError(message)


def first_error(error: str, group: dist.ProcessGroup | None) -> str:
    """First error message of all ranks, the same on each of them; empty if there is none.

    Without `group` it asks all ranks, or the one of a plain run.
    """
    if not dist.is_initialized():
        return error
    errors = [""] * dist.get_world_size(group)
    dist.all_gather_object(errors, error, group=group)
    return next(filter(None, errors), "")


class PlannerOfCopies(DefaultSavePlanner):
    """Plans by the layout of tensors on the ranks, but gives the writer copies of their parts."""

    def __init__(self, parts: dict[str, Tensor]):
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.parts = parts

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        return self.parts[index.fqn]


class ShardWriter(dcp.FileSystemWriter):
    """Writes files as PyTorch does, and keeps what our own index needs."""

    def __init__(self, folder: Path):
        super().__init__(folder, per_thread_copy_ahead=0)  # all tensors are on the host already
        self.error = ""
        self.metadata, self.results = Metadata({}), list[list[WriteResult]]()

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        try:
            return super().write_data(plan, planner)
        except (OSError, RuntimeError) as error:
            self.error = f"rank {dist.get_rank()}: {one_line(str(reason(error)))}"
            return done_future([])

    def check(self) -> None:
        if self.error:
            raise OSError(self.error)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Keeps where tensors were written, on rank 0; up to torch 2.11 save() does not say it."""
        self.metadata, self.results = metadata, results

    def index(self) -> dict[str, ShardedTensor]:
        """Index of the sharded tensors by key, once all ranks have written; on rank 0."""
        written = [result for of_rank in self.results for result in of_rank]
        places = {(each.index.fqn, each.index.offset): each.storage_data for each in written}
        index = {}
        for key, tensor in self.metadata.state_dict_metadata.items():
            assert isinstance(tensor, TensorStorageMetadata)
            shards = []
            for chunk in sorted(tensor.chunks, key=lambda chunk: chunk.offsets[0]):
                assert chunk.sizes[1:] == tensor.size[1:], f"{key} is not shared by rows"
                if chunk.sizes[0]:  # with few rows, some ranks have none
                    at = places[key, chunk.offsets]
                    place = at.relative_path, at.offset, at.length
                    shards.append(Shard(chunk.offsets[0], chunk.sizes[0], *place))
            index[key] = ShardedTensor(tuple(tensor.size), tensor.properties.dtype, tuple(shards))
        return index


def publish(temporary: Path, index: dict[str, ShardedTensor]) -> Path:
    """Renames the finished folder of shards to its final name, after syncing it to the disk.

    Raises OSError if a file is missing or too short.
    """
    for file, end in ends_of_files(index).items():
        path = temporary / file
        if not path.exists() or path.stat().st_size < end:
            raise OSError(
                f"{path}: another rank wrote this file, but rank 0 does not see all of it; "
                "out_dir must be the same folder for the ranks of all hosts"
            )
    sync_folder(temporary)
    name = temporary.with_suffix("")
    others = (name.with_name(f"{name.name}-{number}") for number in count(2))
    while name.exists():  # it belongs to the checkpoint that this one replaces
        name = next(others)
    os.rename(temporary, name)
    sync_folder(name.parent)
    return name


def ends_of_files(index: dict[str, ShardedTensor]) -> dict[str, int]:
    """Least size in bytes of each file, by name."""
    ends: dict[str, int] = {}
    for tensor in index.values():
        for shard in tensor.shards:
            ends[shard.file] = max(ends.get(shard.file, 0), shard.offset + shard.size_bytes)
    return ends


def templates(shards: ShardIndex, model: GPT, optimizer: AdamW) -> dict[ShardedTensor, Tensor]:
    """Weights of the model by sharded tensor: each shows how that tensor is to lie on the ranks.

    A moment lies as its parameter does.
    """
    own, parameters = model.state_dict(), optimizer.all_parameters()
    like = {each: own[name] for name, each in shards.weights.items()}
    for number, moments in shards.moments.items():
        like |= dict.fromkeys(moments.values(), parameters[number])
    return like


def load_shards(
    saved: Checkpoint, like: dict[ShardedTensor, Tensor], device: torch.device | str
) -> Checkpoint:
    """The checkpoint with its shards read in; all ranks call this together.

    A tensor in `like` is read as the part that this rank has of its template there; another one is
    read in full, on `device`. Raises ValueError as `read` does.
    """
    shards = saved.shards
    assert shards and saved.optimizer is not None
    moments = (each for named in shards.moments.values() for each in named.values())
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
    """Fills the tensors of `into` from the shards in `folder`; of a DTensor this rank's part.

    All ranks call this together. Raises ValueError with one line, on all ranks, if a shard is
    missing, damaged or not finite.
    """
    sharded = {str(number): each for number, each in enumerate(into)}
    reader = ShardReader(folder, sharded)
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    tensors = {key: into[each] for key, each in sharded.items()}
    # PyTorch warns if there is only one process, which is fine here.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        dcp.load(tensors, storage_reader=reader, planner=planner)
    if error := first_error(reader.error, None):
        raise ValueError(error)


class ShardReader(StorageReader):
    """Reads shards by our own index in place of PyTorch's metadata file."""

    def __init__(self, folder: Path, tensors: dict[str, ShardedTensor]):
        self.folder, self.tensors = folder, tensors
        self.error = ""

    def read_metadata(self, *_: object, **__: object) -> Metadata:
        return Metadata({key: storage_metadata(each) for key, each in self.tensors.items()})

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
        return done_future(None)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        pass

    def set_up_storage_reader(self, *_: object, **__: object) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True


def storage_metadata(tensor: ShardedTensor) -> TensorStorageMetadata:
    """Metadata of a sharded tensor in the form by which PyTorch plans to read it."""
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
    """Rows of a shard, (rows, ...) on the CPU.

    Raises ValueError if the file is missing, damaged, not what the index says, or not finite.
    """
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
        raise ValueError(f"{path}: does not contain the data that ckpt.pt refers to; {AGAIN}")
    if not value.isfinite().all():
        raise ValueError(f"{path}: contains numbers that are not finite; {AGAIN}")
    return value


def done_future(value: Value) -> Future[Value]:
    future: Future[Value] = Future()
    future.set_result(value)
    return future
