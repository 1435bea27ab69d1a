"""Memory snapshots as PyTorch writes them, of trainings that are played on a model of its caching
allocator. What is planted in them is known, and so is the true peak."""

import pickle
from bisect import bisect_left, insort
from dataclasses import dataclass, field

MIB = 1 << 20
SITE = "/env/lib/python3.11/site-packages"
MODULE, ADAMW = f"{SITE}/torch/nn/modules/module.py", f"{SITE}/torch/optim/adamw.py"
Frames = list[dict[str, object]]
_frames: dict[tuple[str, int, str], dict[str, object]] = {}


def frame(file: str, line: int, name: str) -> dict[str, object]:
    """The frame, one object for each, as PyTorch shares them."""
    value = {"name": name, "filename": file, "line": line}
    return _frames.setdefault((file, line, name), value)


def in_main(line: int, *inner: dict[str, object]) -> Frames:
    return [*inner, frame("/home/me/train.py", line, "main")]


def in_forward(line: int) -> Frames:
    """The stack in a line of attention, 88, or of another module that a block calls."""
    call, caller = frame(MODULE, 1784, "_call_impl"), 110 if line == 88 else 111
    block = frame("/home/me/model.py", caller, "forward")
    return in_main(40, frame("/home/me/model.py", line, "forward"), call, block, call)


MOVE = frame(MODULE, 1363, "convert"), frame(MODULE, 942, "_apply"), frame(MODULE, 1371, "to")
MAKE = in_main(10, *MOVE)
STATE, STEP = (in_main(44, frame(ADAMW, n, f)) for n, f in ((150, "_init_group"), (600, "step")))
ZERO = in_main(46, frame(f"{SITE}/torch/optim/optimizer.py", 1010, "zero_grad"))
BACKWARD: Frames = []  # autograd's thread has no frame of Python
ENGINE = [
    frame("??", 0, "torch::autograd::generated::MmBackward0::apply()"),
    frame("??", 0, "torch::autograd::Engine::evaluate_function()"),
]


class OutOfMemory(Exception):
    """Raised where an allocation exceeds the limit."""


@dataclass
class Allocator:
    """A model of CUDACachingAllocator: pools, best fit, splitting, merging, cudaMalloc."""

    limit: int = 80 << 30
    expandable: bool = False
    device: int = 0
    base: int = 0x7F0000000000
    events: list[dict[str, object]] = field(default_factory=list)
    segments: dict[int, int] = field(default_factory=dict)  # address: size
    free: list[tuple[int, int]] = field(default_factory=list)  # (address, size)
    used: dict[int, tuple[int, int, Frames]] = field(default_factory=dict)
    allocated: int = 0
    peak: int = 0
    us: int = 1_700_000_000_000_000
    recording: bool = True

    def record(self, action: str, frames: Frames, size: int, addr: int | None = None, **more: int):
        self.us += 7
        if self.recording:
            where = {"addr": addr} if addr is not None else more
            event = {"action": action, **where, "size": size, "stream": 0, "time_us": self.us}
            self.events.append(event | {"compile_context": "N/A"[:], "frames": frames})

    def alloc(self, asked: int, frames: Frames) -> int:
        size = max(512, -(-asked // 512) * 512)
        small = size <= MIB
        fits = [
            (room, at)
            for at, room in self.free
            if room >= size and (self.expandable or self.is_small(at) == small)
        ]
        room, at = min(fits) if fits else self.grow(asked, size, small, frames)
        place = bisect_left(self.free, (at, 0))
        del self.free[place]
        rest = room - size
        if rest >= 512 if small or self.expandable else rest > MIB:
            insort(self.free, (at + size, rest))
        else:
            size = room
        self.used[at] = (size, asked, frames if self.recording else [])
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        self.record("alloc", frames, asked, at)
        return at

    def grow(self, asked: int, size: int, small: bool, frames: Frames) -> tuple[int, int]:
        segment = (
            2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // MIB // 2) * 2 * MIB
        )
        if self.expandable:
            segment = -(-size // (20 * MIB)) * 20 * MIB
        if sum(self.segments.values()) + segment > self.limit:
            left = self.limit - sum(self.segments.values())
            self.record("oom", frames, asked, device_free=left)
            raise OutOfMemory
        at = self.base
        self.base += segment if self.expandable else segment + 64 * MIB
        self.segments[at] = segment
        self.record("segment_map" if self.expandable else "segment_alloc", frames, segment, at)
        if self.expandable:
            return self.give(at, segment)
        insort(self.free, (at, segment))
        return segment, at

    def give(self, at: int, size: int) -> tuple[int, int]:
        """Make a range free, merged with its free neighbours; (size, address) of the whole."""
        place = bisect_left(self.free, (at, 0))
        if place < len(self.free) and self.free[place][0] == at + size and self.can_join(at + size):
            size += self.free.pop(place)[1]
        before = self.free[place - 1] if place else (0, 0)
        if sum(before) == at and self.can_join(at):
            del self.free[place - 1]
            at, size = before[0], before[1] + size
        insort(self.free, (at, size))
        return size, at

    def can_join(self, at: int) -> bool:
        """Whether a place is not the beginning of a segment of its own."""
        return self.expandable or at not in self.segments

    def is_small(self, at: int) -> bool:
        start = max(segment for segment in self.segments if segment <= at)
        return self.segments[start] == 2 * MIB

    def release(self, at: int, frames: Frames) -> None:
        size, asked, _ = self.used.pop(at)
        self.allocated -= size
        self.record("free_requested", frames, asked, at)
        self.record("free_completed", frames, asked, at)
        self.give(at, size)

    def content(self) -> list[dict[str, object]]:
        """The segments of a snapshot."""
        starts = sorted(self.segments)
        if self.expandable:
            starts = [
                a
                for i, a in enumerate(starts)
                if not i or starts[i - 1] + self.segments[starts[i - 1]] != a
            ]
        ends = [*starts[1:], 1 << 62]
        blocks = [
            (at, size, asked, "active_allocated", f) for at, (size, asked, f) in self.used.items()
        ]
        blocks += [(at, size, 0, "inactive", []) for at, size in self.free]
        found = []
        for start, end in zip(starts, ends, strict=True):
            own = sorted((b for b in blocks if start <= b[0] < end), key=lambda b: b[0])
            total = sum(block[1] for block in own)
            used = sum(block[1] for block in own if block[3] != "inactive")
            keys = ("address", "size", "requested_size", "state", "frames")
            found.append(
                {
                    "device": self.device,
                    "address": start,
                    "total_size": total,
                    "allocated_size": used,
                    "active_size": used,
                    "stream": 0,
                    "segment_type": "small" if total == 2 * MIB else "large",
                    "segment_pool_id": (0, 0),
                    "is_expandable": self.expandable,
                    "frames": [],
                    "blocks": [dict(zip(keys, block, strict=True)) for block in own],
                }
            )
        return found


@dataclass
class Training:
    """A training of `layers` weights; each step has forward, backward and an update."""

    allocator: Allocator = field(default_factory=Allocator)
    layers: int = 8
    weight: int = 3 * MIB + 1024
    activation: int = 5 * MIB
    cpp: bool = False  # backward has frames of C++
    leak: int = 0  # bytes that each step keeps, from train.py:55
    annotations: list[dict[str, object]] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    moments: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    def make(self) -> "Training":
        self.weights = [self.allocator.alloc(self.weight, MAKE) for _ in range(self.layers)]
        return self

    def step(self, number: int) -> None:
        a, behind = self.allocator, ENGINE if self.cpp else BACKWARD
        saved = []
        for layer in range(self.layers):
            scratch = a.alloc(self.activation // 2, in_forward(70))
            saved.append(a.alloc(self.activation, in_forward(88 if layer % 2 else 71)))
            a.release(scratch, in_forward(70))
        gradients = []
        while saved:
            scratch = a.alloc(self.activation, behind)
            gradients.append(a.alloc(self.weight, behind))
            a.release(saved.pop(), behind)
            a.release(scratch, behind)
        self.mark("START", number)
        if not self.moments:
            self.moments = [a.alloc(self.weight, STATE) for _ in range(2 * self.layers)]
        for _ in gradients:
            a.release(a.alloc(self.weight, STEP), STEP)
        self.mark("END", number)
        for gradient in gradients:
            a.release(gradient, ZERO)
        if self.leak:
            self.kept.append(a.alloc(self.leak, in_main(55)))

    def fragment(self, count: int) -> "Training":
        """Leave a block of 2 MiB, from train.py:66, amid each of so many segments of 20."""
        allocator, fillers = self.allocator, []
        for _ in range(count):
            fillers.append(allocator.alloc(9 * MIB, in_main(65)))
            self.kept.append(allocator.alloc(2 * MIB, in_main(66)))
            fillers.append(allocator.alloc(9 * MIB, in_main(65)))
        for address in fillers:
            allocator.release(address, in_main(67))
        return self

    def mark(self, stage: str, number: int) -> None:
        name, device = "Optimizer.step#AdamW.step", self.allocator.device
        ends = {"stage": stage, "name": name, "device": device, "time_us": self.allocator.us}
        self.annotations.append(ends)

    def run(self, steps: int) -> "Training":
        for number in range(steps):
            self.step(number)
        return self

    def snapshot(self) -> dict[str, object]:
        return snapshot_of([self.allocator], self.annotations)


def snapshot_of(
    allocators: list[Allocator], annotations: list[dict[str, object]] | None = None
) -> dict[str, object]:
    """The dict that torch.cuda.memory._snapshot returns."""
    traces: list[list[dict[str, object]]] = [
        [] for _ in range(max(a.device for a in allocators) + 1)
    ]
    for allocator in allocators:
        traces[allocator.device] = allocator.events
    return {
        "segments": [segment for a in allocators for segment in a.content()],
        "device_traces": traces,
        "allocator_settings": {"max_split_size": -1, "roundup_power2_divisions": {"1": 0}},
        "external_annotations": annotations or [],
    }


def out_of_memory(limit: int = 300 * MIB) -> Training:
    """A training that ran out of memory in its first forward or update."""
    training = Training(Allocator(limit=limit), layers=12, activation=24 * MIB).make()
    try:
        training.run(2)
    except OutOfMemory:
        return training
    raise AssertionError("it fits")


def pickled(snapshot: object, protocol: int = 4) -> bytes:
    return pickle.dumps(snapshot, protocol)
