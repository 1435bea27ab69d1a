"""Defines what is personal in a capture: who ran it and where, not what it measured.

The modules that warn (profiling.timeline.nsys_facts, chrome_json) and the one that removes
(profiling.timeline.scrub) share this definition.
"""

import re
from collections.abc import Iterable, Sequence

PART = r"[\w.+@-]+"
# Each begins with a plain character, which is what makes searching hundreds of megabytes quick.
FOLDERS = (
    # /home/me itself, whose last part is the user
    re.compile(rf"/(?<![\w./\\]/)(?:home|Users)/{PART}(?![\w.+@/-])"),
    re.compile(rf"\\/(?<![\w./\\]\\/)(?:home|Users)\\/{PART}(?![\w.+@\\-])"),
    # /a/b/name becomes name, also in file:///a/b/name; a lone /name, and slashes in a word, stay
    re.compile(rf"/(?<![\w./\\]/)/{{0,2}}(?:{PART}/)+(?=[\w.+@-])"),
    re.compile(
        rf"\\/(?<![\w./\\]\\/)(?:\\/){{0,2}}(?:{PART}\\/)+(?=[\w.+@-])"
    ),  # as JSON may have it
    # C:\a\b\name becomes C:name; the backslashes may be doubled
    re.compile(r"\\(?<=(?<!\w)[A-Za-z]:\\)\\*(?:[\w .+@-]+\\+)+(?=[\w.+@-])"),
)
# names of the rows and JSON members whose value says who or where
NAMES = re.compile(r"ENVIRONMENT|Environment|HOST|Hostname|USER|WORKING_DIR|DISPLAY_NAME|Uuid")
# what follows says which package it is, that it is Python's own, or the hook of this tool
LIBRARY = re.compile(
    r".*/((?:(?:site|dist)-packages|lib(?:64)?/python3[^/]*|_profiling_attach)/.+)"
)
HOMES = ("", "/home", "/Users")  # of users: what follows says who


def working_folder(facts: Iterable[Sequence[object]]) -> str:
    """The folder in which the traced program ran, of nsys's (name, value) rows on the capture; no
    text if that is not known."""
    found = (value for name, value in facts if str(name).endswith(":WORKING_DIR"))
    return str(next(found, ""))


def source_name(path: str, folder: str) -> str:
    """The path of a Python file within `folder`, in which the program ran, or within a library."""
    folder = folder.rstrip("/")
    if folder not in HOMES and path.startswith(f"{folder}/"):
        path = path.removeprefix(f"{folder}/")
    found = LIBRARY.fullmatch(path)
    return found[1] if found else path


def without_folders(text: str) -> str:
    """The text with each path cut to its last part; '' for a process's environment block."""
    if "\0" in text:  # NAME=value, separated by NULs
        return ""
    for folders in FOLDERS:
        text = folders.sub("", text)
    return text


def is_personal(text: str) -> bool:
    return ("/" in text or "\0" in text or "\\" in text) and without_folders(text) != text
