"""Predicts the peak of a program after a change: another batch, blocks computed again, ranks that
share its state. Each prediction says what it assumes; what cannot be told is a ValueError.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from pathlib import Path

import msgspec
import numpy as np

from configs.sharing import Travel, decide_travel
from profiling.analysis.memory.changed import (
    Bounds,
    Changed,
    Repeated,
    as_recorded,
    grown,
    moments_halved,
    recomputed,
    repeated_blocks,
    shared,
)
from profiling.analysis.memory.device_memory import DeviceMemory
from profiling.analysis.memory.growth import (
    Growth,
    growth_of_layers,
    growth_of_one,
    growth_of_pair,
)
from profiling.analysis.memory.kinds import GRADIENTS, MOMENTS, WEIGHTS
from profiling.analysis.memory.memory_records import Plan
from profiling.shared.manifest import Manifest
from profiling.shared.memory_sizes import FLOAT32_BYTES, gathered_bytes, kept_for_backward
from profiling.shared.model_description import ModelDescription, matrices_of
from profiling.timeline.opening import read_manifest

KEYS = ("batch", "context", "layers")
ENDING = ".memory.pickle"
OF_TWO = {
    "batch": "give two snapshots of different batches and --batch 8,16, or --batch 8 for this one",
    "context": "give two snapshots of different contexts and --context 512,1024",
}
NO_STATE = "the snapshot has no such allocations: record from before the model"


@dataclass(frozen=True)
class Keys:
    """The keys of a run's manifest that matter here."""

    batch_size: int
    block_size: int
    n_head: int
    dtype: str = "bfloat16"
    attention: str = "slow"
    residual_dtype: str = "float32"


@dataclass(frozen=True, eq=False)
class Program:
    """A program by its snapshot and, where they are known, its values of keys and its manifest."""

    memory: DeviceMemory
    batch: int | None
    context: int | None
    manifest: Manifest | None = None
    other: "Program | None" = None  # with other values
    growths: dict[str, Growth] = field(default_factory=dict)

    @cached_property
    def keys(self) -> Keys | None:
        if self.manifest is None or self.manifest.config is None:
            return None
        try:
            return msgspec.convert(self.manifest.config, Keys)
        except msgspec.ValidationError:
            return None

    @property
    def model(self) -> ModelDescription | None:
        return self.manifest.model if self.manifest else None

    @property
    def memory_bytes(self) -> int | None:
        """Memory of its GPU, as the manifest has it."""
        environment = self.manifest.environment if self.manifest else None
        gpus = (environment or {}).get("gpus")
        device = self.memory.history.device
        if not isinstance(gpus, list) or device >= len(gpus) or not isinstance(gpus[device], dict):
            return None
        size = gpus[device].get("memory_bytes")
        return size if isinstance(size, int) else None

    @cached_property
    def blocks(self) -> Repeated:
        """Raises ValueError with a sentence."""
        return repeated_blocks(self.memory, len(self.model.blocks) if self.model else None)

    @property
    def layers(self) -> Repeated:
        """Blocks of which there can be more. Raises ValueError if they keep different sizes."""
        if not self.blocks.are_alike(self.memory.replayed.allocations.asked):
            raise ValueError("the blocks of forward differ in size, so another one's is not known")
        return self.blocks

    @cached_property
    def state(self) -> tuple[int, int]:
        """Bytes of weights outside of blocks, and in one block. Raises ValueError."""
        if model := self.model:
            block = FLOAT32_BYTES * sum(map(prod, model.blocks[0].values()))
            whole = FLOAT32_BYTES * model.parameter_count
            return whole - len(model.blocks) * block, block
        found = self.memory.replayed.allocations
        live = found.live_at(self.memory.at) & (self.memory.kind == WEIGHTS)
        if not live.any():
            raise ValueError(NO_STATE)
        sizes, counts = np.unique(found.asked[live], return_counts=True)
        of_blocks = counts // self.blocks.count
        block = int((sizes * of_blocks).sum())
        return int((sizes * counts).sum()) - self.blocks.count * block, block

    def value(self, key: str) -> int | None:
        if key == "layers":
            try:
                return self.layers.count
            except ValueError:
                return None
        return self.batch if key == "batch" else self.context

    def growth(self, key: str) -> Growth:
        """Raises ValueError with a sentence that says why it is not known, and what to record."""
        if key not in self.growths:
            self.growths[key] = self.find_growth(key)
        return self.growths[key]

    def find_growth(self, key: str) -> Growth:
        if key == "layers":
            (root, block), blocks = self.state, self.layers
            whole = root + blocks.count * block
            return growth_of_layers(self.memory, blocks.row, blocks.count, block, whole)
        value, other = self.value(key), self.other
        theirs = other.value(key) if other else None
        if other and value and theirs and value != theirs:
            if self.batch != other.batch and self.context != other.context:
                raise ValueError("the snapshots differ in batch and context; only one may differ")
            return growth_of_pair(self.memory, value, other.memory, theirs, key)
        if not value:
            raise ValueError(f"the {key} of the snapshot is not known; {OF_TWO[key]}")
        if key == "batch":
            if value == 1:
                raise ValueError(f"every size is a multiple of a batch of 1; {OF_TWO[key]}")
            return growth_of_one(self.memory, value, value * (self.context or 1), key)
        if not self.keys or not self.batch:
            raise ValueError(f"scores may grow as the square of the context; {OF_TWO[key]}")
        heads = self.keys.n_head if self.keys.attention == "slow" else None
        return growth_of_one(self.memory, value, value * self.batch, key, heads)

    def predict(self, plan: Plan) -> tuple[Bounds, list[str]]:
        """The peak after a change, and what that assumes. Raises ValueError with a sentence."""
        changed, assumes = as_recorded(self.memory), list[str]()
        for key in KEYS:
            if value := getattr(plan, key):
                changed = grown(changed, self.growth(key), value)
                assumes.append(self.growth(key).assumes)
        if plan.moments:
            changed = moments_halved(self.having(MOMENTS, changed))
            assumes.append("the moments are float32 now")
        if plan.checkpointing:
            changed = recomputed(changed, self.blocks, self.input_bytes(plan))
            assumes.append(f"{self.blocks.count} blocks keep their inputs alone")
        if plan.zero1:
            changed = shared(self.having(MOMENTS, changed), [MOMENTS], plan.zero1, changed.beside)
            assumes.append("each rank updates its share, and has the batch of the snapshot")
        if not plan.fsdp:
            return changed.peak, assumes
        held = self.travel.blocks_held
        assumes.append(f"{held} blocks and what is outside of blocks are gathered at a time")
        return self.fully_shared(changed, plan.fsdp), assumes

    def fully_shared(self, changed: Changed, ranks: int) -> Bounds:
        """The peak where ranks share all of the state.

        What is gathered is at most all weights and gradients, so that no more than with shared
        moments alone (ZeRO-1) is expected.
        """
        beside = self.gathered(self.having(WEIGHTS, changed))
        peak = shared(changed, (WEIGHTS, GRADIENTS, MOMENTS), ranks, beside).peak
        zero1 = shared(changed, [MOMENTS], ranks, changed.beside).peak
        if peak.expected <= zero1.expected:
            return peak
        least = min(peak.least, zero1.expected)
        return replace(peak, least=least, expected=zero1.expected, phase=zero1.phase)

    def having(self, kind: int, changed: Changed) -> Changed:
        if not (self.memory.kind == kind).any():
            raise ValueError(NO_STATE)
        return changed

    def input_bytes(self, plan: Plan) -> int | None:
        """Bytes that a block keeps of its input, if the manifest tells."""
        model, keys = self.model, self.keys
        if not model or not keys:
            return None
        tokens = (plan.batch or keys.batch_size) * (plan.context or keys.block_size)
        number_bytes = 2 if keys.residual_dtype == "bfloat16" else FLOAT32_BYTES
        products = matrices_of(model.blocks[0])
        return kept_for_backward(products, model.width, tokens, number_bytes, recomputed=True)

    @property
    def travel_bytes(self) -> int:
        """Bytes of a weight as it is sent."""
        return 2 if self.keys and self.keys.dtype != "float32" else FLOAT32_BYTES

    @cached_property
    def travel(self) -> Travel:
        """Plan for gathering blocks: this trainer's, or each by itself in a program of others,
        with the next one beside it."""
        if not self.model:
            return Travel((range(1), range(1, 2)), kept=False)
        sent = self.state[1] // FLOAT32_BYTES * self.travel_bytes
        return decide_travel(len(self.model.blocks), sent, self.memory_bytes)

    def gathered(self, changed: Changed) -> Bounds:
        """Bytes beside a rank's share: least one block's weights, most twice as many blocks."""
        root, block = (size // FLOAT32_BYTES for size in self.state)
        held, longest = self.travel.blocks_held, self.travel.longest
        most = held if self.travel.kept else 2 * held
        before = changed.beside
        return Bounds(
            before.least + self.travel_bytes * block,
            before.expected + gathered_bytes(root, block, self.travel_bytes, held, longest),
            before.most + gathered_bytes(root, block, FLOAT32_BYTES, most, 2 * longest),
        )


def program_of(memory: DeviceMemory, batch: int | None, context: int | None) -> Program:
    """The program of a snapshot, with these values or else those of its manifest.

    Raises ValueError for a damaged manifest.
    """
    manifest = manifest_of(memory.snapshot.file)
    keys = Program(memory, batch, context, manifest).keys
    if keys:
        batch, context = batch or keys.batch_size, context or keys.block_size
    return Program(memory, batch, context, manifest)


def manifest_of(path: Path) -> Manifest | None:
    """The manifest beside a snapshot of a window, or None. Raises ValueError if it is damaged."""
    beside = path.with_name(path.name.removesuffix(ENDING) + ".json")
    if not path.name.endswith(ENDING) or not beside.is_file():
        return None
    return read_manifest(beside)
