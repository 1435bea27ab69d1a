"""The keys of a configuration, read from its dataclass, and arguments of the form KEY=VALUE.

Everything about a key is declared in its dataclass field and nowhere else. Called by configs (the
keys, their names, types and limits) and cli.help (the table, the small programs).
"""

import dataclasses
import inspect
import math
import os
import types
import typing
from collections.abc import Collection, Iterable
from copy import copy
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, TypeVar

from cli.errors import ending, suggestion

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Default = TypeVar("Default")
Schema = TypeVar("Schema", bound="DataclassInstance")
Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]  # as YAML has it

# What a key of training is to a run. Comparisons, resumes, names of artifacts and ranks ask for it:
#   model     the model, and the state of its optimizer: a checkpoint fits no other
#   text      what is trained on
#   work      what else a step computes: other sequences, other noise, other rounding
#   outcome   numbers that decide what a run comes to, and not how long a step takes
#   speed     how the same work is done, and so how long it takes
#   watching  how a run is evaluated, logged, captured and saved
#   start     what this start of a run begins from, asks for and does
#   place     where files lie, and names
Role = Literal["model", "text", "work", "outcome", "speed", "watching", "start", "place"]

TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    list: "a list such as [a,b]",
}
LARGEST = 10**30  # beyond what anything here counts; products of some of these are still floats
BOOLEANS = {"true": True, "yes": True, "on": True, "1": True}
BOOLEANS |= {"false": False, "no": False, "off": False, "0": False}


@dataclasses.dataclass(frozen=True)
class Key:
    name: str  # as on the command line, with its section: wandb.mode
    section: str  # the heading that it stands under in --help
    kind: type  # int, float, bool, str or list
    optional: bool  # null is a value too
    help: str = ""
    choices: tuple[str, ...] = ()  # words that may stand for the whole value, if it is a list
    least: float = -math.inf  # smallest value of a number
    below: float = math.inf  # a number is less than this
    role: Role | None = None  # None: not a key of train.py
    before: Value = None  # value of runs that are older than the key; None: it made no difference
    follows: str = ""  # the key by whose value `auto` decides this one
    path: bool = False  # names a file or a folder, which may lie elsewhere on another host
    tuning: bool = False  # stands last in --help: few need it


def key(
    default: Default,
    help: str,
    choices: tuple[str, ...] = (),
    *,
    least: float = -math.inf,
    below: float = math.inf,
    variable: str = "",
    role: Role | None = None,
    before: Value = None,
    follows: str = "",
    path: bool = False,
    tuning: bool = False,
) -> Default:
    """Declare a key: the field of a dataclass, whose properties are those of `Key`.

    The environment's `variable`, where it is set, gives the default of a text, or of a list whose
    entries are separated by commas. Like `dataclasses.field` it is annotated as if it returned the
    default.
    """
    metadata = {"help": help, "choices": choices, "least": least, "below": below}
    metadata |= {"role": role, "before": before, "follows": follows, "path": path, "tuning": tuning}
    if variable or isinstance(default, list):
        make = partial(from_environment, variable, default)
        return dataclasses.field(default_factory=make, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def section(schema: type[Schema], role: Role | None = None) -> Schema:
    """Declare a section: the field of a dataclass whose keys are those of `schema`, of one role."""
    return dataclasses.field(default_factory=schema, metadata={"role": role})


def from_environment(variable: str, default: Default) -> Default:
    text = os.environ.get(variable)
    if not text:
        return copy(default)
    is_list = isinstance(default, list)
    value = [word.strip() for word in text.split(",")] if is_list else text
    return typing.cast(Default, value)


@cache
def keys(schema: type["DataclassInstance"], prefix: str = "") -> dict[str, Key]:
    """Keys of the dataclass `schema` by name, those of nested sections with their prefix."""
    hints = typing.get_type_hints(schema)
    owners = {
        name: owner for owner in reversed(schema.__mro__) for name in inspect.get_annotations(owner)
    }
    known = {f.name for f in dataclasses.fields(Key)}  # benchmarks' keys have more properties
    by_name: dict[str, Key] = {}
    for f in dataclasses.fields(schema):
        name = prefix + f.name
        if dataclasses.is_dataclass(hints[f.name]):
            inside = keys(hints[f.name], f"{name}.").values()
            by_name |= {key.name: dataclasses.replace(key, **f.metadata) for key in inside}
            continue
        kind, optional = value_type(hints[f.name])
        section = prefix[:-1] or owners[f.name].__name__.removesuffix("Config").lower()
        ours = {rule: f.metadata[rule] for rule in f.metadata if rule in known}
        by_name[name] = Key(name, section, kind, optional, **ours)
    return by_name


def value_type(hint: object) -> tuple[type, bool]:
    """Type of a value and whether it may be None.

    It is (str, True) for str | None, and (list, False) for list[str].
    """
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (inner,) = (arg for arg in typing.get_args(hint) if arg is not types.NoneType)
        return value_type(inner)[0], True
    kind = typing.get_origin(hint) or hint
    assert isinstance(kind, type), f"a key is of type {hint}"
    return kind, False


def unknown_key(name: str, known: Iterable[str]) -> str:
    """Message about a key that is not among `known`."""
    return f"{name}: no such key{ending(name, known)}"


def check_values(config: "DataclassInstance") -> None:
    """Raise ValueError for a value that its key's choices or limits exclude, in sections too.

    YAML and Hydra read true and false as booleans, also for a key whose choices are words: such
    a value is turned back into the word.
    """
    for key in keys(type(config)).values():
        section, _, name = key.name.rpartition(".")
        owner = getattr(config, section) if section else config
        setattr(owner, name, valid_value(key, getattr(owner, name)))


def valid_value(key: Key, value: Value) -> Value:
    """The value, spelled as one of the key's choices if it has any.

    Raises ValueError if it is no choice, beyond the key's limits, or too large.
    """
    if value is None and key.optional:
        return None
    if key.choices and key.kind is not list:
        words = (word := spell(value).lower(), word.replace("-", "_"))  # gpt2-xl, as others write
        known = [word for word in words if word in key.choices]
        return choice(key.name, known[0] if known else value, key.choices)
    if isinstance(value, (int, float)) and not key.least <= value < key.below:
        raise ValueError(f"{key.name}={spell(value)}: must be {limits(key)}")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError(f"{key.name}={spell(value)}: too large")
    return value


def limits(key: Key) -> str:
    if key.below < math.inf:
        return f"at least {key.least} and less than {key.below}"
    return f"a number of at least {key.least}" if key.kind is float else f"at least {key.least}"


def choice(name: str, value: Value, choices: Collection[str]) -> str:
    """The `value`, if it is one of the `choices`. Raises ValueError if not."""
    if isinstance(value, str) and value in choices:
        return value
    near = suggestion(spell(value), choices)
    raise ValueError(f"{name}={spell(value)}: no such choice{near} ({', '.join(choices)})")


def spell(value: object) -> str:
    """Spell a value as the command line takes it: true, false, null, [a,b]."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(spell, value))}]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_keys(argv: list[str], schema: type[Schema]) -> Schema:
    """Make an instance of the dataclass `schema` from arguments key=value or --key=value.

    A section has its keys under its name, profile.steps=5; profile=torch sets its `kind`.

    Used by the programs without Hydra: a text value is taken as it stands, with its commas, quotes
    and further "=". Raises ValueError for anything else than known keys with values of their type.
    """
    known = keys(schema)
    values: dict[str, Value] = {}
    for argument in argv:
        name, equals, text = argument.removeprefix("--").partition("=")
        if not equals:
            raise ValueError(f"{argument}: write key=value{ending()}")
        typed = name
        if f"{name}.kind" in known:
            name = f"{name}.kind"
        if name not in known:
            raise ValueError(unknown_key(name, known))
        key = dataclasses.replace(known[name], name=typed)  # a message names it as it was typed
        values[name] = valid_value(key, parse_value(key, text))
    config = make_instance(schema, values)
    check_values(config)
    return config


def make_instance(schema: type[Schema], values: dict[str, Value]) -> Schema:
    """Make an instance with these values, by the keys' names; its sections are instances, too."""
    hints = typing.get_type_hints(schema)
    arguments: dict[str, object] = {}
    for name in {name.partition(".")[0]: None for name in values}:
        if dataclasses.is_dataclass(hints[name]):
            inside = {k.removeprefix(f"{name}."): v for k, v in values.items() if "." in k}
            arguments[name] = hints[name](**inside)
        else:
            arguments[name] = values[name]
    return schema(**arguments)


def parse_value(key: Key, text: str) -> Value:
    if key.optional and text == "null":
        return None
    try:
        return BOOLEANS[text.lower()] if key.kind is bool else key.kind(text)
    except (KeyError, ValueError):
        raise ValueError(f"{key.name}={text}: must be {TYPE_NAMES[key.kind]}") from None
