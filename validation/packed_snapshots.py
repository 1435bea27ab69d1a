"""Keeps the memory snapshots of a command compressed in one folder, which can be copied."""

import lzma
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

PRESET = 1  # frames and addresses repeat: more takes far longer and saves little


def pack(snapshot: Path, packed: Path) -> None:
    """Put a snapshot compressed into the file `packed`, and delete it."""
    packed.parent.mkdir(parents=True, exist_ok=True)
    partial = packed.with_suffix(".part")
    partial.write_bytes(lzma.compress(snapshot.read_bytes(), preset=PRESET))
    partial.rename(packed)
    snapshot.unlink()


@contextmanager
def unpacked(packed: Sequence[Path]) -> Iterator[list[Path]]:
    """Paths of these snapshots as they were, for as long as the block takes."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / path.stem for path in packed]
        for path, source in zip(paths, packed, strict=True):
            path.write_bytes(lzma.decompress(source.read_bytes()))
        yield paths
