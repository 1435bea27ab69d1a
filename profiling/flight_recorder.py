"""What PyTorch's flight recorder of a rank leaves in OUT_DIR/profile, and how it is asked for that.

The recorder keeps the last collectives of a process in memory. torch writes them when NCCL's
watchdog runs out of patience, training.flight_recorder when a run dies or is asked;
`python -m profiling hang` reads them.
"""

import re
from dataclasses import dataclass, field

DUMP = "flight-rank"  # the rank's number follows, without an ending: torch names its files so
HOSTS_GROUP = "hosts"  # torch's description of the group by which all hosts of a run talk
EARLIER = f"earlier-{DUMP}"  # of the run before a resume
REQUEST = "flight-request"  # asks the ranks of a run for their dumps; a rank that dies signs it
LOOK_S = 2.0  # between two looks for a request


@dataclass(frozen=True)
class Note:
    """What the trainer adds behind torch's part of a dump, as JSON.

    That part is a pickle from each of torch's recorders: NCCL's calls, then gloo's.
    """

    rank: int
    world_size: int
    dumped_ns: int  # since 1970
    host: str
    pid: int
    error: str | None = None  # that ended the rank
    in_collective: bool = False  # the error came out of the rank's last collective of all
    stack: list[str] = field(default_factory=list)  # where its main thread was; as `place` says


def place(filename: str, line: int, function: str) -> str:
    """With the file's own folder alone: enough to find it, and nobody's home."""
    file = "/".join(re.split(r"[/\\]", filename)[-2:])
    return f"{file}:{line} in {function}"
