"""Records of the verb `hang`. docs/report-schema.md describes them field by field."""

from dataclasses import dataclass, field
from typing import Literal

SCHEMA_VERSION = 1
# hang: a collective waits forever; error: the others wait for a rank that its own error ended;
# moment: some ranks wait, as those of a healthy run do; none: all collectives are finished
Answer = Literal["hang", "error", "moment", "none"]
# absent: a rank has not entered the collective; mismatch: ranks called different things; entered:
# all ranks are in it, and it does not end; no_dump: the missing ranks have left no dump
Why = Literal["absent", "mismatch", "entered", "no_dump"]


@dataclass(frozen=True)
class Call:
    """A call of a collective, as one rank recorded it."""

    group: str  # the process group's name and description: "0 (default_pg)"
    sequence: int  # number of the call among the group's collectives
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
    """Ranks that called the same collective with comparable arguments."""

    ranks: list[int]
    call: Call  # by the first of these ranks


@dataclass(frozen=True)
class Stuck:
    """A collective that does not end. It has several `variants` where the ranks disagree."""

    why: Why
    group: str
    members: list[int] | None  # ranks of the group; None: unknown
    sequence: int
    variants: list[Variant]
    waiting: list[int]  # ranks that are in it
    absent: list[int]  # ranks that had not entered it when they left their dump
    no_dump: list[int]  # members without a dump
    waited_s: float | None  # by the rank that waits the longest
    timeout_s: float | None
    timed_out: bool  # torch has given it up


@dataclass(frozen=True)
class Rank:
    """Last known state of a rank."""

    rank: int
    file: str
    dumped_ns: int  # since 1970, by the rank's clock
    host: str | None
    pid: int | None
    error: str | None  # the error that ended it
    own_error: bool  # the error came from elsewhere than a collective
    # where the rank was, FILE:LINE in FUNCTION; None: the trainer did not write it
    stack: list[str] | None
    last_finished: Call | None
    last_entered: Call | None


@dataclass(frozen=True)
class Hang:
    """Result of the analysis.

    `stuck` begins with the collective to look at first; then come those that wait because of it, or
    about which that cannot be told.
    """

    answer: Answer
    stuck: list[Stuck]
    ranks: list[Rank]
    world_size: int | None
    no_dump: list[int]
    notes: list[str]
    schema_version: int = field(default=SCHEMA_VERSION, kw_only=True)
