"""Marks of a program's own steps and phases, for loops that `profiling run -- COMMAND` cannot read.

    from profiling import attach

    for batch in batches:
        with attach.step():
            with attach.phase("data"):
                batch = prepare(batch)
            train(batch)

A program that was not started by `profiling run` may keep them: they do nothing then, in a fraction
of a microsecond. The folder hook/ is no package: it runs inside programs of others, see its
sitecustomize.py.
"""

import sys
from contextlib import AbstractContextManager, nullcontext

HOOK = "_profiling_attach.own_marks"  # in sys.modules where `profiling run` started the program
NOTHING = nullcontext()


def step() -> AbstractContextManager[object]:
    """A step ends with the block. These steps take the place of those that the hook recognises."""
    hook = sys.modules.get(HOOK)
    return hook.Step() if hook else NOTHING


def phase(name: str) -> AbstractContextManager[object]:
    """A range of this name around the block: a phase of the step, or a part of one."""
    hook = sys.modules.get(HOOK)
    return hook.Phase(name) if hook else NOTHING
