"""Events of a Chrome trace, a megabyte at a time. Called by chrome_json and chrome_jax.

A trace of half a gigabyte would take several as Python objects, so the array of events is cut
between two events and each piece is decoded by itself. A cut may fall into a string or an inner
list; then the piece is no valid JSON, and the next place is tried.
"""

import math
import mmap
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from profiling.shared.python_samples import PythonSamples
from profiling.timeline.made_results import result_words
from profiling.timeline.share_read import tell_share

THREAD_BITS = 32  # width of a thread's number, below that of its process
PIECE_BYTES = 1 << 20  # least of a piece; a processor's cache still holds its objects
REACH_BYTES = 4 << 20  # how far behind that the place to cut may lie
HEAD_BYTES = 64 << 20  # beginning of the file in which the events have to start
TRIES = 50  # places to cut that are tried
EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
BARE_LIST = re.compile(rb"\s*\[")  # the array of events alone
BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")


class Args(msgspec.Struct, gc=False):
    """The args of an event that are used.

    They are of any type, as the same name means different things in different events.
    """

    correlation: object = None
    device: object = None
    in_device: object = msgspec.field(default=None, name="inDevice")  # of a copy between GPUs
    stream: object = None
    bytes: object = None
    direction: object = None  # of an MTIA copy
    size: object = None  # bytes of an MTIA copy
    grid: object = None
    block: object = None
    registers: object = msgspec.field(default=None, name="registers per thread")
    shared_bytes: object = msgspec.field(default=None, name="shared memory")
    name: object = None  # of a process or thread
    kernel_file: object = None  # Triton's
    # of an operator, by which autograd's backward names its forward
    autograd: object = msgspec.field(default=None, name="Sequence number")
    forward_thread: object = msgspec.field(default=None, name="Fwd thread id")
    stack: object = msgspec.field(default=None, name="Call stack")
    allocated: object = msgspec.field(default=None, name="Bytes")
    device_type: object = msgspec.field(default=None, name="Device Type")
    device_id: object = msgspec.field(default=None, name="Device Id")
    # the host's record of a collective
    collective: object = msgspec.field(default=None, name="Collective name")
    sent: object = msgspec.field(default=None, name="In msg nelems")
    received: object = msgspec.field(default=None, name="Out msg nelems")
    dtype: object = None
    group: object = msgspec.field(default=None, name="Process Group Name")
    group_ranks: object = msgspec.field(default=None, name="Process Group Ranks")
    sequence: object = msgspec.field(default=None, name="Seq")
    # of JAX's events, all of them texts
    correlation_id: object = None
    kernel_details: object = None
    memcpy_details: object = None
    memset_details: object = msgspec.field(default=None, name="Memset_details")
    hlo_op: object = None
    step_num: object = None
    # of an operator, with record_shapes=True; kept undecoded, since most are repetitions
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input type")
    values: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Concrete Inputs")


class Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: object = -1
    tid: object = -1
    ts: float = math.nan  # microseconds
    dur: float = 0.0
    args: Args | None = None


class Properties(msgspec.Struct):
    """One entry of deviceProperties: a GPU."""

    id: int
    name: str = "unknown GPU"
    numSms: int | None = None
    totalGlobalMem: int | None = None
    computeMajor: object = None
    computeMinor: object = None


class Distributed(msgspec.Struct):
    """The rank that wrote the trace, and the number of ranks."""

    rank: object = None
    world_size: object = None


class Top(msgspec.Struct):
    """The top level of a trace: its events and the members around them."""

    deviceProperties: list[Properties] | None = None
    schemaVersion: int | float | str | None = None
    traceName: str = ""
    distributedInfo: Distributed | None = None
    record_shapes: object = None
    with_stack: object = None
    baseTimeNanoseconds: object = 0  # what the events' times count from
    python_samples: PythonSamples | None = None
    traceEvents: list[Event] = []


EVENTS_DECODER = msgspec.json.Decoder(list[Event])
TOP_DECODER = msgspec.json.Decoder(Top)


def pieces(path: Path) -> Iterator[Top]:
    """Yield the trace in parts, each with some events.

    The first and the last also have the members that surround the events. Raises ValueError with
    one line if the file is no such trace.
    """
    with open(path, "rb") as file:
        if not path.stat().st_size:
            raise ValueError(f"{path}: is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            begin, bare = begin_of_events(text, path)
            try:
                if not bare:
                    yield TOP_DECODER.decode(text[:begin] + b"]}")
                yield from middle(text, begin, b"}" if bare else b"")
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                reason = " ".join(str(error).split())
                raise ValueError(
                    f"{path}: is cut off, damaged or not a trace of torch.profiler ({reason}); "
                    "copy or capture it again"
                ) from error


def begin_of_events(text: mmap.mmap, path: Path) -> tuple[int, bool]:
    """(offset of the first event, whether the JSON is the list of events alone).

    Raises ValueError, which names `path`, for JSON that is no trace.
    """
    bare = BARE_LIST.match(text)
    if begin := bare or EVENTS.search(text, 0, HEAD_BYTES):
        return begin.end(), bare is not None
    other = (
        'is JSON, but not a trace of events (it has no "traceEvents"); give a trace of '
        "torch.profiler or JAX, or an nsys export"
    )
    raise ValueError(f"{path}: {result_words(text[:HEAD_BYTES]) or other}")


def middle(text: mmap.mmap, start: int, close: bytes) -> Iterator[Top]:
    """Yield the events from offset `start` on; the last piece also has the members behind them.

    `close` is what the text from the array's end on lacks to be the end of an object.
    """
    while len(text) - start > PIECE_BYTES and (piece := next_piece(text, start)):
        events, start = piece
        tell_share(start / len(text))
        yield Top(traceEvents=events)
    yield TOP_DECODER.decode(b'{"traceEvents":[' + text[start:] + close)


def next_piece(text: mmap.mmap, start: int) -> tuple[list[Event], int] | None:
    """(the events of the piece at `start`, the offset of the next piece).

    None where there is no place to cut; then the rest has to be decoded at once.
    """
    cut = start + PIECE_BYTES
    for _ in range(TRIES):
        place = BETWEEN.search(text, cut, min(cut + REACH_BYTES, len(text)))
        if place is None:
            return None
        with suppress(msgspec.DecodeError):
            return EVENTS_DECODER.decode(b"[%b]" % text[start : place.start() + 1]), place.end()
        cut = place.end()
    return None
