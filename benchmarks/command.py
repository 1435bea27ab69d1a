"""The command line of every lab: KEY=VALUE arguments, and --help from its docstring."""

import sys
from collections.abc import Callable
from typing import Any

from cli.errors import user_errors
from cli.help import key_table
from cli.keys import parse_keys


def run_lab(doc: str, schema: type, main: Callable[[Any], None]) -> None:
    """Calls `main` with a `schema` filled from sys.argv, or prints `doc` and the keys."""
    with user_errors():
        if {"-h", "--help"} & set(sys.argv):
            print(f"{doc}\n{key_table(schema())}")
        else:
            main(parse_keys(sys.argv[1:], schema))
