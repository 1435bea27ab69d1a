"""Text files and Parquet columns of any size, cut into blocks that are encoded one by one.

A block is a few megabytes. Text files are cut only where GPT-2's word splitting cuts too, so the
tokens are those of the whole text. Parquet is cut between row groups.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cli.files import refuse_pipe

if TYPE_CHECKING:
    import pyarrow.parquet

BLOCK_BYTES = 4 << 20
SEARCHED_BYTES = 1 << 16  # bytes that are searched for a place to cut at
BEFORE_SPACE = re.compile(rb"[!-~](?=\s)")  # no word, and no run of spaces, crosses its end
BOM = b"\xef\xbb\xbf"
PARQUET = ".parquet"
VAL_SEED = 2357  # as in nanoGPT for OpenWebText


@dataclass(frozen=True)
class Block:
    """A part of one file: bytes `begin` to `end` of a text, or row groups of Parquet."""

    path: Path
    begin: int
    end: int
    size_bytes: int  # for the progress bar; uncompressed size of Parquet
    split: str = ""  # split of a text; empty for Parquet, where each row draws its own
    ends_file: bool = False  # whether a text ends with this block
    first_row: int = 0  # number of the first row of Parquet, counted over all files


@dataclass(frozen=True)
class Document:
    text: str
    split: str
    is_whole: bool  # False: it goes on in the next block


def find_sources(source: str) -> list[Path]:
    """The file, or the files of the folder, sorted. Raises ValueError that names the source."""
    path = Path(source).expanduser()
    if path.is_file():
        return [path]
    refuse_pipe(path)
    if not path.is_dir():
        raise ValueError(
            f"{source}: no such file or folder; name a text file, a Parquet file or a folder"
        )
    files = sorted(file for file in files_below(path) if file.suffix in (".txt", PARQUET))
    files = [file for file in files if file.is_file() and file.stat().st_size]
    kinds = sorted({file.suffix for file in files})
    if len(kinds) != 1:
        has = "both *.txt and *.parquet" if kinds else "neither *.txt nor *.parquet"
        raise ValueError(f"{source}: contains {has}; name a folder with files of one kind")
    return files


def files_below(folder: Path) -> Iterator[Path]:
    """Yield all files below the folder.

    Raises OSError for a folder that cannot be read; rglob would silently skip its files.
    """

    def refuse(error: OSError) -> None:
        raise error

    for place, _, names in os.walk(folder, onerror=refuse):
        for name in names:
            yield Path(place, name)


def text_blocks(paths: list[Path], val_fraction: float) -> list[Block]:
    """Blocks of text files in order; the last `val_fraction` of all bytes is for validation."""
    sizes = [path.stat().st_size for path in paths]
    val_begin, passed, blocks = int(sum(sizes) * (1 - val_fraction)), 0, []
    for path, size in zip(paths, sizes, strict=True):
        with open(path, "rb") as file:
            inner = val_begin - passed
            border = character_at(file.fileno(), inner) if 0 < inner < size else None
            places = {0, size} | ({border} if border is not None else set())
            places |= {
                word_end_at(file.fileno(), near) for near in range(BLOCK_BYTES, size, BLOCK_BYTES)
            }
        cuts = sorted(places)
        for begin, end in zip(cuts, cuts[1:], strict=False):
            split = "val" if begin >= (size if inner >= size else border or inner) else "train"
            blocks.append(Block(path, begin, end, end - begin, split, ends_file=end == size))
        passed += size
    return blocks


def word_end_at(file: int, near: int) -> int:
    """First place from byte `near` on between a visible character and a blank.

    If none is near, the first place between any two characters.
    """
    word_end = BEFORE_SPACE.search(os.pread(file, SEARCHED_BYTES, near - 1))
    return near - 1 + word_end.end() if word_end else character_at(file, near)


def character_at(file: int, near: int) -> int:
    """First byte from `near` on at which a character of UTF-8 begins."""
    following = os.pread(file, 4, near)
    inside = next((i for i, byte in enumerate(following) if byte & 0xC0 != 0x80), 0)
    return near + inside


def documents_of_text(block: Block) -> Iterator[Document]:
    """Yield the one document of a block of text, with line ends \\n.

    Raises ValueError that names the file, and the byte that is not UTF-8.
    """
    try:
        with open(block.path, "rb") as file:
            file.seek(block.begin)
            content = file.read(block.end - block.begin)
    except OSError as error:
        raise ValueError(f"{block.path}: cannot be read: {error.strerror}") from error
    if block.begin == 0:
        content = content.removeprefix(BOM)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        place, value = block.end - len(content) + error.start, content[error.start]
        raise ValueError(
            f"{block.path}: not UTF-8 (byte {place} is 0x{value:02x}); convert it first, for "
            "example with iconv"
        ) from error
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    yield Document(text, block.split, block.ends_file)


def parquet_blocks(paths: list[Path], column: str) -> list[Block]:
    """Blocks of some row groups each. Raises ValueError if a file or its column cannot be read."""
    blocks, rows = [], 0
    for path in paths:
        metadata = open_parquet(path, column).metadata
        first, begin_rows, size = 0, rows, 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            rows, size = rows + group.num_rows, size + group.total_byte_size
            if size >= BLOCK_BYTES or number == metadata.num_row_groups - 1:
                blocks.append(Block(path, first, number + 1, size, first_row=begin_rows))
                first, begin_rows, size = number + 1, rows, 0
    return blocks


def open_parquet(path: Path, column: str) -> "pyarrow.parquet.ParquetFile":
    """Open a Parquet file and check that `column` holds text.

    Raises ValueError if it does not, if the file is not Parquet, or if pyarrow is missing.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(
            f"{path}: reading Parquet needs pyarrow; run pip install pyarrow"
        ) from error
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path}: damaged or not a Parquet file; copy it again") from error
    schema = file.schema_arrow
    if column not in schema.names:
        raise ValueError(
            f"column={column}: {path} has no such column; it has {', '.join(schema.names)}"
        )
    kind = schema.field(column).type
    if pyarrow.types.is_dictionary(kind):  # pandas writes categories so
        kind = kind.value_type
    if str(kind) not in ("string", "large_string", "string_view"):
        raise ValueError(f"column={column}: in {path} this column contains {kind}, not text")
    return file


def documents_of_parquet(block: Block, column: str, val_fraction: float) -> Iterator[Document]:
    """Yield a document for each row of the block that is not null."""
    row = block.first_row
    for texts in rows_of(block, column):
        in_val = draw_validation_rows(row, len(texts), val_fraction)
        row += len(texts)
        for text, is_val in zip(texts, in_val.tolist(), strict=True):
            if text is not None:
                yield Document(text, "val" if is_val else "train", is_whole=True)


def rows_of(block: Block, column: str) -> Iterator[list[str | None]]:
    """Yield the texts of the block's rows, many at a time. ValueError names a damaged file."""
    import pyarrow  # imported here, since text files do not need it

    file, groups = open_parquet(block.path, column), list(range(block.begin, block.end))
    try:
        for batch in file.iter_batches(
            batch_size=1024, row_groups=groups, columns=[column], use_threads=False
        ):
            yield batch.column(0).to_pylist()
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"{block.path}: damaged: {reason}; copy it again") from error


def draw_validation_rows(first_row: int, count: int, fraction: float) -> np.ndarray:
    """Mask of the rows for validation, (count,) bool; it depends on a row's number alone."""
    generator = np.random.Philox(
        key=np.array([VAL_SEED, 0], dtype=np.uint64),
        counter=np.array([first_row, 0, 0, 0], dtype=np.uint64),
    )
    bits = generator.random_raw(4 * count)[::4]  # the counter goes up once in four words
    return (bits >> np.uint64(11)) * 2.0**-53 < fraction
