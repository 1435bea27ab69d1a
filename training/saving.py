"""One checkpoint on its way to the disk, by a thread, while the run goes on; why it was refused.

Called by checkpoint and shard_files.
"""

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any, cast

import torch
from torch import Tensor

State = dict[str, Any]  # of a checkpoint


class Saving:
    """Calls `write` with a copy of `state`: what the training changes meanwhile is not in it.

    The copies are made in the order of the GPU's work, so that the host waits for nothing. The
    thread is none that a program's end cuts off.
    """

    def __init__(
        self, path: Path, iteration: int, state: State, write: Callable[[State], None]
    ) -> None:
        self.path, self.iteration = path, iteration
        self.write = write
        self.error: BaseException | None = None
        self.state = cast(State, on_host(state, {}))
        self.copied = torch.cuda.Event() if torch.cuda.is_initialized() else None
        if self.copied:
            self.copied.record()
        self.thread = Thread(target=self.run, name="save checkpoint")
        self.thread.start()

    def run(self) -> None:
        try:
            if self.copied:
                torch.cuda.set_device(self.copied.device)  # a thread begins with the first GPU
                self.copied.synchronize()
            self.write(self.state)
        except BaseException as error:  # for the thread that asks; PyTorch's may be no Exception
            self.error = error
        self.state = {}

    def is_done(self) -> bool:
        return not self.thread.is_alive()

    def wait(self) -> None:
        """Until it is on the disk. Raises what `write` raised."""
        self.thread.join()
        if self.error:
            raise self.error


def on_host(value: object, copies: dict[tuple[object, ...], Tensor]) -> object:
    """A copy of all tensors in it; of two names for one, such as embedding and head, one copy."""
    if isinstance(value, dict):
        return {key: on_host(each, copies) for key, each in value.items()}
    if isinstance(value, list):
        return [on_host(each, copies) for each in value]
    if not isinstance(value, Tensor):
        return value
    place = (value.data_ptr(), value.shape, value.dtype)
    if place not in copies:
        copies[place] = torch.empty_like(value, device="cpu", pin_memory=value.is_cuda)
        copies[place].copy_(value, non_blocking=True)
    return copies[place]


def reason(error: BaseException) -> BaseException:
    """A full disk is a RuntimeError of PyTorch's writer, about a place in the file; why is behind
    it."""
    behind: BaseException | None = error
    while behind and not isinstance(behind, OSError):
        behind = behind.__context__
    return behind or error
