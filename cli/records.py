"""Entries of a dictionary that was read from a file, each of which may hold anything."""

from collections.abc import Mapping
from typing import TypeVar

Kind = TypeVar("Kind")


def entry(record: Mapping[str, object], name: str, kind: type[Kind]) -> Kind:
    """The value record[name]. Raises KeyError if there is none, ValueError if it is no `kind`."""
    value = record[name]
    if not isinstance(value, kind):
        raise ValueError(f"its {name} is a {type(value).__name__}")
    return value


def entry_or_none(record: Mapping[str, object], name: str, kind: type[Kind]) -> Kind | None:
    """The value record[name], or None without one. Raises ValueError if it is no `kind`."""
    return None if record.get(name) is None else entry(record, name, kind)
