"""Keeps the memory snapshots of a command compressed in one folder, which can be copied."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from validation import pair_captures


def pack(snapshot: Path, folder: Path) -> None:
    """Put a snapshot compressed into the folder, as NAME.pickle.xz, and delete it."""
    folder.mkdir(parents=True, exist_ok=True)
    pair_captures.pack(snapshot, folder)
    snapshot.unlink()


@contextmanager
def unpacked(packed: Sequence[Path]) -> Iterator[list[Path]]:
    """Paths of these snapshots as they were, for as long as the block takes."""
    with TemporaryDirectory() as folder:
        yield [pair_captures.unpack(path, Path(folder)) for path in packed]
