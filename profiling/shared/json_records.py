"""Records as JSON: a dataclass or a Struct, field by field."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from cli.files import name_path_in_errors, refuse_pipe

# a configuration or an environment: whatever JSON holds, passed on as it was written
JsonObject = dict[str, object]
T = TypeVar("T")


def to_json(record: object, indent: int | None = 2) -> str:
    """JSON text of the record, with a final newline.

    Raises ValueError for NaN and infinities, which JSON does not have.
    """
    return json.dumps(msgspec.to_builtins(record), indent=indent, allow_nan=False) + "\n"


def read_json(path: Path, kind: type[T], cure: str = "") -> T:
    """Read a record of type `kind`, or a JsonObject.

    Raises ValueError naming the file, the field that is wrong, and the `cure`.
    """
    ending = f"; {cure}" if cure else ""
    try:
        refuse_pipe(path)
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}{ending}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: is damaged: {error}{ending}") from error


def append_lines(path: Path, records: Sequence[object]) -> None:
    """Append each record as a line, all by one write. A last line that was cut off is removed.

    Raises ValueError if it cannot be written.
    """
    lines = "".join(to_json(record, indent=None) for record in records).encode()
    with name_path_in_errors(path), open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        file.write(lines)


def read_lines(path: Path, kind: type[T]) -> list[T]:
    """Read the records of a file that has one a line, but for a last line that was cut off.

    Raises ValueError naming the file, the line, and the field that is wrong.
    """
    try:
        refuse_pipe(path)
        *lines, _ = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(msgspec.json.decode(line, type=kind))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{path}: line {number} is damaged: {error}") from error
    return records
