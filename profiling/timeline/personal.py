"""What is personal in a capture: who ran it and where, not what it measured.

One definition for those who warn (profiling.timeline.nsys_facts, chrome_json) and for the one who
removes (profiling.timeline.scrub).
"""

import re

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
    # of C:\a\b\name, the backslashes perhaps doubled, C:name
    re.compile(r"\\(?<=(?<!\w)[A-Za-z]:\\)\\*(?:[\w .+@-]+\\+)+(?=[\w.+@-])"),
)
# names in (name, value) tables and of JSON members that tell who and where
NAMES = re.compile(r"ENVIRONMENT|Environment|HOST|Hostname|USER|WORKING_DIR|DISPLAY_NAME|Uuid")


def without_folders(text: str) -> str:
    """The text with the last part of each path alone; nothing of a process's environment block."""
    if "\0" in text:  # NAME=value, separated by NULs
        return ""
    for folders in FOLDERS:
        text = folders.sub("", text)
    return text


def is_personal(text: str) -> bool:
    return ("/" in text or "\0" in text or "\\" in text) and without_folders(text) != text
