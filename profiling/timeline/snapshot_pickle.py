"""Reads the pickle of a memory snapshot, in which gigabytes of events are alike. Called by
memory_snapshot.

pickled_data reads what is rare. An event of the history is a dict of the same keys in the same
order, and its stack a list of references to frames that came before: once one was read, a pattern
of its bytes takes the next, and the bytes of a list of references are looked up as a whole. No
instruction begins another, so bytes that are equal mean the same.
"""

import re
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from mmap import mmap

from profiling.timeline.pickled_data import INSTRUCTIONS, Reader
from profiling.timeline.share_read import tell_share

Frame = tuple[str, int, str]  # file, line, function

NOTHING = -1  # in columns: the event has no such value
DICT, LIST, END, SETITEMS, SETITEM = b"}].us"
BEGIN, LAST = rb"\}\x94\(", b"eu"  # of an event, of its stack and itself
WANTED = ["action", "addr", "size", "time_us"]  # and the frames, in this order
REFERENCE = rb"h.|j.{4}"
LONG = b"|".join(rb"\x8a%s.{%d}" % (re.escape(bytes([n])), n) for n in range(1, 9))
NUMBER = rb"K.|M..|J.{4}|" + LONG
STRING = b"|".join(rb"\x8c%s.{%d}\x94" % (re.escape(bytes([n])), n) for n in range(64))
PAIR = rb"(?:%s)(?:%s)\x86\x94" % (NUMBER, NUMBER)
KEY = re.compile(REFERENCE, re.S)
VALUES = (NUMBER, REFERENCE, STRING, PAIR)  # the patterns of a value; the last two are memoized
TOKEN = re.compile(rb"(%s)(?:(%s)|(%s)|(%s)|(%s))" % (REFERENCE, *VALUES), re.S)
# of a stack: a reference to a list, a list of one, of none, and of many, whose end is looked up
STACK = rb"(%s|\]\x94(?:%s)a|\]\x94(?=u)|\]\x94\()" % (REFERENCE, REFERENCE)
REFERENCES = re.compile(rb"\]\x94(?:\((?:%s)+e|(?:%s)a)?" % (REFERENCE, REFERENCE), re.S)
EACH = re.compile(rb"h(.)|j(.{4})", re.S)
MOST_SHAPES = 16
MOST_STACK = 1 << 16  # bytes of a list of references; a longer one takes the long way
SHORT_STACK = 64  # frames; a longer list is looked at once, however often it is referred to
LONG1 = b"\x8a"
TELL_BYTES = 16 << 20  # read until the share is told and the pages are given back
MOST_OPEN = 1 << 20  # values that a pickle of data leaves open at once
Readable = bytes | mmap


@dataclass(frozen=True)
class Rows:
    """Events that stand in one list: rows of the columns."""

    first: int
    count: int


@dataclass(frozen=True)
class Stack:
    """A list of frames: its number among the stacks."""

    number: int


@dataclass(frozen=True)
class Shape:
    """The way in which events are written: their keys, and what kind of value each has."""

    pattern: re.Pattern[bytes]
    memoized: int  # values besides a list of frames


@dataclass
class Columns:
    """The events, a value for each; `stack` and `action` are numbers in the lists below."""

    action: "array[int]" = field(default_factory=lambda: array("b"))
    address: "array[int]" = field(default_factory=lambda: array("q"))
    size: "array[int]" = field(default_factory=lambda: array("q"))
    time_us: "array[int]" = field(default_factory=lambda: array("q"))
    stack: "array[int]" = field(default_factory=lambda: array("i"))
    actions: dict[str, int] = field(default_factory=dict)
    frames: dict[Frame, int] = field(default_factory=dict)
    stacks: dict[tuple[int, ...], int] = field(default_factory=dict)
    free_bytes: dict[int, int] = field(default_factory=dict)  # by row, of events that ran out
    # long lists whose number is known, by their id, which is theirs as long as they are kept here
    known: dict[int, tuple[list[object], int]] = field(default_factory=dict)

    def frame(self, value: object) -> int:
        """The number of a frame. Raises ValueError for another value."""
        if not isinstance(value, dict):
            raise ValueError
        file, line, name = value.get("filename"), value.get("line"), value.get("name")
        if not (isinstance(file, str) and isinstance(line, int) and isinstance(name, str)):
            raise ValueError
        return self.frames.setdefault((file, line, name), len(self.frames))

    def stack_of(self, frames: object) -> int:
        """The number of a stack, which is a list of frames or was looked up. NOTHING without."""
        if isinstance(frames, Stack):
            return frames.number
        if frames is None:
            return NOTHING
        if not isinstance(frames, list):
            raise ValueError
        if len(frames) <= SHORT_STACK:
            return self.new_stack(frames)
        if id(frames) not in self.known:
            self.known[id(frames)] = frames, self.new_stack(frames)
        return self.known[id(frames)][1]

    def new_stack(self, frames: Sequence[object]) -> int:
        return self.stacks.setdefault(tuple(map(self.frame, frames)), len(self.stacks))

    def add(self, event: dict[object, object]) -> None:
        """Append an event. Raises ValueError for a value of another type."""
        action = event["action"]
        numbers = [event.get(key, NOTHING) for key in ("addr", "size", "time_us")]
        if not isinstance(action, str):
            raise ValueError
        address, size, time_us = (int64_of(number) for number in numbers)
        if "device_free" in event:
            self.free_bytes[len(self.action)] = int64_of(event["device_free"])
        stack = self.stack_of(event.get("frames"))
        self.action.append(self.actions.setdefault(action, len(self.actions)))
        self.address.append(address)
        self.size.append(size)
        self.time_us.append(time_us)
        self.stack.append(stack)


def int64_of(value: object) -> int:
    """The value, if it is a whole number of 64 bits. Raises ValueError for another."""
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        raise ValueError
    return value


class Memo(dict[int, object]):
    """The values that a pickle may refer to. Lists of frames that were looked up are only numbers
    here."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = array("i")  # number of the stack, by the number of the value

    def __missing__(self, number: int) -> object:
        if number < len(self.lists) and self.lists[number] != NOTHING:
            return Stack(self.lists[number])
        raise KeyError(number)

    def put_list(self, number: int, stack: int) -> None:
        lacking = number - len(self.lists)
        if lacking == 1:  # the event itself, in most cases
            self.lists.append(NOTHING)
        elif lacking:
            self.lists.frombytes(b"\xff" * (self.lists.itemsize * lacking))
        self.lists.append(stack)


class Numbers(dict[bytes, int]):
    """The numbers that were met, by how they are written: sizes and addresses return."""

    def __missing__(self, written: bytes) -> int:
        number = number_of(written)
        if len(self) < MOST_OPEN:
            self[written] = number
        return number


def number_of(written: bytes) -> int:
    """The number that an instruction pushes, or to which it refers."""
    skipped = 2 if written[0] == 0x8A else 1
    signed = written[0] in b"J\x8a"
    return int.from_bytes(written[skipped:], "little", signed=signed)


class SnapshotReader(Reader):
    """Reader that puts events into columns as soon as they end."""

    def __init__(self, data: Readable) -> None:
        super().__init__(data)
        self.memo: Memo = Memo()
        self.columns = Columns()
        self.shapes: list[Shape] = []
        self.stack_numbers: dict[bytes, int] = {}  # by how the list is written
        self.codes: dict[bytes, int] = {}  # of actions, by how their name is written
        self.event_end = -1  # where the last event ended

    def read(self) -> object:
        """The value, with Rows in the place of events. Raises ValueError as pickled_data does."""
        data, told = self.data, TELL_BYTES
        code = 0
        try:
            while (code := data[self.at]) != END:
                if code == DICT and self.shapes and self.take_events():
                    continue
                if self.at > told:
                    told = self.at + TELL_BYTES
                    self.tell()
                self.at += 1
                INSTRUCTIONS[code](self)
                if code in (SETITEMS, SETITEM):
                    self.take_event()
                elif len(self.stack) > MOST_OPEN or len(self.marks) > MOST_OPEN:
                    raise ValueError
            (value,) = self.stack
        except KeyError:
            if code not in INSTRUCTIONS:
                raise ValueError(
                    f"byte {self.at - 1}: instruction {code:#04x} is not data"
                ) from None
            raise ValueError(f"is damaged at byte {self.at}") from None
        except (IndexError, TypeError, ValueError, AttributeError, MemoryError, struct.error):
            raise ValueError(f"is damaged at byte {self.at}") from None
        return value

    def tell(self) -> None:
        """Tell the share that is read, and give the pages back that are read."""
        tell_share(self.at / len(self.data))
        if isinstance(self.data, mmap) and hasattr(self.data, "madvise"):
            self.data.madvise(4)  # MADV_DONTNEED; the file is still there

    def take_event(self) -> None:
        """Put the dict on the stack into the columns, if it is an event that has ended."""
        event = self.stack[-1]
        if not isinstance(event, dict) or "action" not in event:
            return
        self.columns.add(event)
        self.stack[-1] = Rows(len(self.columns.action) - 1, 1)
        if len(self.shapes) < MOST_SHAPES and self.event_end >= 0:
            self.learn(self.data[self.event_end : self.at])
        self.event_end = self.at

    def learn(self, event: bytes) -> None:
        """Add the shape of an event, if it is one of those that come again and again."""
        at, pairs = len(b"}\x94("), []
        while found := TOKEN.match(event, at):
            pairs.append((found[1], VALUES[(found.lastindex or 2) - 2]))
            at = found.end()
        last = KEY.match(event, at)
        names = [self.memo.get(number_of(key)) for key, _ in pairs]
        if names and names[-1] == "frames":  # a reference to a list
            stack_key = pairs.pop()[0]
        elif last and self.memo.get(number_of(last[0])) == "frames":
            stack_key = last[0]
        else:
            return
        wanted = [name for name in names if name in WANTED]
        if wanted not in (WANTED, WANTED[:-1]):  # PyTorch 2.1 has no time
            return
        written = [
            re.escape(key) + (b"(%s)" if name in WANTED else b"(?:%s)") % value
            for (key, value), name in zip(pairs, names, strict=False)
        ]
        written += [b"()"] * (wanted != WANTED) + [re.escape(stack_key), STACK]
        pattern = BEGIN + b"".join(written)
        if all(pattern != shape.pattern.pattern for shape in self.shapes):
            memoized = 1 + sum(value in (STRING, PAIR) for _, value in pairs)
            self.shapes.append(Shape(re.compile(pattern, re.S), memoized))

    def take_events(self) -> bool:
        """Read the events from here on that have a known shape; return whether there was one."""
        first = len(self.columns.action)
        for shape in self.shapes:
            self.take_shape(shape)
        count = len(self.columns.action) - first
        if count:
            self.stack.append(Rows(first, count))
            self.event_end = self.at
        return count > 0

    def take_shape(self, shape: Shape) -> None:
        """Append the events from here on that have this shape to the columns.

        The loop is long because each call in it would cost a tenth of the time of a large file.
        """
        data, at, match, memo = self.data, self.at, shape.pattern.match, self.memo
        columns, stacks, lists, codes = self.columns, self.stack_numbers, memo.lists, self.codes
        add_action, add_address = columns.action.append, columns.address.append
        add_size, add_time = columns.size.append, columns.time_us.append
        add_stack, integer = columns.stack.append, int.from_bytes
        end_at = min(at + TELL_BYTES, len(data))
        while at < end_at and (found := match(data, at)):
            action, address, size, time_us, written = found.groups()
            end = found.end()
            if written == b"]\x94(":
                last = data.find(LAST, end, end + MOST_STACK)
                written = data[end - 3 : last + 1]
                end = last + 1
            code = codes[action] if action in codes else self.action_code(action)
            if code < 0 or not written or data[end] != SETITEMS:
                break
            if written[0] == LIST:
                number = stacks.get(written, NOTHING)
                if number < 0 and (number := self.new_stack(written)) < 0:
                    break
                memo.put_list(self.memoized + shape.memoized, number)
                self.memoized += 1
            else:
                referred = number_of(written)
                if referred >= len(lists) or (number := lists[referred]) < 0:
                    if not isinstance(memo.get(referred), list):
                        break
                    number = columns.stack_of(memo[referred])
            self.memoized += shape.memoized
            at = end + 1
            add_action(code)
            add_address(NUMBERS[address])
            add_size(NUMBERS[size])
            if time_us[:1] == LONG1:
                add_time(integer(time_us[2:], "little"))
            else:
                add_time(number_of(time_us) if time_us else NOTHING)
            add_stack(number)
        self.at = at

    def action_code(self, written: bytes) -> int:
        """The number of an action that is written as a reference to its name; else NOTHING."""
        name = self.memo.get(number_of(written))
        if not isinstance(name, str):
            return NOTHING
        code = self.columns.actions.setdefault(name, len(self.columns.actions))
        self.codes[written] = code
        return code

    def new_stack(self, written: bytes) -> int:
        """The number of a stack that is a list of references; NOTHING if it is anything else."""
        if not REFERENCES.fullmatch(written):
            return NOTHING
        numbers = [int.from_bytes(a or b, "little") for a, b in EACH.findall(written)]
        frames = [self.memo.get(number) for number in numbers]
        if not all(isinstance(frame, dict) for frame in frames):
            return NOTHING
        self.stack_numbers[written] = number = self.columns.new_stack(frames)
        return number


NUMBERS = Numbers()
