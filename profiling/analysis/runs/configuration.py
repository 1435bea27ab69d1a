"""Define what the keys of a configuration mean when runs are set side by side.

Called by groups, and by profiling.analysis.difference.
"""

from collections.abc import Collection

from cli.keys import keys
from configs.schema import BEFORE, Config, role_of
from profiling.shared.json_records import JsonObject


def flatten(config: JsonObject, prefix: str = "") -> JsonObject:
    """Flatten sections: {"profile": {"steps": 20}} becomes {"profile.steps": 20}.

    Keys that are younger than the run are added with the value that it was trained with. A program
    of others, of which the command is known, has none of them.
    """
    values: JsonObject = {}
    for key, value in config.items():
        if isinstance(value, dict):
            values |= flatten(value, f"{prefix}{key}.")
        else:
            values[prefix + key] = value
    return values if prefix or "command" in values else values | {**BEFORE, **values}


def leading_keys(names: Collection[str]) -> list[str]:
    """The keys without those that only follow another one of them."""
    known = keys(Config)
    return [name for name in names if name not in known or known[name].follows not in names]


def is_work(key: str) -> bool:
    """Whether another value of the key is other work, which explains a difference by itself."""
    return role_of(key) in ("model", "text", "work")


def same_work(key: str, value: object, other: object) -> bool:
    """Whether a step does the same work, in the same way, with either value of the key."""
    if key == "grad_clip":  # any two values that are not 0 are the same work
        return bool(value) == bool(other)
    return value == other or role_of(key) in ("outcome", "watching", "start", "place")
