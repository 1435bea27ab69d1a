"""Records as JSON: a dataclass or a Struct, field by field. Used by all that writes one."""

import json

import msgspec

# of a configuration or an environment: whatever JSON holds, passed on as it was written
JsonObject = dict[str, object]


def to_json(record: object, indent: int = 2) -> str:
    """With an end of line. Raises ValueError for NaN and infinities, which JSON has not."""
    return json.dumps(msgspec.to_builtins(record), indent=indent, allow_nan=False) + "\n"
