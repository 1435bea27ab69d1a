"""Random batches to train on, whose order depends on the seed alone, and all of a text in order.

Called by the training loop and by evaluation. Where a text stays in its files, a thread reads the
next random batch while this one is used, and the disk is told of those behind it.
"""

import math
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from configs.schema import Config
from data.sequences import Sequences, host_bytes
from data.token_files import Tokens

CHUNK = 512  # iterations whose sequences are drawn at once
AHEAD = 8  # micro-batches that the disk is told of before they are read
# splits share a seed, and yet no order; nor does evaluation draw what training does
STREAMS = {"train": 0, "val": 1}
EVALUATION_STREAMS = {"train": 2, "val": 3}
DRAWN_BYTES = 24  # of a start while it is drawn: the random word, its fraction, the number
IGNORED = -1  # a target that cross_entropy(ignore_index=-1) does not count


def draw_starts(
    n_starts: int, *, seed: int, stream: int, chunk: int, accumulation_steps: int, batch_size: int
) -> np.ndarray:
    """Starts (CHUNK, accumulation_steps, batch_size) int64, uniform over [0, n_starts)."""
    size = (CHUNK, accumulation_steps, batch_size)
    return uniform(n_starts, math.prod(size), seed=seed, stream=stream, place=chunk).reshape(size)


def uniform(n_starts: int, count: int, *, seed: int, stream: int, place: int) -> np.ndarray:
    """(count,) int64 over [0, n_starts).

    Philox by counter: the place in the sequence is computed, not reached. Its raw words are
    scaled here because NumPy promises them, not its distributions, to stay the same.
    """
    bits = np.random.Philox(
        key=np.array([seed, stream], dtype=np.uint64),
        counter=np.array([0, 0, place, 0], dtype=np.uint64),
    ).random_raw(count)
    return ((bits >> np.uint64(11)) * 2.0**-53 * n_starts).astype(np.int64)


def check_draws(config: Config) -> None:
    """Raises ValueError where this machine has not the memory for the starts drawn at once."""
    batch_size, steps = config.batch_size, config.gradient_accumulation_steps
    for key, value, sequences in (
        ("gradient_accumulation_steps", steps, CHUNK * steps * batch_size),
        ("eval_iters", config.eval_iters, config.eval_iters * batch_size),
    ):
        needed = DRAWN_BYTES * sequences
        if needed > host_bytes():
            raise ValueError(
                f"batch_size={batch_size} with {key}={value}: the places of their sequences take "
                f"{needed / 2**30:,.0f} GiB, this machine has {host_bytes() / 2**30:,.0f}; lower "
                "one of them"
            )


def cover_starts(
    n_tokens: int, block_size: int, limit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Starts and numbers of masked targets, both (sequences,), of the sequences that cover a text.

    The last one ends at the last token; the targets at its head that the one before it has already
    are masked. With `limit`, an evenly spaced sample of so many, always the same.
    """
    assert n_tokens > block_size
    count = -(-(n_tokens - 1) // block_size)
    chosen = np.arange(count if limit is None else min(limit, count))
    if len(chosen) < count:
        chosen = chosen * count // len(chosen)
    starts = np.minimum(chosen * block_size, n_tokens - 1 - block_size)
    return starts, chosen * block_size - starts


@dataclass
class Batches:
    """The batches of one split, train or val, for one rank.

    gradient_accumulation_steps counts an iteration's micro-batches over all ranks; micro-batch
    `micro_step * world_size + rank` is this rank's. Raises ValueError where the text is too short.
    """

    tokens: Tokens
    split: str
    config: Config
    device: torch.device
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        config, count = self.config, len(self.tokens)
        if config.block_size + 1 > count:
            raise ValueError(
                f"block_size={config.block_size}: longer than the text: the {self.split} split has "
                f"{count} tokens; choose at most {count - 1}, or a longer text"
            )
        check_draws(config)
        self.micro_steps, rest = divmod(config.gradient_accumulation_steps, self.world_size)
        assert 0 <= self.rank < self.world_size and rest == 0
        storage = config.token_storage
        self.sequences = Sequences(self.tokens, config.block_size, self.device, storage)
        self.chunks: dict[int, Tensor] = {}  # by number the starts of a chunk's micro-batches
        self.reader = ThreadPoolExecutor(1, "batches")  # starts its thread with the first task
        self.ahead: tuple[int, Future[Tensor]] | None = None  # a micro-batch that it reads
        self.waited_s = 0.0  # of the host, in all calls of `draw`, for what they were to give out

    def draw(self, iteration: int, micro_step: int) -> tuple[Tensor, Tensor]:
        """x, y (batch_size, block_size) int64 on the device: in any order, without a host sync."""
        assert 0 <= micro_step < self.micro_steps
        number = iteration * self.micro_steps + micro_step
        resident, begin_s = self.sequences.storage == "device", time.perf_counter()
        found = self.starts(number) if resident else self.taken(number)
        self.waited_s += time.perf_counter() - begin_s  # what comes now is the device's work
        if resident:
            return self.sequences.cut(found)
        x, y = found.to(self.device, non_blocking=True)
        return x, y

    def taken(self, number: int) -> Tensor:
        """(2, batch_size, block_size) on the host, when it has been read; then reads the next."""
        if self.ahead is None or self.ahead[0] != number:
            self.ahead = number, self.read(number)
        room = self.ahead[1].result()
        self.ahead = number + 1, self.read(number + 1)
        return room

    def starts(self, number: int) -> Tensor:
        """Of this rank's micro-batch `number`, counted from the run's first, from `place`."""
        chunk, row = divmod(number, CHUNK * self.micro_steps)
        if chunk not in self.chunks:
            everyones = draw_starts(
                len(self.tokens) - self.config.block_size,
                seed=self.config.seed,
                stream=STREAMS[self.split],
                chunk=chunk,
                accumulation_steps=self.config.gradient_accumulation_steps,
                batch_size=self.config.batch_size,
            )
            ours = everyones[:, self.rank :: self.world_size].reshape(-1, self.config.batch_size)
            # reading ahead comes to the next one before this one is done
            near = {each: starts for each, starts in self.chunks.items() if each == chunk - 1}
            self.chunks = near | {chunk: self.sequences.place(ours)}
        return self.chunks[chunk][row]

    def read(self, number: int) -> Future[Tensor]:
        # The room is made here: pinned memory asked for in another thread would belong to the
        # current device of that thread, which is the first GPU and not this rank's.
        room = self.sequences.room(self.config.batch_size)
        reading = self.reader.submit(self.sequences.read, self.starts(number), room)
        self.reader.submit(self.sequences.expect, self.starts(number + AHEAD))
        return reading

    @property
    def sequence_count(self) -> int:
        """Sequences in an exact evaluation of this split."""
        return len(cover_starts(len(self.tokens), self.config.block_size)[0])

    def cover(
        self, limit: int | None = None, batch_size: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's batches x, y of an exact evaluation: every next token predicted once.

        With `limit`, over a sample of so many sequences. `batch_size`: None is the training's.
        """
        starts, masked = cover_starts(len(self.tokens), self.config.block_size, limit)
        return self.masked_batches(starts, masked, batch_size or self.config.batch_size)

    def sample(
        self, iteration: int, count: int, batch_size: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's batches of `count` random sequences, others at each iteration.

        They depend on nothing that training draws, nor on how long it is to last.
        """
        starts = uniform(
            len(self.tokens) - self.config.block_size,
            count,
            seed=self.config.seed,
            stream=EVALUATION_STREAMS[self.split],
            place=iteration,
        )
        nothing = np.zeros(count, dtype=np.int64)
        return self.masked_batches(starts, nothing, batch_size or self.config.batch_size)

    def masked_batches(
        self, starts: np.ndarray, masked: np.ndarray, batch_size: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Sequences at `starts`, of whose targets the first `masked` are not counted: -1.

        Sum the losses over all batches and ranks and divide by the number of targets that count.
        Batches are dealt to the ranks in turn: some may have one more. The last is filled up with
        masked rows, so that only one shape is compiled.
        """
        block_size, spare = self.config.block_size, -len(starts) % batch_size
        starts = np.pad(starts, (0, spare)).reshape(-1, batch_size)
        masked = np.pad(masked, (0, spare), constant_values=block_size).reshape(-1, batch_size, 1)
        ours = slice(self.rank, None, self.world_size)
        placed, heads = self.sequences.place(starts[ours]), self.sequences.send(masked[ours])
        positions = torch.arange(block_size, device=self.device)
        for batch_starts, head in zip(placed, heads, strict=True):
            x, y = self.sequences.cut(batch_starts)
            yield x, y.masked_fill_(positions < head, IGNORED)
