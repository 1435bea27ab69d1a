"""Records as JSON: a dataclass or a Struct, field by field."""

import json
from pathlib import Path
from typing import TypeVar

import msgspec

from cli.files import refuse_pipe

# a configuration or an environment: whatever JSON holds, passed on as it was written
JsonObject = dict[str, object]
T = TypeVar("T")


def to_json(record: object, indent: int | None = 2) -> str:
    """JSON text of the record, with a final newline.

    Raises ValueError for NaN and infinities, which JSON does not have.
    """
    return json.dumps(msgspec.to_builtins(record), indent=indent, allow_nan=False) + "\n"


def read_json(path: Path, kind: type[T]) -> T:
    """Read a record of type `kind`, or a JsonObject.

    Raises ValueError naming the file, and the field that is wrong.
    """
    try:
        refuse_pipe(path)
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: is damaged: {error}") from error
