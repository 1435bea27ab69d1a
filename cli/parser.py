"""The command line of a verb whose mistakes are told in one line. Standard library only."""

import argparse
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """Raises ValueError instead of printing its usage: profiling.__main__ tells it in one line."""

    def __init__(self, verb: str, **options: Any):
        super().__init__(**{"add_help": False, "allow_abbrev": False, **options})
        self.verb = verb

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see python -m profiling {self.verb} --help")
