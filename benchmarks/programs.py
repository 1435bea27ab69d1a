"""Programs of a folder by name: `python -m FOLDER NAME KEY=VALUE ...`, and --help of each."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import Any, get_type_hints

from cli.errors import suggestion, user_errors
from cli.help import key_table
from cli.interrupts import unwind_on_signal
from cli.keys import parse_keys


@dataclass(frozen=True)
class Program:
    """Entry in a folder's table of programs."""

    what: str  # it measures or tries
    keys: str = ""  # required or usual ones, as KEY=VALUE words
    gpu: bool = False  # whether it needs one


@dataclass(frozen=True)
class Folder:
    """Programs of a folder, each a module in it."""

    name: str  # as Python imports it
    text: str | None  # of --help, above the table
    programs: Mapping[str, Program]
    # a module's program, whose only argument `config` is a dataclass of its keys
    main_of: Callable[[ModuleType], Callable[[Any], None]] = attrgetter("main")

    def start(self) -> None:
        """Run the program that the command line names; a mistake ends this process."""
        sys.argv[0] = self.name
        with user_errors(), unwind_on_signal():
            self.run(sys.argv[1:])

    def run(self, words: list[str]) -> None:
        """Run the program `words[0]`, or print the table. Raises ValueError for a mistake."""
        if not words or words[0] in ("-h", "--help"):
            print(self.text)
            self.print_table()
            return
        name, *rest = words
        if name not in self.programs:
            near = suggestion(name, self.programs) or f"; there are {', '.join(self.programs)}"
            raise ValueError(f"{name}: no such program{near}")
        sys.argv[0] = f"{self.name} {name}"  # as errors name it
        module = import_module(f"{self.name}.{name}")
        main = self.main_of(module)
        schema = get_type_hints(main)["config"]
        if {"-h", "--help"} & set(rest):
            defaults = schema.__new__(schema)  # without __init__, which asks for required keys
            print(f"{module.__doc__}\n\n{key_table(defaults)}")
            return
        main(parse_keys(rest, schema))

    def print_table(self) -> None:
        print(f"{'name':18}{'GPU':9}what; command")
        for name, program in self.programs.items():
            print(f"{name:22}{'needed' if program.gpu else '-':9}{program.what}")
            print(f"{'':31}python -m {self.name} {name} {program.keys}".rstrip())
