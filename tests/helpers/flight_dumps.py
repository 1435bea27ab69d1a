"""Dumps of flight recorders as torch 2.13 writes them, planted rank by rank.

The keys are those of c10d's FlightRecorder.hpp, version 2.10; a test holds them against a dump that
torch has written.
"""

import os
import pickle
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from profiling.shared.json_records import to_json
from profiling.shared.run_files import DUMP, HOSTS_GROUP, Note
from profiling.timeline.flight_dump import find, read

BEGAN_NS = 1_795_322_400_000_000_000
WORLD = ("0", "default_pg")
HOSTS = ("1", HOSTS_GROUP)  # gloo's group in a run on GPUs
FRAMES = [
    {"name": "all_reduce", "filename": "/lib/torch/distributed/distributed_c10d.py", "line": 3245},
    {"name": "average_gradients", "filename": "/home/me/work/training/step/step.py", "line": 90},
    {"name": "train_on", "filename": "/home/me/work/train.py", "line": 112},
]


@dataclass
class PlantedRank:
    """Calls of one rank at given seconds; the calls of a group are numbered in turn."""

    rank: int
    world: int
    backend: str = "nccl"
    entries: list[dict] = field(default_factory=list)
    calls: Counter = field(default_factory=Counter)  # number of calls of each group
    groups: dict[str, list[int]] = field(default_factory=dict)  # members, beside the world

    def call(
        self,
        at_s: float,
        name: str = "all_reduce",
        sizes: tuple[int, ...] = (1376,),
        dtype: str = "Float",
        done: bool = True,
        group: tuple[str, str] = WORLD,
    ) -> None:
        before = self.calls[group]
        self.calls[group] += 1
        backend = "gloo" if group == HOSTS else self.backend
        nccl = backend == "nccl"
        self.entries.append(
            {
                "frames": FRAMES,
                "record_id": len(self.entries_of(backend)),
                "pg_id": int(group[0]),
                "process_group": group,
                "thread_name": "python",
                "thread_id": "139734890302336",
                "collective_seq_id": before + 1,
                "p2p_seq_id": 0,
                "op_id": before + 1,
                "profiling_name": f"{backend}:{name}",
                "time_created_ns": BEGAN_NS + round(at_s * 1e9),
                "input_sizes": [list(sizes)],
                "input_dtypes": [dtype],
                "output_sizes": [list(sizes)],
                "output_dtypes": [dtype],
                "state": "completed" if done and nccl else "scheduled",
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": None,
                "retired": done,
                "timeout_ms": 600_000,
                "is_p2p": False,
            }
        )

    def entries_of(self, backend: str) -> list[dict]:
        """Entries of one backend, each of which has a recorder of its own."""
        return [e for e in self.entries if e["profiling_name"].startswith(f"{backend}:")]

    def content(self, backend: str | None = None) -> dict:
        backend = backend or self.backend
        ranks = str(list(range(self.world))) if backend == "nccl" else "[]"
        name, description = WORLD if backend == "nccl" else ("", "")
        groups = {name: {"name": name, "desc": description, "ranks": ranks}}
        for name, members in self.groups.items():
            groups[name] = {"name": name, "desc": "undefined", "ranks": str(members)}
        return {
            "version": "2.10",
            "pg_config": groups,
            "comm_lib_version": "2.27.5",
            "pg_status": {"0": {"last_enqueued_collective": 1, "last_completed_collective": 1}},
            "entries": self.entries_of(backend),
        }

    def write(self, folder: Path, at_s: float, note: bool = False, **known: object) -> Path:
        """Write the dump as torch does, or with a note as the trainer does."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{DUMP}{self.rank}"
        dumped_ns = BEGAN_NS + round(at_s * 1e9)
        written = pickle.dumps(self.content(), protocol=2)
        if note or known:
            if self.backend == "nccl":
                written += pickle.dumps(self.content("gloo"), protocol=2)
            facts = Note(self.rank, self.world, dumped_ns, "node", 4242 + self.rank, **known)
            written += to_json(facts, indent=None).encode()
        path.write_bytes(written)
        os.utime(path, ns=(dumped_ns, dumped_ns))
        return path


def planted(world: int, steps: int = 7, backend: str = "nccl") -> list[PlantedRank]:
    """Ranks that have done `steps` all-reduces together, one per second."""
    ranks = [PlantedRank(rank, world, backend) for rank in range(world)]
    for rank in ranks:
        for step in range(steps):
            rank.call(step)
    return ranks


def describe_dumps(folder: Path, most: int = 6) -> str:
    """Content of the dumps in a folder, a line for each group of each rank.

    A line has the last `most` calls, and the number of the last that has finished.
    """
    lines = []
    for rank, path in find([folder]).items():
        dump = read(path, rank)
        for name, calls in dump.groups.items():
            last = [
                f"{number} {operation.backend}:{operation.name} {(ns - dump.dumped_ns) / 1e9:.1f} s"
                for number, operation, ns in zip(
                    calls.sequence, calls.operation, calls.entered_ns, strict=True
                )
            ]
            writer = f"trainer: {dump.note.error}" if dump.note else "torch"
            lines.append(
                f"rank {rank} ({writer}) {name}: finished {calls.finished_to}; {last[-most:]}"
            )
    return "\n".join(lines)
