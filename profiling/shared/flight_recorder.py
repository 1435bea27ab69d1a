"""Names and records of the flight recorder's dumps in OUT_DIR/profile, and of requests for them.

PyTorch's flight recorder keeps the last collectives of a process, that is of a rank, in memory.
torch writes them when NCCL's watchdog runs out of patience, training.ranks.flight_recorder when a
run dies or is asked; `python -m profiling hang` reads them.
"""

import re
from dataclasses import dataclass, field

DUMP = "flight-rank"  # the rank's number follows, without an ending: torch names its files so
HOSTS_GROUP = "hosts"  # torch's description of the group by which all hosts of a run talk
EARLIER = f"earlier-{DUMP}"  # a dump of the run before a resume
REQUEST = "flight-request"  # asks the ranks of a run for their dumps; a rank that dies signs it
LOOK_S = 2.0  # between two looks for a request


@dataclass(frozen=True)
class Note:
    """The trainer's JSON at the end of a dump, after torch's part.

    torch's part is a pickle from each of its recorders: NCCL's calls, then gloo's.
    """

    rank: int
    world_size: int
    dumped_ns: int  # since 1970
    host: str
    pid: int
    error: str | None = None  # the error that ended the rank
    in_collective: bool = False  # the error came out of the rank's very last collective
    # frames of the rank's main thread, as `place` spells them
    stack: list[str] = field(default_factory=list)


def place(filename: str, line: int, function: str) -> str:
    """Spell a stack frame as FOLDER/FILE:LINE in FUNCTION.

    Only the file's own folder is kept: enough to find it, without anybody's home folder.
    """
    file = "/".join(re.split(r"[/\\]", filename)[-2:])
    return f"{file}:{line} in {function}"
