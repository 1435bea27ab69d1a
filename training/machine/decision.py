"""Decision about a key that can be `auto`. Made by training.machine.device and
training.machine.parallel."""

from typing import NamedTuple

AUTO = "auto"


class Decision(NamedTuple):
    """The value of a key, and the reason for it if the key was left at auto."""

    value: str
    reason: str = ""
