"""PyTorch's flight recorder under several ranks: on, and its dumps in OUT_DIR/profile.

It keeps the last collectives of each rank in memory. NCCL's watchdog writes NCCL's when one times
out, as those of the other ranks do then, and aborts the process a minute later. All else is here,
NCCL's and gloo's: a rank that an error ends writes its own before the process group goes, and asks
the others for theirs where the error came out of a collective, for torchrun is about to kill them;
`python -m profiling hang --now` asks them all.
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
from typing import Protocol, cast

import torch.distributed as dist

from cli.errors import one_line
from cli.files import write_text
from cli.interrupts import handle_signals
from profiling.flight_recorder import DUMP, EARLIER, LOOK_S, REQUEST, Note, place
from profiling.records import to_json
from training.distributed import Ranks
from training.next_commands import hang_command
from training.torchrun import launched

log = logging.getLogger(__name__)

# torch's variables, by their names in torch, the newest first; a new torch warns of the old name
ENTRIES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")  # and the rank's number
ON_TIMEOUT = ("TORCH_NCCL_DUMP_ON_TIMEOUT",)
MOST = "2000"  # entries: torch 2.13's own number; older versions record nothing by themselves
MOST_FRAMES = 12
# for the others to look, and to write what they have: the first stack that torch spells imports
# inductor, which takes seconds where the run does not compile
ANSWER_S = LOOK_S + 6


class Dump(Protocol):
    """torch's own, private as it is: tests run it."""

    def __call__(
        self, includeCollectives: bool, includeStackTraces: bool, onlyActive: bool
    ) -> bytes: ...


# NCCL has a recorder of its own; the one of the other backends came with torch 2.8
OF_NCCL, OF_OTHERS = "_dump_nccl_trace", "_dump_fr_trace"


@contextmanager
def switched_on(out_dir: str) -> Iterator[None]:
    """Around the process group: torch's variables, but for those that the user has set.

    A collective that failed, as where another rank is gone, ends this one with exit code 1 and a
    line: in the run the stack is in its dump, and before it all ranks are at the same place.
    """
    ours: dict[str, str] = {}
    if launched()[1] > 1:
        prefix = str(Path(out_dir).absolute() / "profile" / DUMP)
        for names, value in ((ENTRIES, MOST), (FILES, prefix), (ON_TIMEOUT, "1")):
            if not any(name in os.environ for name in names):
                ours[names[0] if hasattr(torch_c10d(), OF_OTHERS) else names[-1]] = value
    os.environ.update(ours)
    try:
        yield
    except ValueError:  # a mistake, which is told in one line
        raise
    except Exception as error:
        if sys.flags.dev_mode or not out_of_collective(error):
            raise
        where = getattr(error, "__notes__", ["what another rank printed last may say why"])
        line = "; ".join([f"rank {os.environ.get('RANK')}: {told(error)}", *where])
        raise SystemExit(f"train.py: {line}") from None
    finally:
        for name in ours:
            os.environ.pop(name, None)


def torch_c10d() -> object:
    import torch._C

    return getattr(torch._C, "_distributed_c10d", None)


@contextmanager
def watched(out_dir: Path, ranks: Ranks, resumed: bool) -> Iterator[None]:
    """Around what a rank does in its run: an error that ends it is dumped, and passes.

    Where a collective failed, as where another rank is gone, it notes where to look.
    """
    if ranks.world_size == 1:
        yield
        return
    if ranks.rank == 0:
        set_aside(out_dir, resumed)
    recorder = FlightRecorder(out_dir, ranks)
    with recorder.answering():
        try:
            yield
        except ValueError:  # a mistake, which is told in one line
            raise
        except Exception as error:
            if recorder.ended_by(error):
                error.add_note(f"what each rank did last: {hang_command(str(out_dir))}")
            raise


def set_aside(out_dir: Path, resumed: bool) -> None:
    """Dumps of the run that lies there would pass for this one's."""
    folder = out_dir / "profile"
    found = [path for path in folder.glob(f"{DUMP}*") if path.name[len(DUMP) :].isdecimal()]
    with suppress(OSError):
        for path in found:
            path.replace(path.with_name(path.name.replace(DUMP, EARLIER)))
        (folder / REQUEST).unlink(missing_ok=True)
    if found and resumed:
        log.info("what each rank of the run did last before: %s", hang_command(str(out_dir)))


def make_folder(out_dir: Path, ranks: Ranks) -> None:
    """torch makes none for its dumps. Behind the move of the run that lay there."""
    if ranks.world_size > 1:
        with suppress(OSError):
            (out_dir / "profile").mkdir(parents=True, exist_ok=True)


class FlightRecorder:
    """Of one rank of a run."""

    def __init__(self, out_dir: Path, ranks: Ranks) -> None:
        self.out_dir, self.rank, self.world_size = out_dir, ranks.rank, ranks.world_size
        self.on_cuda = ranks.device.type == "cuda"
        self.request = out_dir / "profile" / REQUEST
        mine = str(out_dir / "profile" / DUMP)  # where torch would write it, too
        self.path = Path(f"{next(filter(None, map(os.environ.get, FILES)), mine)}{ranks.rank}")
        self.known_ns = modified_ns(self.path)  # of what lies there: an older run's, or this one's
        self.last_word = False  # what is written by now is to stay
        self.ended = False  # by an error, which the last dump tells
        self.writing = threading.Lock()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Within it a thread looks for requests: the rank itself may be blocked in a collective."""
        done = threading.Event()
        seen = modified_ns(self.request)
        thread = threading.Thread(target=self.answer, args=(done, seen), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()

    def answer(self, done: threading.Event, seen: int | None) -> None:
        while not done.wait(LOOK_S):
            asked = modified_ns(self.request)
            if asked is not None and asked != seen and not self.ended:
                seen = asked
                self.write(last_word=self.request_is_of_a_rank())

    def request_is_of_a_rank(self) -> bool:
        try:
            return self.request.stat().st_size > 0
        except OSError:
            return False

    def ended_by(self, error: Exception) -> bool:
        """Writes what this rank did last, and has the others do so where a collective failed.

        Whether it is that, and written.

        torchrun may have sent a SIGTERM by now, which is not waited for: the end is near anyhow.
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
            if failed and written:  # torchrun ends the others as soon as this one has gone
                time.sleep(max(0.0, answered_s - time.monotonic()))
        return failed and written

    def write(
        self, error: Exception | None = None, failed: bool = False, *, last_word: bool = False
    ) -> bool:
        """Whether there is a dump. What a rank left when another one gave up stays: it may go on to
        the collective that it was missing from, and fail in it as well."""
        with self.writing:
            if self.last_word or (failed and self.written_by_nccl()):
                return True
            note = Note(
                self.rank,
                self.world_size,
                time.time_ns(),
                socket.gethostname(),
                os.getpid(),
                told(error) if error else None,
                failed,
                stack_of(error),
            )
            try:
                self.put(recorded(self.on_cuda) + to_json(note, indent=None).encode())
            except (OSError, RuntimeError) as problem:
                log.error("rank %d: no flight recorder dump: %s", self.rank, problem)
                return False
            self.last_word = last_word
            return True

    def written_by_nccl(self) -> bool:
        """Whether its watchdog has, of a collective that timed out here or on another rank."""
        return modified_ns(self.path) not in (None, self.known_ns)

    def put(self, content: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f"{self.path.name}.tmp")
        temporary.write_bytes(content)
        os.replace(temporary, self.path)
        self.known_ns = modified_ns(self.path)


def modified_ns(path: Path) -> int | None:
    """None: there is no such file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def recorded(on_cuda: bool) -> bytes:
    """As torch writes it to a file: of NCCL where the run has it, then of the hosts' gloo.

    Raises RuntimeError where this torch cannot tell.
    """
    names = [OF_NCCL, OF_OTHERS] if on_cuda else [OF_OTHERS]
    dumps = [cast("Dump | None", getattr(torch_c10d(), name, None)) for name in names]
    if dumps[0] is None:
        raise RuntimeError(f"this torch has no {names[0]}: 2.8 and newer record gloo, too")
    return b"".join(
        dump(includeCollectives=True, includeStackTraces=True, onlyActive=False)
        for dump in filter(None, dumps)
    )


def told(error: Exception) -> str:
    """In a line, without the place in torch's sources that gloo begins with."""
    words = re.sub(r"^\[\S+:\d+\] ", "", one_line(str(error)))
    return f"{type(error).__name__}: {words[:200]}"


def stack_of(error: Exception | None) -> list[str]:
    """Where the error was raised, else where the main thread is; the innermost first."""
    main = threading.main_thread().ident
    frame = None if main is None else sys._current_frames().get(main)
    frames = traceback.extract_tb(error.__traceback__) if error else traceback.extract_stack(frame)
    return [place(f.filename, f.lineno or 0, f.name) for f in reversed(frames)][:MOST_FRAMES]


def out_of_collective(error: Exception) -> bool:
    """Whether it was raised in torch.distributed, as a timeout and a lost peer are."""
    if isinstance(error, dist.DistError):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and os.path.join("torch", "distributed", "") in frames[-1].filename
