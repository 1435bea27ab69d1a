"""Records as JSON: a dataclass or a Struct, field by field. Used by what writes or reads one."""

import json
from pathlib import Path
from typing import TypeVar

import msgspec

from cli.files import refuse_pipe

# of a configuration or an environment: whatever JSON holds, passed on as it was written
JsonObject = dict[str, object]
T = TypeVar("T")


def to_json(record: object, indent: int | None = 2) -> str:
    """With an end of line. Raises ValueError for NaN and infinities, which JSON has not."""
    return json.dumps(msgspec.to_builtins(record), indent=indent, allow_nan=False) + "\n"


def read_json(path: Path, kind: type[T]) -> T:
    """A record, or JsonObject. Raises ValueError naming the file, and the field that is wrong."""
    try:
        refuse_pipe(path)
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: is damaged: {error}") from error
