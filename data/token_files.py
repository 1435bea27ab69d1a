"""Files of token ids, mapped and joined end to end, so that any range can be read.

Called by `data.dataset`, which finds the files, and `data.sequences`, which reads batches.
"""

import mmap
import resource
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

AROUND_BYTES = 1 << 16  # Linux maps so much around a page that is touched
RELEASE_BYTES = 1 << 28  # mapped pages count as memory of the process until they are released
SPARE_FILES = 256  # descriptors for everything but token files


@dataclass(frozen=True)
class TokenFile:
    """`count` ids of `dtype`, little-endian, from byte `offset` of the file on."""

    path: Path
    dtype: np.dtype
    count: int
    offset: int = 0


class Tokens:
    """Token ids of one split: `len` is their number, `read` returns ranges of them.

    The kernel loads and drops pages of the files as it sees fit: the process needs no memory of
    its own for them.
    """

    def __init__(self, arrays: Sequence[np.ndarray], vocab_size: int | None = None) -> None:
        """Take `arrays` of ids (n,), all of one dtype. `read` refuses ids from `vocab_size` on."""
        self.arrays = [np.asarray(array) for array in arrays]
        self.names = [f"tokens {number}" for number in range(len(arrays))]
        self.maps: list[tuple[mmap.mmap, int]] = []  # each with the offset of its first id
        self.ends = list(accumulate(len(array) for array in self.arrays))
        self.vocab_size = vocab_size
        self.dtype = self.arrays[0].dtype
        self.touched_bytes = 0

    @classmethod
    def open(cls, files: Sequence[TokenFile], vocab_size: int) -> "Tokens":
        """Map the files. Raises OSError if one cannot be opened."""
        raise_file_limit(len(files))
        maps = [map_file(file.path) for file in files]
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
        """Ids (b, length) from `starts` (b,) on.

        Raises ValueError for an id that is no token, and as `prefetch` does.
        """
        self.prefetch(starts, length)
        ids = np.empty((len(starts), length), self.dtype)
        for row, start in zip(ids, starts.tolist(), strict=True):
            for number, begin, end in self.pieces(start, length):
                at = self.ends[number] - len(self.arrays[number]) + begin - start
                row[at : at + end - begin] = self.arrays[number][begin:end]
        if self.vocab_size is not None and ids.size and ids.max() >= self.vocab_size:
            self.refuse(ids, starts)
        self.release_pages(ids.nbytes + AROUND_BYTES * len(starts))
        return ids

    def read_all(self) -> np.ndarray:
        """All ids (n,), in memory."""
        return self.read(np.zeros(1, np.int64), len(self)).ravel()

    def pieces(self, start: int, length: int) -> list[tuple[int, int, int]]:
        """Parts of a range as (file, first, end), counted in the file; one for each file."""
        parts, stop = [], start + length
        number = bisect_right(self.ends, start)
        while start < stop:
            first = self.ends[number] - len(self.arrays[number])
            end = min(stop, self.ends[number])
            if end > start:
                parts.append((number, start - first, end - first))
            start, number = end, number + 1
        return parts

    def prefetch(self, starts: np.ndarray, length: int) -> None:
        """Let the kernel fetch these ranges from the disk, all at once, without waiting for them.

        Raises ValueError if a file has become shorter: a read there would kill the process.
        """
        size = self.dtype.itemsize
        for start in starts.tolist() if self.maps else ():
            for number, begin, end in self.pieces(start, length):
                content, offset = self.maps[number]
                if content.size() < offset + end * size:
                    raise ValueError(
                        f"{self.names[number]}: has become shorter since the run started; when "
                        "you prepare a text again, use another folder"
                    )
                page = (offset + begin * size) // mmap.PAGESIZE * mmap.PAGESIZE
                content.madvise(mmap.MADV_WILLNEED, page, offset + end * size - page)

    def release_pages(self, touched_bytes: int) -> None:
        """Count `touched_bytes`, and unmap all pages once there are many.

        They stay in the kernel's cache, but no longer count as memory of this process.
        """
        self.touched_bytes += touched_bytes
        if self.touched_bytes > RELEASE_BYTES:
            self.touched_bytes = 0
            for content, _ in self.maps:
                content.madvise(mmap.MADV_DONTNEED)

    def refuse(self, ids: np.ndarray, starts: np.ndarray) -> None:
        row, column = np.argwhere(ids >= self.vocab_size)[0].tolist()
        ((number, place, _),) = self.pieces(int(starts[row]) + column, 1)
        raise ValueError(
            f"{self.names[number]}: token {place} is {ids[row, column]}, beyond the vocabulary "
            f"of {self.vocab_size}; the file is damaged or from another tokenizer"
        )


def map_file(path: Path) -> mmap.mmap:
    """Map a file for reads at random places: the kernel is not to read ahead."""
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    content.madvise(mmap.MADV_RANDOM)
    return content


def raise_file_limit(count: int) -> None:
    """Raise the limit of open files if `count` token files need it.

    Each mapped file keeps a descriptor, and the limit is 1,024 on many systems.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
