"""Names the modules of a memory snapshot, as far as its frames and the program's source tell."""

from collections.abc import Sequence
from pathlib import Path, PurePath

from profiling.analysis.memory.memory_records import ToldBy
from profiling.analysis.memory.stacks import INIT, Module
from profiling.analysis.source.own_code import Frame
from profiling.analysis.source.source_files import SourceFiles
from profiling.timeline import snapshot_pickle

OUTSIDE = "outside of modules"


def named_modules(modules: Sequence[Module], snapshot: Path) -> list[tuple[str, ToldBy]]:
    """(name, what told it) of each module.

    A frame has no name of a class. It is read from the source where that is at hand and has not
    changed since, else the line that called or made the module stands for it.
    """
    files = SourceFiles(snapshot)
    return [name_of(module, files) for module in modules]


def name_of(module: Module, files: SourceFiles) -> tuple[str, ToldBy]:
    inner = f"torch.nn {PurePath(slashed(module.inner)).stem}" if module.inner else ""
    if module.frame is None:
        where = f"at {place(module.caller)}" if module.caller else ""
        return f"{inner} {where}".strip(), "call"
    behind = f" > {inner}" if inner else ""
    file, line, function = module.frame
    if found := files.source_of(Frame(slashed(module.frame), line, function)):
        source, scope = found
        if name := source.class_of(scope):
            return f"{name} of {PurePath(slashed(module.frame)).name}{behind}", "source"
    if module.caller is None:
        return f"{function} of {PurePath(slashed(module.frame)).name}{behind}", "call"
    verb = "made" if function == INIT else "called"
    return f"{verb} at {place(module.caller)}{behind}", "call"


def place(frame: snapshot_pickle.Frame) -> str:
    return f"{PurePath(slashed(frame)).name}:{frame[1]}"


def slashed(frame: snapshot_pickle.Frame) -> str:
    return frame[0].replace("\\", "/")
