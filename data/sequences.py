"""Sequences of `block_size` tokens and of their successors, cut out of a text at given starts.

Which ones a batch has is `data.batches`' affair.
"""

import logging
import os

import numpy as np
import torch
from torch import Tensor

from data.token_files import Tokens

log = logging.getLogger(__name__)

UPLOAD_TOKENS = 1 << 24  # converted and copied to the device at once


class Sequences:
    """`tokens`: the text's ids.

    They are kept on the device, where a batch is two kernels, or stay in their files. Both give
    the same. `storage` is device, mmap, or auto: device if they fit; the attribute is never auto.
    """

    def __init__(self, tokens: Tokens, block_size: int, device: torch.device, storage: str):
        self.tokens, self.block_size, self.device = tokens, block_size, device
        self.storage = storage if storage != "auto" else choose_storage(len(tokens), device)
        self.resident = upload(tokens, device) if self.storage == "device" else None

    def place(self, starts: np.ndarray) -> Tensor:
        """Starts (..., b) as `cut` wants them: here, or on the device if the text is there.

        Then those of the successors stand behind them, (..., 2b).
        """
        if self.resident is None:
            return torch.from_numpy(starts)
        return self.send(np.concatenate((starts, starts + 1), axis=-1))

    def cut(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        """x, y (b, block_size) int64 on the device for starts from `place`; no host sync."""
        if self.resident is None:
            x, y = self.read(starts, self.room(len(starts))).to(self.device, non_blocking=True)
            return x, y
        # A view of every sequence there is: one indexing kernel, then one conversion.
        both = self.resident.unfold(0, self.block_size, 1).index_select(0, starts).long()
        x, y = both.unflatten(0, (2, -1))
        return x, y

    def read(self, starts: Tensor, room: Tensor) -> Tensor:
        """Fills `room` (2, b, block_size) with x and y from the files, and returns it."""
        both = self.tokens.read(starts.numpy(), self.block_size + 1)
        x, y = room.numpy()
        x[:], y[:] = both[:, :-1], both[:, 1:]
        return room

    def expect(self, starts: Tensor) -> None:
        """Has the disk begin with what is to be read later."""
        self.tokens.expect(starts.numpy(), self.block_size + 1)

    def room(self, count: int) -> Tensor:
        """For x and y on the host: (2, count, block_size) int64, pinned where they go to a GPU.

        PyTorch's allocator gives pinned memory out again only once the copies from it are done.
        """
        size = (2, count, self.block_size)
        return torch.empty(size, dtype=torch.int64, pin_memory=self.device.type == "cuda")

    def send(self, array: np.ndarray) -> Tensor:
        """A copy of the array on the device, without waiting for it."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)


def choose_storage(n_tokens: int, device: torch.device) -> str:
    needed, free = 4 * n_tokens, free_bytes(device)
    chosen = "device" if needed <= free // 4 else "mmap"
    log.debug("token_storage=%s: %d of %d free bytes needed", chosen, needed, free)
    return chosen


def free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    # Not every system says how much memory is free; then all of it stands for that.
    if "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return host_bytes()
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def host_bytes() -> int:
    """All memory of this machine: what is larger can never be made here."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def upload(tokens: Tokens, device: torch.device) -> Tensor:
    """The tokens as int32 on the device, in slices, so that no whole copy is made on the host."""
    resident = torch.empty(len(tokens), dtype=torch.int32, device=device)
    for start in range(0, len(tokens), UPLOAD_TOKENS):
        count = min(UPLOAD_TOKENS, len(tokens) - start)
        part = tokens.read(np.array([start]), count)[0]
        resident[start : start + count] = torch.from_numpy(part.astype(np.int32))
    return resident
