"""Reads data from a pickle: dict, list, tuple, str, int, float, bool, None. Called by flight_dump
and by snapshot_pickle.

A pickle is a program, and Python's reader calls whatever it names. This one knows only the
instructions that c10d's Pickler and Python's protocols 2 to 5 write for data. None of them names or
calls anything, and no number in a file makes this reader reserve memory.
"""

import struct
from collections.abc import Callable
from mmap import mmap

INT, SHORT, DOUBLE = struct.Struct("<i"), struct.Struct("<H"), struct.Struct(">d")
LENGTH = struct.Struct("<I")
Instruction = Callable[["Reader"], None]


class Reader:
    """State of one pass over `data`; at the end `stack` holds the value alone."""

    def __init__(self, data: bytes | mmap) -> None:
        self.data, self.at = data, 0
        self.stack: list[object] = []
        self.marks: list[list[object]] = []  # the stacks below each MARK
        self.memo: dict[int, object] = {}
        self.memoized = 0  # values that MEMOIZE, which names no number, has remembered

    def bytes(self, count: int) -> bytes:
        taken = self.data[self.at : self.at + count]
        if len(taken) < count:
            raise IndexError
        self.at += count
        return taken

    def number(self, kind: struct.Struct) -> int:
        (value,) = kind.unpack(self.bytes(kind.size))
        return int(value)

    def pop_to_mark(self) -> list[object]:
        """Pop the values above the last MARK, and the mark with them."""
        above, self.stack = self.stack, self.marks.pop()
        return above


def read(data: bytes) -> tuple[object, int]:
    """The first value in `data`, and the offset at which it ends.

    A container that the pickle refers to twice is one object here, too. Raises ValueError, whose
    message lacks the file's name.
    """
    reader = Reader(data)
    stop = ord(".")
    try:
        while (code := data[reader.at]) != stop:
            reader.at += 1
            INSTRUCTIONS[code](reader)
        (value,) = reader.stack
    except KeyError:
        if code not in INSTRUCTIONS:
            raise ValueError(f"byte {reader.at - 1}: instruction {code:#04x} is not data") from None
        raise ValueError(f"is damaged at byte {reader.at}") from None
    except (IndexError, TypeError, ValueError, AttributeError, MemoryError):
        raise ValueError(f"is damaged at byte {reader.at}") from None
    return value, reader.at + 1


def mark(reader: Reader) -> None:
    reader.marks.append(reader.stack)
    reader.stack = []


def protocol(reader: Reader) -> None:
    if reader.bytes(1) not in (b"\x02", b"\x03", b"\x04", b"\x05"):
        raise ValueError


def frame(reader: Reader) -> None:
    """Skip the length of a frame, which only says how much to read at once."""
    reader.bytes(8)


def text(reader: Reader) -> None:
    reader.stack.append(reader.bytes(reader.number(LENGTH)).decode())


def short_text(reader: Reader) -> None:
    reader.stack.append(reader.bytes(reader.bytes(1)[0]).decode())


def long(reader: Reader) -> None:
    count = reader.bytes(1)[0]
    reader.stack.append(int.from_bytes(reader.bytes(count), "little", signed=True))


def double(reader: Reader) -> None:
    reader.stack.extend(DOUBLE.unpack(reader.bytes(8)))


def extend(reader: Reader) -> None:
    values = reader.pop_to_mark()
    target = reader.stack[-1]
    if not isinstance(target, list):
        raise TypeError
    target.extend(values)


def update(reader: Reader) -> None:
    values = reader.pop_to_mark()
    put(reader, values)


def put(reader: Reader, values: list[object]) -> None:
    target = reader.stack[-1]
    if not isinstance(target, dict):
        raise TypeError
    target.update(zip(values[::2], values[1::2], strict=True))


def append(reader: Reader) -> None:
    value = reader.stack.pop()
    target = reader.stack[-1]
    if not isinstance(target, list):
        raise TypeError
    target.append(value)


def set_item(reader: Reader) -> None:
    value, key = reader.stack.pop(), reader.stack.pop()
    put(reader, [key, value])


def short_tuple(count: int) -> Instruction:
    """The instruction that makes a tuple of the last `count` values."""

    def make(reader: Reader) -> None:
        if len(reader.stack) < count:
            raise IndexError
        values = tuple(reader.stack[-count:])
        reader.stack[-count:] = [values]

    return make


def tuple_to_mark(reader: Reader) -> None:
    values = reader.pop_to_mark()
    reader.stack.append(tuple(values))


def constant(make: Callable[[], object]) -> Instruction:
    return lambda reader: reader.stack.append(make())


def number(kind: struct.Struct) -> Instruction:
    return lambda reader: reader.stack.append(reader.number(kind))


def byte(reader: Reader) -> None:
    reader.stack.append(reader.data[reader.at])
    reader.at += 1


def remember(reader: Reader) -> None:
    reader.memo[reader.data[reader.at]] = reader.stack[-1]
    reader.at += 1


def remember_far(reader: Reader) -> None:
    reader.memo[reader.number(LENGTH)] = reader.stack[-1]


def remember_next(reader: Reader) -> None:
    reader.memo[reader.memoized] = reader.stack[-1]
    reader.memoized += 1


def recall(reader: Reader) -> None:
    """Push a remembered value. Every second instruction of a dump is this one, so it is fast."""
    reader.stack.append(reader.memo[reader.data[reader.at]])
    reader.at += 1


def recall_far(reader: Reader) -> None:
    reader.stack.append(reader.memo[reader.number(LENGTH)])


# the names are those of Python's pickletools
INSTRUCTIONS: dict[int, Instruction] = {
    0x80: protocol,  # PROTO
    0x95: frame,  # FRAME
    ord("}"): constant(dict),  # EMPTY_DICT
    ord("]"): constant(list),  # EMPTY_LIST
    ord(")"): constant(tuple),  # EMPTY_TUPLE
    ord("N"): constant(lambda: None),  # NONE
    0x88: constant(lambda: True),  # NEWTRUE
    0x89: constant(lambda: False),  # NEWFALSE
    ord("("): mark,  # MARK
    ord("X"): text,  # BINUNICODE
    0x8C: short_text,  # SHORT_BINUNICODE
    ord("K"): byte,  # BININT1
    ord("M"): number(SHORT),  # BININT2
    ord("J"): number(INT),  # BININT
    0x8A: long,  # LONG1
    ord("G"): double,  # BINFLOAT
    ord("a"): append,  # APPEND
    ord("e"): extend,  # APPENDS
    ord("s"): set_item,  # SETITEM
    ord("u"): update,  # SETITEMS
    0x85: short_tuple(1),  # TUPLE1
    0x86: short_tuple(2),  # TUPLE2
    0x87: short_tuple(3),  # TUPLE3
    ord("t"): tuple_to_mark,  # TUPLE
    ord("q"): remember,  # BINPUT
    ord("r"): remember_far,  # LONG_BINPUT
    0x94: remember_next,  # MEMOIZE
    ord("h"): recall,  # BINGET
    ord("j"): recall_far,  # LONG_BINGET
}
