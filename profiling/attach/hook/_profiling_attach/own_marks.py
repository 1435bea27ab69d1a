"""Marks that a program sets itself, for `from profiling import attach`.

That module looks for this one in sys.modules, so it needs no import of the hook. `recorder` is None
until torch is there.
"""

recorder = None


class Step:
    """A context manager: a step ends where its block does, but not by an error."""

    def __enter__(self):
        return None

    def __exit__(self, kind, value, traceback):
        if kind is None and recorder is not None:
            recorder.mark("own")


class Phase:
    """A context manager: a range of this name in the capture, and its time on the host."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        if recorder is not None:
            recorder.enter(self.name)

    def __exit__(self, kind, value, traceback):
        if recorder is not None:
            recorder.leave(self.name)
