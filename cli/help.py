"""The table of keys in --help, and the start of a program whose command line is keys alone."""

import sys
import textwrap
from operator import attrgetter
from typing import TYPE_CHECKING

from cli.errors import user_errors
from cli.keys import Schema, keys, parse_keys, spell
from cli.program import as_called

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

WIDTH = 108
KEY_WIDTH = 34


def read_keys(purpose: str, schema: type[Schema]) -> Schema:
    """Read sys.argv into a `schema`. --help prints `purpose` and the keys, and ends the program."""
    with user_errors():
        if {"-h", "--help"} & set(sys.argv[1:]):
            print(as_called(f"{purpose}\n{key_table(schema())}"))
            raise SystemExit(0)
        return parse_keys(sys.argv[1:], schema)


def key_table(config: "DataclassInstance") -> str:
    """Text of --help about every key: its value in `config`, its meaning and its choices."""
    lines = []
    section = None
    for key in sorted(keys(type(config)).values(), key=attrgetter("tuning")):
        heading = "tuning" if key.tuning else key.section
        if heading != section:
            section = heading
            lines += ["", f"keys: {section}"]
        spelled = f"  {key.name}={spell(attrgetter(key.name)(config))}"
        choices = f" [{' | '.join(key.choices)}]" if key.choices else ""
        text = textwrap.wrap(key.help + choices, WIDTH - KEY_WIDTH) or [""]
        if len(spelled) >= KEY_WIDTH:
            lines.append(spelled)
            spelled = ""
        lines += [f"{spelled:{KEY_WIDTH}}{text[0]}", *(" " * KEY_WIDTH + t for t in text[1:])]
    return "\n".join(lines[1:])
