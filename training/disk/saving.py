"""Saves a checkpoint in a thread while the run goes on.

Called by checkpoint and shard_files.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import NotRequired, TypedDict, cast

import torch
from torch import Tensor


class ShardRecords(TypedDict):
    folder: str
    tensors: dict[str, dict[str, object]]  # as training.disk.shard_index writes them


class State(TypedDict):
    """The content of ckpt.pt as it is written; what is read is unchecked, hence of objects."""

    model: dict[str, Tensor | str]  # a key of `shards` in place of a tensor that the ranks share
    optimizer: dict[int, dict[str, Tensor | str]]  # likewise, by parameter number
    scaler: dict[str, float]
    iter_num: int
    best_val_loss: float
    best_iteration: int | None
    random_states: Mapping[str, Sequence[Tensor]]
    config: Mapping[str, object]
    tokenizer: Mapping[str, object]
    text: dict[str, str]
    parts: NotRequired[dict[str, Tensor]]  # this rank's, until they are in shards
    shards: NotRequired[ShardRecords]


class Saving:
    """Calls `write` in a thread, with a copy of `state` that training no longer changes.

    Copies from the GPU are made in the order of its work, so that the host waits for nothing. The
    thread is no daemon: the program does not end before it.
    """

    def __init__(
        self, path: Path, iteration: int, state: State, write: Callable[[State], None]
    ) -> None:
        self.path, self.iteration = path, iteration
        self.write = write
        self.error: BaseException | None = None
        copy = cast(State, copy_to_host(state, {}))
        self.copied = torch.cuda.Event() if torch.cuda.is_initialized() else None
        if self.copied:
            self.copied.record()
        self.thread = Thread(target=self.run, args=(copy,), name="save checkpoint")
        self.thread.start()

    def run(self, state: State) -> None:
        try:
            if self.copied:
                torch.cuda.set_device(self.copied.device)  # a new thread has the first GPU
                self.copied.synchronize()
            self.write(state)
        except BaseException as error:  # wait() raises it; PyTorch's may be no Exception
            self.error = error

    def is_done(self) -> bool:
        return not self.thread.is_alive()

    def wait(self) -> None:
        """Waits until the checkpoint is on the disk. Raises what `write` raised."""
        self.thread.join()
        if self.error:
            raise self.error


def copy_to_host(value: object, copies: dict[tuple[object, ...], Tensor]) -> object:
    """`value` with all its tensors copied to the host, asynchronously from a GPU.

    A tensor with two names, such as that of embedding and head, is copied once. `copies` has the
    copies made so far.
    """
    if isinstance(value, dict):
        return {key: copy_to_host(each, copies) for key, each in value.items()}
    if isinstance(value, list):
        return [copy_to_host(each, copies) for each in value]
    if not isinstance(value, Tensor):
        return value
    place = (value.data_ptr(), value.shape, value.dtype)
    if place not in copies:
        copies[place] = torch.empty_like(value, device="cpu", pin_memory=value.is_cuda)
        copies[place].copy_(value, non_blocking=True)
    return copies[place]


def reason(error: BaseException) -> BaseException:
    """The OSError that caused `error`, or `error` itself without one.

    For a full disk PyTorch's writer raises a RuntimeError that names a place in the file; the cause
    is in its context.
    """
    cause: BaseException | None = error
    while cause and not isinstance(cause, OSError):
        cause = cause.__context__
    return cause or error
