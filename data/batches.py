"""Random training batches whose order depends on the seed alone. Called by the training loop.

Tokens lie on the device, and a batch is three kernels there; or they stay in a file, and a thread
reads the next batch while this one is used. Both give the same batches.
"""

import logging
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from data.windows import count_windows, gather, host_pair, read, to_device, windows

log = logging.getLogger(__name__)

CHUNK = 512  # iterations whose windows are drawn at once
UPLOAD_TOKENS = 1 << 24  # converted and copied to the device at once


def draw_starts(
    n_starts: int, *, seed: int, stream: int, chunk: int, accumulation_steps: int, batch_size: int
) -> np.ndarray:
    """Starts (CHUNK, accumulation_steps, batch_size) int64, uniform over [0, n_starts).

    Philox by counter: the chunk's place in the sequence is computed, not reached. Its raw words are
    scaled here because NumPy promises them, not its distributions, to stay the same.
    """
    word = (1 << 64) - 1
    bits = np.random.Philox(
        key=np.array([seed & word, stream & word], dtype=np.uint64),
        counter=np.array([0, 0, chunk, 0], dtype=np.uint64),
    ).random_raw(CHUNK * accumulation_steps * batch_size)
    uniform = (bits >> np.uint64(11)) * 2.0**-53
    return (uniform * n_starts).astype(np.int64).reshape(CHUNK, accumulation_steps, batch_size)


class Batches:
    """The batches of one split for one rank.

    `tokens`: (N,) ids, usually a memory map. `accumulation_steps` counts an iteration's
    micro-batches over all ranks; micro-batch `micro_step * world_size + rank` is this rank's.
    `stream` tells splits apart that share a seed, and `split` names this one in messages. The
    attribute `storage` is the one in force: device or mmap.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        *,
        block_size: int,
        batch_size: int,
        accumulation_steps: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device,
        storage: str = "auto",
        stream: int = 0,
        split: str = "training",
    ) -> None:
        if block_size + 1 > len(tokens):
            raise ValueError(
                f"block_size={block_size}: longer than the text: the {split} split has "
                f"{len(tokens)} tokens; choose at most {len(tokens) - 1}, or a longer text"
            )
        if accumulation_steps < 1 or accumulation_steps % world_size:
            raise ValueError(
                f"gradient_accumulation_steps={accumulation_steps}: "
                f"must be a multiple of the {world_size} processes that share it"
            )
        assert 0 <= rank < world_size
        self.block_size, self.batch_size = block_size, batch_size
        self.accumulation_steps = accumulation_steps
        self.seed, self.stream = seed, stream
        self.rank, self.world_size = rank, world_size
        self.device = device
        self.storage = _choose_storage(storage, len(tokens), device)
        self.tokens = _upload(tokens, device) if self.storage == "device" else tokens
        self._chunk_number = -1
        self._chunk: torch.Tensor | np.ndarray | None = None
        self._reader = ThreadPoolExecutor(1, "batches") if self.storage == "mmap" else None
        self._pending: tuple[tuple[int, int], Future] | None = None

    def draw(self, iteration: int, micro_step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """x, y (batch_size, block_size) int64 on the device: in any order, without a host sync."""
        assert 0 <= micro_step < self.accumulation_steps // self.world_size
        if self._reader is None:
            return gather(self.tokens, self._starts(iteration, micro_step), self.block_size)
        place, pending = (iteration, micro_step), self._pending
        future = pending[1] if pending and pending[0] == place else self._read_ahead(place)
        pair = future.result()
        following = micro_step + 1
        if following == self.accumulation_steps // self.world_size:
            iteration, following = iteration + 1, 0
        self._pending = (iteration, following), self._read_ahead((iteration, following))
        x, y = pair.to(self.device, non_blocking=True)
        return x, y

    @property
    def window_count(self) -> int:
        """Windows in an exact evaluation of this split."""
        return count_windows(len(self.tokens), self.block_size)

    def windows(self, limit: int | None = None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """This rank's share of the exact evaluation of the split: see `data.windows.windows`."""
        return windows(
            self.tokens,
            self.block_size,
            self.batch_size,
            self.device,
            self.rank,
            self.world_size,
            limit,
        )

    def close(self) -> None:
        """Ends the reading thread; nothing can be drawn from a file afterwards."""
        if self._reader is not None:
            self._reader.shutdown(cancel_futures=True)
            self._pending = None

    def _starts(self, iteration: int, micro_step: int) -> torch.Tensor | np.ndarray:
        """This micro-batch's starts (batch_size,): on the device, or on the host for a file."""
        number, row = divmod(iteration, CHUNK)
        if number != self._chunk_number:
            everyones = draw_starts(
                len(self.tokens) - self.block_size,
                seed=self.seed,
                stream=self.stream,
                chunk=number,
                accumulation_steps=self.accumulation_steps,
                batch_size=self.batch_size,
            )
            chunk = np.ascontiguousarray(everyones[:, self.rank :: self.world_size])
            self._chunk = chunk if self._reader else to_device(chunk, self.device)
            self._chunk_number = number
        return self._chunk[row, micro_step]

    def _read_ahead(self, place: tuple[int, int]) -> Future:
        # The buffer is made here: pinned memory asked for in another thread would belong to the
        # current device of that thread, which is the first GPU and not this rank's.
        pair = host_pair(self.batch_size, self.block_size, self.device)
        return self._reader.submit(self._read, place, pair)

    def _read(self, place: tuple[int, int], pair: torch.Tensor) -> torch.Tensor:
        read(self.tokens, self._starts(*place), pair)
        return pair


def _choose_storage(storage: str, n_tokens: int, device: torch.device) -> str:
    if storage in ("device", "mmap"):
        return storage
    if storage != "auto":
        raise ValueError(f"token_storage={storage}: must be auto, device or mmap")
    needed_bytes, free_bytes = 4 * n_tokens, _free_bytes(device)
    chosen = "device" if needed_bytes <= free_bytes // 4 else "mmap"
    log.debug("token_storage=%s: %d of %d free bytes needed", chosen, needed_bytes, free_bytes)
    return chosen


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    # Not every system says how much memory is free; then all of it stands for that.
    name = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
    return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")


def _upload(tokens: np.ndarray, device: torch.device) -> torch.Tensor:
    """The tokens as int32 on the device, in slices, so that no whole copy is made on the host."""
    resident = torch.empty(len(tokens), dtype=torch.int32, device=device)
    for start in range(0, len(tokens), UPLOAD_TOKENS):
        part = slice(start, start + UPLOAD_TOKENS)
        resident[part] = torch.from_numpy(tokens[part].astype(np.int32))
    return resident
