"""What `hang` says of a run, as records: docs/report-schema.md has them field by field."""

from dataclasses import dataclass, field
from typing import Literal

SCHEMA_VERSION = 1
# hang: a collective waits for good; error: a rank was ended by one of its own, for which the others
# wait; moment: some wait, as ranks of a healthy run do; none: all is done
Answer = Literal["hang", "error", "moment", "none"]
# absent: a rank has not entered it; mismatch: ranks called different things; entered: all are in
# it, and it does not end; no_dump: who is missing has left no dump
Why = Literal["absent", "mismatch", "entered", "no_dump"]


@dataclass(frozen=True)
class Call:
    """Of a collective, as one rank recorded it."""

    group: str  # the process group's name and description: "0 (default_pg)"
    sequence: int  # counts the group's collectives
    name: str
    backend: str
    input_sizes: list[list[int]]  # of each tensor
    output_sizes: list[list[int]]
    dtypes: list[str]
    entered_ns: int  # since 1970, by the rank's clock
    finished: bool
    stack: list[str]  # FILE:LINE in FUNCTION, the innermost first, without torch's own


@dataclass(frozen=True)
class Variant:
    """Ranks that called the same thing."""

    ranks: list[int]
    call: Call  # of the first of them


@dataclass(frozen=True)
class Stuck:
    """A collective that does not end. `variants`: more than one where the ranks disagree."""

    why: Why
    group: str
    members: list[int] | None  # of the group; None: unknown
    sequence: int
    variants: list[Variant]
    waiting: list[int]  # ranks that are in it
    absent: list[int]  # ranks that have not entered it when they left their dump
    no_dump: list[int]  # members without a dump
    waited_s: float | None  # by the rank that waits the longest
    timeout_s: float | None
    timed_out: bool  # torch gave it up


@dataclass(frozen=True)
class Rank:
    """The last that is known of a rank."""

    rank: int
    file: str
    dumped_ns: int  # since 1970, by the rank's clock
    host: str | None
    pid: int | None
    error: str | None  # that ended it
    own_error: bool  # it came from elsewhere than a collective
    stack: (
        list[str] | None
    )  # where it was, FILE:LINE in FUNCTION; None: the trainer did not write it
    last_finished: Call | None
    last_entered: Call | None


@dataclass(frozen=True)
class Hang:
    """`stuck`: the one to look at first, then those that wait because of it, or cannot be told."""

    answer: Answer
    stuck: list[Stuck]
    ranks: list[Rank]
    world_size: int | None
    no_dump: list[int]
    notes: list[str]
    schema_version: int = field(default=SCHEMA_VERSION, kw_only=True)
