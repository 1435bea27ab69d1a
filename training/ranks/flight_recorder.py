"""Switches on PyTorch's flight recorder for several ranks, and writes its dumps to OUT_DIR/profile.

The recorder keeps the last collectives of each rank in memory. There are three ways to a dump:

    timeout   NCCL's watchdog writes NCCL's collectives when one of them times out, on each rank,
              and aborts the process a minute later; this is torch's own doing
    error     a rank that an error ends writes NCCL's and gloo's before the process group goes. If
              the error came out of a collective, it asks the other ranks for theirs as well, since
              torchrun is about to kill them
    request   `python -m profiling hang --now` asks all ranks
"""

import logging
import os
import re
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import torch.distributed as dist

from cli.errors import one_line
from cli.files import write_text
from cli.interrupts import handle_signals
from profiling.shared.json_records import to_json
from profiling.shared.run_files import DUMP, EARLIER, LOOK_S, REQUEST, Note, place
from training.machine.torchrun import local_rank_and_world_size
from training.ranks.distributed import Ranks
from training.ranks.next_commands import hang_command

log = logging.getLogger(__name__)

# environment variables of torch, the newest name first; a new torch warns of the old name
ENTRIES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
# torch adds the rank's number to this path
FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
ON_TIMEOUT = ("TORCH_NCCL_DUMP_ON_TIMEOUT",)
# entries that are kept: torch 2.13's default; older versions record nothing by default
MOST = "2000"
MOST_FRAMES = 12
# time for the other ranks to see a request and to write their dumps. It is seconds, because the
# first stack that torch formats imports inductor, if the run does not compile
ANSWER_S = LOOK_S + 6


class Dump(Protocol):
    """torch's function that returns a dump. It is private; tests notice if it changes."""

    def __call__(
        self, includeCollectives: bool, includeStackTraces: bool, onlyActive: bool
    ) -> bytes: ...


# names of such functions: NCCL has its own recorder, the other backends have one since torch 2.8
OF_NCCL, OF_OTHERS = "_dump_nccl_trace", "_dump_fr_trace"


@contextmanager
def enable_recording(out_dir: str) -> Iterator[None]:
    """Sets torch's variables within the block, except those that the user has set.

    The block has to contain the process group, for which they are. An error in a collective, as
    after another rank's end, ends this rank with exit code 1 and one line instead of a traceback
    (but for python -X dev). The traceback would say nothing new: during the run its stack is in the
    dump, and before the run all ranks are at the same place.
    """
    ours: dict[str, str] = {}
    if local_rank_and_world_size()[1] > 1:
        prefix = str(Path(out_dir).absolute() / "profile" / DUMP)
        for names, value in ((ENTRIES, MOST), (FILES, prefix), (ON_TIMEOUT, "1")):
            if not any(name in os.environ for name in names):
                ours[names[0] if hasattr(torch_c10d(), OF_OTHERS) else names[-1]] = value
    os.environ.update(ours)
    try:
        yield
    except ValueError:  # a user's mistake, which is reported in one line
        raise
    except Exception as error:
        if sys.flags.dev_mode or not out_of_collective(error):
            raise
        where = getattr(error, "__notes__", ["the last lines of another rank may say why"])
        line = "; ".join([f"rank {os.environ.get('RANK')}: {error_line(error)}", *where])
        raise SystemExit(f"train.py: {line}") from None
    finally:
        for name in ours:
            os.environ.pop(name, None)


def torch_c10d() -> object:
    import torch._C

    return getattr(torch._C, "_distributed_c10d", None)


@contextmanager
def dump_on_error(out_dir: Path, ranks: Ranks, resumed: bool) -> Iterator[None]:
    """Writes a dump if an error ends the block, the training of this rank, and raises it again.

    If a collective failed, as after another rank's end, the error gets a note with the command that
    shows what each rank did last. A ValueError is a user's mistake and needs no dump. Within the
    block the rank also answers requests for dumps. Does nothing for one rank.
    """
    if ranks.world_size == 1:
        yield
        return
    if ranks.rank == 0:
        move_earlier_dumps(out_dir, resumed)
    recorder = FlightRecorder(out_dir, ranks)
    with recorder.answer_requests():
        try:
            yield
        except ValueError:
            raise
        except Exception as error:
            if recorder.record_end(error):
                error.add_note(f"what each rank did last: {hang_command(str(out_dir))}")
            raise


def move_earlier_dumps(out_dir: Path, resumed: bool) -> None:
    """Renames the dumps of an earlier run in `out_dir`, which would pass for this run's.

    Removes its request for dumps, too. If the run is `resumed`, logs how to read the dumps.
    """
    folder = out_dir / "profile"
    dumps = [path for path in folder.glob(f"{DUMP}*") if path.name[len(DUMP) :].isdecimal()]
    with suppress(OSError):
        for path in dumps:
            path.replace(path.with_name(path.name.replace(DUMP, EARLIER)))
        (folder / REQUEST).unlink(missing_ok=True)
    if dumps and resumed:
        log.info("what each rank of the previous run did last: %s", hang_command(str(out_dir)))


def make_folder(out_dir: Path, ranks: Ranks) -> None:
    """Makes the folder for dumps, which torch does not make itself.

    Call it after an earlier run has been moved out of `out_dir`.
    """
    if ranks.world_size > 1:
        with suppress(OSError):
            (out_dir / "profile").mkdir(parents=True, exist_ok=True)


class FlightRecorder:
    """Writes the dumps of one rank of a run."""

    def __init__(self, out_dir: Path, ranks: Ranks) -> None:
        self.out_dir, self.rank, self.world_size = out_dir, ranks.rank, ranks.world_size
        self.on_cuda = ranks.device.type == "cuda"
        self.request = out_dir / "profile" / REQUEST
        mine = str(out_dir / "profile" / DUMP)  # torch writes its dump there, too
        self.path = Path(f"{next(filter(None, map(os.environ.get, FILES)), mine)}{ranks.rank}")
        # A dump with another time than this one is by NCCL's watchdog: here it is the time of what
        # an earlier run has left, and later that of the last dump that this recorder wrote.
        self.known_ns = modified_ns(self.path)
        self.last_word = False  # set when the dump there must not be replaced any more
        self.ended = False  # by an error, whose dump a request must not replace
        self.writing = threading.Lock()  # the main thread and the answering one both write

    @contextmanager
    def answer_requests(self) -> Iterator[None]:
        """Answers requests for dumps within the block.

        A thread looks for them, because the rank itself may be blocked in a collective.
        """
        done = threading.Event()
        seen = modified_ns(self.request)
        thread = threading.Thread(target=self.watch_requests, args=(done, seen), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()

    def watch_requests(self, done: threading.Event, seen: int | None) -> None:
        """Writes a dump for each request newer than `seen` (ns), until `done` is set."""
        while not done.wait(LOOK_S):
            requested_ns = modified_ns(self.request)
            if requested_ns is not None and requested_ns != seen and not self.ended:
                seen = requested_ns
                self.write(last_word=self.request_is_of_a_rank())

    def request_is_of_a_rank(self) -> bool:
        """Whether a failed rank made the request: it writes its number, the user's is empty."""
        try:
            return self.request.stat().st_size > 0
        except OSError:
            return False

    def record_end(self, error: Exception) -> bool:
        """Writes a dump; if a collective failed, asks the other ranks for theirs and waits.

        Returns whether a collective failed and the dump is written. Signals are ignored meanwhile:
        torchrun may send a SIGTERM, but this rank is ending anyhow and its dump should be whole.
        """
        failed = out_of_collective(error)
        with handle_signals(lambda number, frame: None):
            self.ended = True
            answered_s = time.monotonic() + ANSWER_S
            if failed:
                with suppress(OSError, ValueError):
                    self.request.parent.mkdir(parents=True, exist_ok=True)
                    write_text(self.request, f"rank {self.rank}\n")
            written = self.write(error, failed)
            if failed and written:  # torchrun kills the others as soon as this rank has gone
                time.sleep(max(0.0, answered_s - time.monotonic()))
        return failed and written

    def write(
        self, error: Exception | None = None, failed: bool = False, *, last_word: bool = False
    ) -> bool:
        """Writes a dump. Returns whether there is one.

        `last_word` makes it final: later calls leave it. That is for the dump that a failed rank
        asked for. This rank may go on to the collective that it was missing from, and fail in it as
        well; the dump of that failure would hide where this rank was when the other one gave up.
        """
        with self.writing:
            if self.last_word or (failed and self.written_by_nccl()):
                return True
            note = Note(
                self.rank,
                self.world_size,
                time.time_ns(),
                socket.gethostname(),
                os.getpid(),
                error_line(error) if error else None,
                failed,
                stack_of(error),
            )
            try:
                self.replace_dump(dump_bytes(self.on_cuda) + to_json(note, indent=None).encode())
            except (OSError, RuntimeError) as problem:
                log.error("rank %d: no flight recorder dump: %s", self.rank, problem)
                return False
            self.last_word = last_word
            return True

    def written_by_nccl(self) -> bool:
        """Whether NCCL's watchdog has written a dump of a collective that timed out on any rank."""
        return modified_ns(self.path) not in (None, self.known_ns)

    def replace_dump(self, content: bytes) -> None:
        """Writes the dump, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f"{self.path.name}.tmp")
        temporary.write_bytes(content)
        os.replace(temporary, self.path)
        self.known_ns = modified_ns(self.path)


def modified_ns(path: Path) -> int | None:
    """Time at which a file was last modified, in ns, or None if there is no such file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def dump_bytes(on_cuda: bool) -> bytes:
    """Recorded collectives, in torch's format for files: NCCL's if on CUDA, followed by gloo's.

    Raises RuntimeError if this torch has no recorder for the run's backend.
    """
    names = [OF_NCCL, OF_OTHERS] if on_cuda else [OF_OTHERS]
    dumps: list[Dump | None] = [getattr(torch_c10d(), name, None) for name in names]
    if dumps[0] is None:
        raise RuntimeError(f"this torch has no {names[0]}; version 2.8 and newer also record gloo")
    return b"".join(
        dump(includeCollectives=True, includeStackTraces=True, onlyActive=False)
        for dump in filter(None, dumps)
    )


def error_line(error: Exception) -> str:
    """An error's type, and at most 200 characters of its message, in one line.

    gloo begins its messages with a place in torch's sources, which is left out.
    """
    words = re.sub(r"^\[\S+:\d+\] ", "", one_line(str(error)))
    return f"{type(error).__name__}: {words[:200]}"


def stack_of(error: Exception | None) -> list[str]:
    """Stack where the error was raised, else the main thread's; the innermost frame first."""
    main = threading.main_thread().ident
    frame = None if main is None else sys._current_frames().get(main)
    frames = traceback.extract_tb(error.__traceback__) if error else traceback.extract_stack(frame)
    return [place(f.filename, f.lineno or 0, f.name) for f in reversed(frames)][:MOST_FRAMES]


def out_of_collective(error: Exception) -> bool:
    """Whether the error was raised in torch.distributed, as a timeout or a lost peer is."""
    if isinstance(error, dist.DistError):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and os.path.join("torch", "distributed", "") in frames[-1].filename
