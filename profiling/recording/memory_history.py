"""profile=memory: the CUDA allocator's history, as the file that PyTorch writes.

profiling.timeline.memory_snapshot reads it.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import torch

from cli.files import replacement_for
from cli.program import as_called
from profiling.recording.recording import Recorder

log = logging.getLogger(__name__)

MAX_ENTRIES = 200_000  # the newest ones are kept; one is about a kilobyte with its stack


@dataclass
class MemoryRecorder(Recorder):
    """Records from the beginning of the run, so that running out of memory before the window leaves
    a snapshot too."""

    oom_path: Path
    closed: bool = False

    def __post_init__(self) -> None:
        torch.cuda.init()
        record_history()
        # called by the allocator before the exception frees what was allocated
        torch._C._cuda_attach_out_of_memory_observer(  # type: ignore[attr-defined]  # no stub
            self.out_of_memory
        )

    def start(self) -> None:
        torch.cuda.memory._record_memory_history(None)  # forgets the events so far
        record_history()

    def stop(self, stem: Path) -> list[Path]:
        """Write STEM.memory.pickle."""
        path = stem.with_name(stem.name + ".memory.pickle")
        dump(path)
        return [path]

    def close(self) -> None:
        torch.cuda.memory._record_memory_history(None)
        self.closed = True

    def out_of_memory(self, device: int, asked: int, total: int, free: int) -> None:
        """Write a snapshot to `oom_path`; called by the allocator when it runs out of memory.

        It never raises: the allocator's own error is the one to see.
        """
        try:
            dump(self.oom_path)
        except Exception as error:
            log.warning("out of memory, and no snapshot could be written: %s", error)
            return
        history = (
            (", without the history, because recording ended with the last window")
            if self.closed
            else ""
        )
        shown = as_called(f"python -m profiling report {self.oom_path} shows what lay there")
        log.warning("out of memory: %s%s", shown, history)


def record_history() -> None:
    torch.cuda.memory._record_memory_history(max_entries=MAX_ENTRIES, stacks="python")


def dump(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacement_for(path) as temporary:
        torch.cuda.memory._dump_snapshot(str(temporary))
