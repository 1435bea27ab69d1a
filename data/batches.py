"""Random batches to train on, whose order depends on the seed alone, and all of a text in order.

Called by the training loop and by evaluation. If a text stays in its files, a thread reads the
next random batch while this one is used, and asks the kernel to prefetch those that follow.
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
AHEAD = 8  # micro-batches from the one being read to the one being prefetched
# the splits share a seed but not an order, and evaluation draws other sequences than training
STREAMS = {"train": 0, "val": 1}
EVALUATION_STREAMS = {"train": 2, "val": 3}
DRAWN_BYTES = 24  # memory for a start while it is drawn: the random word, its fraction, the number
IGNORED = -1  # a target that cross_entropy(ignore_index=-1) does not count


def draw_starts(
    n_starts: int, *, seed: int, stream: int, chunk: int, accumulation_steps: int, batch_size: int
) -> np.ndarray:
    """Starts (CHUNK, accumulation_steps, batch_size) int64, uniform over [0, n_starts)."""
    size = (CHUNK, accumulation_steps, batch_size)
    return uniform(n_starts, math.prod(size), seed=seed, stream=stream, place=chunk).reshape(size)


def uniform(n_starts: int, count: int, *, seed: int, stream: int, place: int) -> np.ndarray:
    """Uniform random numbers (count,) int64 over [0, n_starts).

    Philox is a counter-based generator: `place` in its sequence is computed, not reached step by
    step. Its raw words are scaled here because NumPy promises only these to stay the same, not its
    distributions.
    """
    bits = np.random.Philox(
        key=np.array([seed, stream], dtype=np.uint64),
        counter=np.array([0, 0, place, 0], dtype=np.uint64),
    ).random_raw(count)
    return ((bits >> np.uint64(11)) * 2.0**-53 * n_starts).astype(np.int64)


def check_draws(config: Config) -> None:
    """Raise ValueError if this machine lacks the memory for the starts that are drawn at once."""
    batch_size, steps = config.batch_size, config.gradient_accumulation_steps
    for key, value, sequences in (
        ("gradient_accumulation_steps", steps, CHUNK * steps * batch_size),
        ("eval_iters", config.eval_iters, config.eval_iters * batch_size),
    ):
        needed = DRAWN_BYTES * sequences
        if needed > host_bytes():
            raise ValueError(
                f"batch_size={batch_size} with {key}={value}: the positions of the sequences "
                f"take {needed / 2**30:,.0f} GiB, but this machine has "
                f"{host_bytes() / 2**30:,.0f}; lower one of these keys"
            )


def cover_starts(
    n_tokens: int, block_size: int, limit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Starts and numbers of masked targets, both (sequences,), of the sequences that cover a text.

    The last sequence ends at the last token; its first targets, which the sequence before it has
    too, are masked. With `limit`, an evenly spaced sample of so many, always the same.
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
    """Batches of one split, train or val, for one rank.

    gradient_accumulation_steps counts an iteration's micro-batches over all ranks; micro-batch
    `micro_step * world_size + rank` is this rank's. Raises ValueError if the text is too short.
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
                f"block_size={config.block_size}: longer than the text: the {self.split} split "
                f"has {count} tokens; use at most {count - 1}, or a longer text"
            )
        check_draws(config)
        self.micro_steps, rest = divmod(config.gradient_accumulation_steps, self.world_size)
        assert 0 <= self.rank < self.world_size and rest == 0
        storage = config.token_storage
        self.sequences = Sequences(self.tokens, config.block_size, self.device, storage)
        self.chunks: dict[int, Tensor] = {}  # starts of a chunk's micro-batches, by its number
        self.reader = ThreadPoolExecutor(1, "batches")  # starts its thread with the first task
        self.ahead: tuple[int, Future[Tensor]] | None = None  # micro-batch that the reader reads
        self.waited_s = 0.0  # time for which `draw` made the host wait, over all calls

    def draw(self, iteration: int, micro_step: int) -> tuple[Tensor, Tensor]:
        """Batch x, y (batch_size, block_size) int64 on the device, without a host sync.

        Micro-batches may be drawn in any order.
        """
        assert 0 <= micro_step < self.micro_steps
        number = iteration * self.micro_steps + micro_step
        resident, begin_s = self.sequences.storage == "device", time.perf_counter()
        starts_or_batch = self.starts(number) if resident else self.wait_for(number)
        self.waited_s += time.perf_counter() - begin_s  # the rest is the device's work
        if resident:
            return self.sequences.cut(starts_or_batch)
        x, y = starts_or_batch.to(self.device, non_blocking=True)
        return x, y

    def wait_for(self, number: int) -> Tensor:
        """Micro-batch (2, batch_size, block_size) on the host, once it is read.

        The reader then begins with the next one.
        """
        if self.ahead is None or self.ahead[0] != number:
            self.ahead = number, self.start_reading(number)
        batch = self.ahead[1].result()
        self.ahead = number + 1, self.start_reading(number + 1)
        return batch

    def starts(self, number: int) -> Tensor:
        """Starts of this rank's micro-batch `number`, as `Sequences.place` returns them.

        Numbers count from the first micro-batch of the run.
        """
        chunk, row = divmod(number, CHUNK * self.micro_steps)
        if chunk not in self.chunks:
            all_starts = draw_starts(
                len(self.tokens) - self.config.block_size,
                seed=self.config.seed,
                stream=STREAMS[self.split],
                chunk=chunk,
                accumulation_steps=self.config.gradient_accumulation_steps,
                batch_size=self.config.batch_size,
            )
            ours = all_starts[:, self.rank :: self.world_size].reshape(-1, self.config.batch_size)
            # keep the previous chunk: reading ahead reaches this one before that one is used up
            previous = {n: starts for n, starts in self.chunks.items() if n == chunk - 1}
            self.chunks = previous | {chunk: self.sequences.place(ours)}
        return self.chunks[chunk][row]

    def start_reading(self, number: int) -> Future[Tensor]:
        # The buffer is made here: pinned memory allocated in another thread would belong to the
        # current device of that thread, which is the first GPU and not this rank's.
        buffer = self.sequences.host_buffer(self.config.batch_size)
        reading = self.reader.submit(self.sequences.read, self.starts(number), buffer)
        self.reader.submit(self.sequences.prefetch, self.starts(number + AHEAD))
        return reading

    @property
    def sequence_count(self) -> int:
        """Number of sequences in an exact evaluation of this split."""
        return len(cover_starts(len(self.tokens), self.config.block_size)[0])

    def cover(
        self, limit: int | None = None, batch_size: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches x, y of an exact evaluation on this rank: every next token is predicted once.

        With `limit`, a sample of so many sequences. `batch_size` None is that of training.
        """
        starts, masked = cover_starts(len(self.tokens), self.config.block_size, limit)
        return self.masked_batches(starts, masked, batch_size or self.config.batch_size)

    def sample(
        self, iteration: int, count: int, batch_size: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches x, y of `count` random sequences on this rank, others at each iteration.

        They do not depend on what training draws, nor on the length of the run.
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
        """Batches x, y of the sequences at `starts`, with the first `masked` targets of each -1.

        Sum the losses over all batches and ranks and divide by the number of other targets.
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
