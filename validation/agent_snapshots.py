"""Memory snapshots with a known peak and a known leak, as PyTorch writes them, for the questions.

Every block is a segment of its own, of a size that the caching allocator does not round up.
"""

import pickle
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20
BLOCK = 32 * MIB
LAYERS, STEPS = 4, 6
TORCH = "/env/lib/python3.11/site-packages/torch"
Frames = list[dict[str, object]]
FORWARD = [("/home/me/model.py", 71, "forward"), (f"{TORCH}/nn/modules/module.py", 9, "_call_impl")]
MAKE = [(f"{TORCH}/nn/modules/module.py", 5, "to"), ("/home/me/train.py", 10, "main")]
STATE, UPDATE = (
    [(f"{TORCH}/optim/adamw.py", line, function), ("/home/me/train.py", 44, "main")]
    for line, function in ((150, "_init_group"), (600, "step"))
)
KEEP = [("/home/me/train.py", 55, "main")]


@dataclass
class Memory:
    """A GPU's memory: what was taken and given back, as events and as blocks."""

    events: list[dict[str, object]] = field(default_factory=list)
    live: dict[int, Frames] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    end: int = 0x7F0000000000

    def record(self, action: str, address: int, frames: Frames) -> None:
        at = {"addr": address, "size": BLOCK, "stream": 0, "time_us": 1000 * len(self.events)}
        self.events.append({"action": action, **at, "frames": frames})

    def take(self, places: list[tuple[str, int, str]]) -> int:
        keys = ("filename", "line", "name")
        frames: Frames = [dict(zip(keys, place, strict=True)) for place in places]
        if not self.free:
            self.free.append(self.end)
            self.record("segment_alloc", self.end, frames)
            self.end += 2 * BLOCK
        address = self.free.pop()
        self.live[address] = frames
        self.record("alloc", address, frames)
        return address

    def give(self, address: int) -> None:
        del self.live[address]
        self.free.append(address)
        for action in ("free_requested", "free_completed"):
            self.record(action, address, [])

    def segments(self) -> list[dict[str, object]]:
        held = [(at, BLOCK, frames) for at, frames in self.live.items()]
        held += [(at, 0, []) for at in self.free]
        return [
            {
                **{"device": 0, "address": at, "total_size": BLOCK, "allocated_size": used},
                **{"active_size": used, "stream": 0, "segment_type": "large", "frames": frames},
                "blocks": [
                    {
                        **{"address": at, "size": BLOCK, "requested_size": used, "frames": frames},
                        "state": "active_allocated" if used else "inactive",
                    }
                ],
            }
            for at, used, frames in sorted(held, key=lambda block: block[0])
        ]


def write_snapshot(target: Path, leak: bool = False, history: bool = True) -> None:
    """Write the snapshot of STEPS steps of a training; with a leak, each keeps a BLOCK."""
    memory = Memory()
    for _ in range(LAYERS):
        memory.take(MAKE)
    for number in range(STEPS):
        saved = [memory.take(FORWARD) for _ in range(LAYERS)]
        gradients = []
        while saved:
            gradients.append(memory.take([]))  # a thread of autograd has no frame
            memory.give(saved.pop())
        if not number:
            for _ in range(2 * LAYERS):
                memory.take(STATE)
        memory.give(memory.take(UPDATE))
        for gradient in gradients:
            memory.give(gradient)
        if leak:
            memory.take(KEEP)
    snapshot = {
        "segments": memory.segments(),
        "device_traces": [memory.events if history else []],
        "allocator_settings": {},
        "external_annotations": [],
    }
    target.write_bytes(pickle.dumps(snapshot))
