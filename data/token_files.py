"""Files of token ids put end to end and mapped, of which any range can be read.

Called by `data.dataset`, which knows the files, and `data.sequences`, which reads batches.
"""

import mmap
import resource
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

AROUND_BYTES = 1 << 16  # what Linux maps around a page that is touched
LET_GO_BYTES = 1 << 28  # mapped pages count as memory of the process until they are let go
SPARE_FILES = 256  # descriptors for all else


@dataclass(frozen=True)
class TokenFile:
    """`count` ids of `dtype`, little-endian, from byte `offset` of the file on."""

    path: Path
    dtype: np.dtype
    count: int
    offset: int = 0


class Tokens:
    """The ids of one split. It has a length, and `read` cuts ranges out of it.

    Pages of the files come and go as the kernel likes: a process needs memory for none of them.
    """

    def __init__(self, arrays: Sequence[np.ndarray], vocab_size: int | None = None) -> None:
        """`arrays`: ids (n,) of one dtype. Ids from `vocab_size` on are refused when read."""
        self.arrays = [np.asarray(array) for array in arrays]
        self.names = [f"tokens {number}" for number in range(len(arrays))]
        self.maps: list[tuple[mmap.mmap, int]] = []  # with the offset of the first id
        self.ends = list(accumulate(len(array) for array in self.arrays))
        self.vocab_size = vocab_size
        self.dtype = self.arrays[0].dtype
        self.touched_bytes = 0

    @classmethod
    def open(cls, files: Sequence[TokenFile], vocab_size: int) -> "Tokens":
        """Raises OSError where one cannot be opened."""
        allow_files(len(files))
        maps = [mapped(file.path) for file in files]
        tokens = cls(
            [
                np.frombuffer(content, file.dtype, file.count, file.offset)
                for file, content in zip(files, maps, strict=True)
            ],
            vocab_size,
        )
        tokens.names = [str(file.path) for file in files]
        tokens.maps = [(content, f.offset) for content, f in zip(maps, files, strict=True)]
        return tokens

    def __len__(self) -> int:
        return self.ends[-1]

    def read(self, starts: np.ndarray, length: int) -> np.ndarray:
        """The ids (b, length) from `starts` (b,) on. Raises ValueError for one that is no token,
        and as `expect`."""
        self.expect(starts, length)
        found = np.empty((len(starts), length), self.dtype)
        for row, start in zip(found, starts.tolist(), strict=True):
            for number, begin, end in self.pieces(start, length):
                at = self.ends[number] - len(self.arrays[number]) + begin - start
                row[at : at + end - begin] = self.arrays[number][begin:end]
        if self.vocab_size is not None and found.size and found.max() >= self.vocab_size:
            self.refuse(found, starts)
        self.let_go(found.nbytes + AROUND_BYTES * len(starts))
        return found

    def whole(self) -> np.ndarray:
        """All ids (n,), in memory."""
        return self.read(np.zeros(1, np.int64), len(self))[0]

    def pieces(self, start: int, length: int) -> list[tuple[int, int, int]]:
        """(file, first, end) of the range, by places in the file: several where it crosses ends."""
        found, stop = [], start + length
        number = bisect_right(self.ends, start)
        while start < stop:
            first = self.ends[number] - len(self.arrays[number])
            end = min(stop, self.ends[number])
            if end > start:
                found.append((number, start - first, end - first))
            start, number = end, number + 1
        return found

    def expect(self, starts: np.ndarray, length: int) -> None:
        """Has the kernel fetch these ranges from the disk, all at once; waits for none of them.

        Raises ValueError where a file has become shorter: to read there would kill the process.
        """
        size = self.dtype.itemsize
        for start in starts.tolist() if self.maps else ():
            for number, begin, end in self.pieces(start, length):
                content, offset = self.maps[number]
                if content.size() < offset + end * size:
                    raise ValueError(
                        f"{self.names[number]}: has become shorter since the run began; prepare a "
                        "text anew in another folder"
                    )
                page = (offset + begin * size) // mmap.PAGESIZE * mmap.PAGESIZE
                content.madvise(mmap.MADV_WILLNEED, page, offset + end * size - page)

    def let_go(self, touched_bytes: int) -> None:
        """Pages stay in the kernel's cache; what was mapped of them is no longer ours."""
        self.touched_bytes += touched_bytes
        if self.touched_bytes > LET_GO_BYTES:
            self.touched_bytes = 0
            for content, _ in self.maps:
                content.madvise(mmap.MADV_DONTNEED)

    def refuse(self, found: np.ndarray, starts: np.ndarray) -> None:
        row, column = np.argwhere(found >= self.vocab_size)[0].tolist()
        ((number, place, _),) = self.pieces(int(starts[row]) + column, 1)
        raise ValueError(
            f"{self.names[number]}: token {place} is {found[row, column]}, beyond the vocabulary "
            f"of {self.vocab_size}; the file is damaged, or of another tokenizer"
        )


def mapped(path: Path) -> mmap.mmap:
    """To read from places at random: the kernel shall fetch nothing behind them."""
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    content.madvise(mmap.MADV_RANDOM)
    return content


def allow_files(count: int) -> None:
    """Each mapped file keeps a descriptor, and many systems begin with 1,024 of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
