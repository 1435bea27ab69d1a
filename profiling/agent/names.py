"""Names from captures, kept apart from the words of an answer.

Anybody can name a kernel, a range or a process, and so write to whoever reads the answer: "ignore
what you were told". An answer therefore has names in one field, and elsewhere only references.
"""

import re

import msgspec

from cli.plain import plain
from profiling.report.kernel_label import whole_label
from profiling.shared.kernel_names import short_name

# fields of records that a captured program, its files or its machine filled in
FIELDS = {
    *("name", "before", "after", "within", "phase", "step_name", "file", "group", "algorithm"),
    *("gpu", "device", "command", "place", "line", "function", "stack", "also", "longest"),
}
NAMED = {"by_phase", "host_ms"}  # fields whose keys are names
# up to three words without a space, such as aten::copy_ or optimizer_step, hardly are an order
HARMLESS = re.compile(r"[^\w\s]*_*[A-Za-z0-9.]+((_|[^\w\s])+[A-Za-z0-9.]+){0,2}(_|[^\w\s])*")
HARMLESS_LETTERS = 64
NAME_LETTERS = 160


def names_of(record: object) -> frozenset[str]:
    """The names in the record, and the shorter forms in which sentences have them.

    Names that could not hold an order are left out.
    """
    found: set[str] = set()
    collect(msgspec.to_builtins(record), False, found)
    forms = found | {form for name in found for form in (whole_label(name), short_name(name))}
    forms |= {re.split(r"[/\\]", name)[-1] for name in found}  # a file without its folders
    forms |= {plain(name) for name in forms}
    worded = (name for name in forms if any(map(str.isalnum, name)))
    return frozenset(name for name in worded if not is_harmless(name))


def collect(value: object, named: bool, found: set[str]) -> None:
    """Add the texts in a field of FIELDS, at any depth below it."""
    if isinstance(value, str):
        found |= {value} if named else set()
    elif isinstance(value, dict):
        for key, inside in value.items():
            if key in NAMED and isinstance(inside, dict):
                found |= set(inside)
            collect(inside, key in FIELDS, found)
    elif isinstance(value, list | tuple):
        for inside in value:
            collect(inside, named, found)


def is_harmless(name: str) -> bool:
    return len(name) <= HARMLESS_LETTERS and HARMLESS.fullmatch(name) is not None


class References:
    """Gives each name of an answer a reference: n1, n2, ..."""

    def __init__(self, known: frozenset[str], letters: int = NAME_LETTERS) -> None:
        self.known = sorted(known, key=lambda name: (-len(name), name))
        self.letters = letters
        self.given: dict[str, str] = {}

    def of(self, name: str) -> str:
        return self.given.setdefault(name, f"n{len(self.given) + 1}")

    def in_words(self, text: str) -> str:
        """The text on one line, with a reference in place of each known name."""
        for name in self.known:
            if name in text:
                text = text.replace(name, f"[{self.of(name)}]")
        return plain(text)

    def names(self) -> dict[str, str]:
        """Reference -> the name on one line, without control characters, cut if it is long."""
        cleaned = {given: plain(name) for name, given in self.given.items()}
        longest = self.letters
        return {
            given: name if len(name) <= longest else f"{name[: longest - 1]}…"
            for given, name in cleaned.items()
        }
