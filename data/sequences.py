"""Sequences of `block_size` tokens and of their successors, cut out of a text at given starts.

`data.batches` decides which sequences a batch has.
"""

import logging
import os

import numpy as np
import torch
from torch import Tensor

from data.token_files import Tokens

log = logging.getLogger(__name__)

UPLOAD_TOKENS = 1 << 24  # tokens that are converted and copied to the device at once


class Sequences:
    """Sequences of a text, whose token ids are `tokens`.

    The tokens are kept on the device, where a batch takes two kernels, or stay in their files. Both
    give the same sequences. `storage` is device, mmap, or auto, which is device if they fit; the
    attribute of that name is never auto.
    """

    def __init__(self, tokens: Tokens, block_size: int, device: torch.device, storage: str):
        self.tokens, self.block_size, self.device = tokens, block_size, device
        self.storage = storage if storage != "auto" else choose_storage(len(tokens), device)
        self.resident = upload(tokens, device) if self.storage == "device" else None

    def place(self, starts: np.ndarray) -> Tensor:
        """Starts (..., b) as `cut` needs them: on the host, or on the device if the text is there.

        On the device the starts of the successors follow them, (..., 2b).
        """
        if self.resident is None:
            return torch.from_numpy(starts)
        return self.send(np.concatenate((starts, starts + 1), axis=-1))

    def cut(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Batch x, y (b, block_size) int64 on the device for starts from `place`; no host sync."""
        if self.resident is None:
            batch = self.read(starts, self.host_buffer(len(starts)))
            x, y = batch.to(self.device, non_blocking=True)
            return x, y
        # `unfold` is a view of every sequence: one indexing kernel, then one conversion
        both = self.resident.unfold(0, self.block_size, 1).index_select(0, starts).long()
        x, y = both.unflatten(0, (2, -1))
        return x, y

    def read(self, starts: Tensor, buffer: Tensor) -> Tensor:
        """Fill `buffer` (2, b, block_size) with x and y from the files, and return it."""
        both = self.tokens.read(starts.numpy(), self.block_size + 1)
        x, y = buffer.numpy()
        x[:], y[:] = both[:, :-1], both[:, 1:]
        return buffer

    def prefetch(self, starts: Tensor) -> None:
        """Let the kernel begin to read sequences that are needed later."""
        self.tokens.prefetch(starts.numpy(), self.block_size + 1)

    def host_buffer(self, count: int) -> Tensor:
        """Buffer for x and y on the host, (2, count, block_size) int64, pinned if they go to a GPU.

        PyTorch's allocator reuses pinned memory only once the copies from it are done.
        """
        size = (2, count, self.block_size)
        return torch.empty(size, dtype=torch.int64, pin_memory=self.device.type == "cuda")

    def send(self, array: np.ndarray) -> Tensor:
        """Copy the array to the device, without waiting for the copy."""
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
    # Not every system says how much memory is free: take all of it then.
    if "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return host_bytes()
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def host_bytes() -> int:
    """Bytes of memory of this machine: nothing larger can ever be allocated."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def upload(tokens: Tokens, device: torch.device) -> Tensor:
    """Copy the tokens to the device as int32, in slices, so that the host never holds them all."""
    resident = torch.empty(len(tokens), dtype=torch.int32, device=device)
    for start in range(0, len(tokens), UPLOAD_TOKENS):
        count = min(UPLOAD_TOKENS, len(tokens) - start)
        part = tokens.read(np.array([start]), count)[0]
        resident[start : start + count] = torch.from_numpy(part.astype(np.int32))
    return resident
