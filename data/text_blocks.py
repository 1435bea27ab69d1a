"""Text files and Parquet columns of any size, dealt into blocks that are encoded one by one.

A block is a few megabytes. Where text files are cut, GPT-2's way to split words would have cut too,
so the tokens are those of the whole text. Parquet is cut between row groups.
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
SEARCHED_BYTES = 1 << 16  # for a place to cut at
BEFORE_SPACE = re.compile(rb"[!-~](?=\s)")  # no word, and no run of spaces, goes on behind it
BOM = b"\xef\xbb\xbf"
PARQUET = ".parquet"
VAL_SEED = 2357  # nanoGPT's for OpenWebText


@dataclass(frozen=True)
class Block:
    """A part of one file: bytes of a text, row groups of Parquet."""

    path: Path
    begin: int
    end: int
    size_bytes: int  # for the progress bar; of Parquet uncompressed
    split: str = ""  # of a text; empty: each row draws its own
    ends_file: bool = False  # of a text
    first_row: int = 0  # of Parquet, counted over all files


@dataclass(frozen=True)
class Document:
    text: str
    split: str
    is_whole: bool  # and not only the beginning of one that goes on in the next block


def find_sources(source: str) -> list[Path]:
    """The file, or those of the folder by name. Raises ValueError naming the source."""
    path = Path(source).expanduser()
    if path.is_file():
        return [path]
    refuse_pipe(path)
    if not path.is_dir():
        raise ValueError(f"{source}: no such file or folder; name a text, a Parquet file, a folder")
    found = sorted(each for each in files_below(path) if each.suffix in (".txt", PARQUET))
    found = [each for each in found if each.is_file() and each.stat().st_size]
    kinds = sorted({each.suffix for each in found})
    if len(kinds) != 1:
        has = "both *.txt and *.parquet" if kinds else "neither *.txt nor *.parquet"
        raise ValueError(f"{source}: holds {has}; name a folder with files of one kind")
    return found


def files_below(folder: Path) -> Iterator[Path]:
    """Raises OSError for a folder that cannot be read, whose texts rglob leaves out in silence."""

    def refuse(error: OSError) -> None:
        raise error

    for place, _, names in os.walk(folder, onerror=refuse):
        for name in names:
            yield Path(place, name)


def text_blocks(paths: list[Path], val_fraction: float) -> list[Block]:
    """Blocks of text files in order, the last `val_fraction` of all bytes to validate on."""
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
    """The first place from `near` on between a visible character and a blank, or any at all."""
    found = BEFORE_SPACE.search(os.pread(file, SEARCHED_BYTES, near - 1))
    return near - 1 + found.end() if found else character_at(file, near)


def character_at(file: int, near: int) -> int:
    """The first place from `near` on where a character of UTF-8 begins."""
    following = os.pread(file, 4, near)
    inside = next((i for i, byte in enumerate(following) if byte & 0xC0 != 0x80), 0)
    return near + inside


def documents_of_text(block: Block) -> Iterator[Document]:
    """One, with line ends made \\n. Raises ValueError naming the file and the byte."""
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
    """Some row groups each. Raises ValueError where a file or its column cannot be read."""
    blocks, rows = [], 0
    for path in paths:
        metadata = opened(path, column).metadata
        first, begin_rows, size = 0, rows, 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            rows, size = rows + group.num_rows, size + group.total_byte_size
            if size >= BLOCK_BYTES or number == metadata.num_row_groups - 1:
                blocks.append(Block(path, first, number + 1, size, first_row=begin_rows))
                first, begin_rows, size = number + 1, rows, 0
    return blocks


def opened(path: Path, column: str) -> "pyarrow.parquet.ParquetFile":
    """Raises ValueError where pyarrow is missing, or the file is none of Parquet with texts."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(f"{path}: Parquet needs pyarrow: pip install pyarrow") from error
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path}: damaged, or no Parquet file; copy it again") from error
    schema = file.schema_arrow
    if column not in schema.names:
        raise ValueError(
            f"column={column}: {path} has no such column; it has {', '.join(schema.names)}"
        )
    kind = schema.field(column).type
    if pyarrow.types.is_dictionary(kind):  # of pandas' categories
        kind = kind.value_type
    if str(kind) not in ("string", "large_string", "string_view"):
        raise ValueError(f"column={column}: in {path} it holds {kind}, not text")
    return file


def documents_of_parquet(block: Block, column: str, val_fraction: float) -> Iterator[Document]:
    """One for each row that is not null."""
    row = block.first_row
    for texts in rows_of(block, column):
        validated = drawn(row, len(texts), val_fraction)
        row += len(texts)
        for text, is_val in zip(texts, validated.tolist(), strict=True):
            if text is not None:
                yield Document(text, "val" if is_val else "train", is_whole=True)


def rows_of(block: Block, column: str) -> Iterator[list[str | None]]:
    """Some of them at a time. Raises ValueError naming the file where it is damaged."""
    import pyarrow  # here: a text needs none

    file, groups = opened(block.path, column), list(range(block.begin, block.end))
    try:
        for batch in file.iter_batches(
            batch_size=1024, row_groups=groups, columns=[column], use_threads=False
        ):
            yield batch.column(0).to_pylist()
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"{block.path}: damaged: {reason}; copy it again") from error


def drawn(first_row: int, count: int, fraction: float) -> np.ndarray:
    """Which rows are validated on, (count,) bool: a row draws by its number alone."""
    generator = np.random.Philox(
        key=np.array([VAL_SEED, 0], dtype=np.uint64),
        counter=np.array([first_row, 0, 0, 0], dtype=np.uint64),
    )
    bits = generator.random_raw(4 * count)[::4]  # the counter goes up by one in four
    return (bits >> np.uint64(11)) * 2.0**-53 < fraction
