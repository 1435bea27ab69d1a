"""What a key that knows `auto` comes to. Made by training.device and training.parallel."""

from typing import NamedTuple

AUTO = "auto"


class Decision(NamedTuple):
    """What a key comes to, and why it does where it was left at auto."""

    value: str
    reason: str = ""
