"""Replay of one training step on several GPUs, with collectives beside its compute.

Called by prediction.

The method. All GPUs are alike, so one clock is enough (`Replay`). It walks through the compute of
the measured step in its order, since each GPU computes what the measured one did. Where gradients
are complete or weights are needed, a collective joins a queue. There is one queue for links inside
a node and one for the network between nodes, and the collectives of a queue run one after the
other. While any collective runs, compute takes longer by the slowdown. Where the step cannot go on
without a collective's result, the clock waits until that ends, and this wait is the exposed
communication. The modes differ only in what they send, when, and what they wait for:

- ddp sends buckets during backward, waits for all of them after it, then updates. With a shared
  update, each GPU updates a part of the weights and sends it to the others.
- fsdp and hsdp gather the weights of a stretch of blocks while the one before computes, and reduce
  its gradients after its backward.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from configs.sharing import stages
from profiling.analysis.scale.links import Cost, Links, Place
from profiling.analysis.scale.model_sizes import (
    EmbeddingRows,
    ModelSizes,
    buckets,
    shared_buckets,
)
from profiling.analysis.scale.scale_records import AllReduce, ReduceDtype, StepParts
from profiling.shared.memory_sizes import FLOAT32_BYTES

COPY_BYTES = 2  # per weight in the 16-bit copies with which the model computes


@dataclass(frozen=True)
class Work:
    """The measured step, and how it is to be shared: all that a replay needs but the links."""

    parts: StepParts
    sizes: ModelSizes
    bucket_mb: float
    slowdown: float  # 0.1: compute is a tenth longer beside a collective; 1: twice as long
    copy_bytes_per_ms: float | None  # speed of the GPU's memory; None: not known, copies are free
    averages: AllReduce = "collective"  # ddp: how gradients are averaged inside a node
    copies_slowdown: float = 0.0  # as `slowdown`, beside copies
    rows: EmbeddingRows | None = None  # ddp: the embedding's gradient as rows; None: always dense
    in_buckets: bool = False  # ddp: gradients of matrices are computed in buckets, not copied there
    shares_update: bool = False  # ddp: each GPU updates its part of the blocks' matrices
    reduce_dtype: ReduceDtype = "float32"  # in which the gradients of these matrices are sent
    optimizer: str = "adamw"
    pause_ms: float = 0.0  # ddp: gap after a piece of a CUDA graph, which is cut to send something

    @property
    def reduce_bytes(self) -> int:
        """Bytes per number of a gradient that is sent for a shared update."""
        return 2 if self.reduce_dtype == "bfloat16" else FLOAT32_BYTES

    def copy_ms(self, size: float) -> float:
        """Time in ms of a kernel that reads and writes `size` bytes in all."""
        return size / self.copy_bytes_per_ms if self.copy_bytes_per_ms else 0.0

    def all_reduce(self, gpus: int, gpus_per_node: int) -> AllReduce:
        """Way to average on `gpus` GPUs with ddp; copy engines reach only the GPUs of one node."""
        return self.averages if gpus <= gpus_per_node else "collective"

    def rows_for(self, gpus: int) -> EmbeddingRows | None:
        """Rows in which the embedding's gradient travels with ddp, or None where it is dense.

        It is dense with several micro-steps, whose sum is exchanged only once.
        """
        one = self.parts.micro_steps == 1
        return self.rows if one and self.rows and self.rows.travel(gpus) else None

    @property
    def averaged_sizes(self) -> ModelSizes:
        """Sizes of the parameters that ddp averages in buckets."""
        return self.sizes.matrices_only if self.shares_update else self.sizes

    def shared_buckets(self, gpus: int) -> dict[int, int]:
        """Buckets of ddp whose update the GPUs share; see model_sizes.shared_buckets."""
        if not self.shares_update:
            return {}
        rows = self.rows_for(gpus) is not None
        return shared_buckets(self.averaged_sizes, self.bucket_mb, rows, gpus)

    def received_bytes(self, gpus: int) -> int:
        """Bytes of the memory that receives gradients when ddp averages by copies.

        Each shared bucket has a place of its own; the others use one place in turn, which is as
        large as the largest of them.
        """
        tensors = self.averaged_sizes.tensors(self.rows_for(gpus) is not None)
        shared, every = self.shared_buckets(gpus), buckets(tensors, self.bucket_mb)
        largest = max((size for size, index in every if index not in shared), default=0)
        return self.reduce_bytes * sum(shared.values()) + largest


@dataclass
class Replay:
    """Clock of one GPU in ms since the step began, and the queues of its collectives."""

    slowdown: float
    now: float = 0.0
    exposed: float = 0.0  # sum of the waits for collectives
    # when the last collective of each queue ends
    free_at: dict[Place, float] = field(default_factory=lambda: {"link": 0.0, "network": 0.0})
    sent: list[Cost] = field(default_factory=list)

    def compute(self, ms: float) -> None:
        """Advance by `ms` of compute, which is slowed down as long as collectives run.

        The collectives that were sent so far follow one another without a gap, so they run until
        the last one ends.
        """
        beside = max(0.0, max(self.free_at.values()) - self.now)
        slow = min(ms, beside / (1 + self.slowdown))  # the part of `ms` beside them
        self.now += ms + slow * self.slowdown

    def send(self, cost: Cost, queue: Place = "link", after: float = 0.0) -> float:
        """Queue a collective, which begins no earlier than `after`; return the time it ends."""
        self.free_at[queue] = max(self.now, self.free_at[queue], after) + cost.ms
        self.sent.append(cost)
        return self.free_at[queue]

    def pause(self, ms: float) -> None:
        """Advance by `ms` in which the GPU does not compute."""
        self.now += ms

    def wait(self, until: float) -> None:
        """Wait until that time; a wait counts as exposed communication."""
        self.exposed += max(0.0, until - self.now)
        self.now = max(self.now, until)

    def wait_for_all(self) -> None:
        self.wait(max(self.free_at.values()))


@dataclass(frozen=True)
class Piece:
    """A piece of backward, and the gradients that are complete when it ends."""

    ms: float
    gradients: tuple[int, ...]  # number of parameters of each
    in_buckets: bool = False  # gradients are computed in their buckets, so nothing is copied


def backward_pieces(work: Work, rows: bool) -> Iterator[Piece]:
    """Pieces of backward in their order: the head, the blocks from the last one, the embedding.

    Where the embedding's gradient travels as `rows`, the head's gradient is the table's, and the
    embedding has no dense one. Otherwise autograd adds the two outside of the buckets.
    """
    parts, sizes = work.parts, work.averaged_sizes
    rest_ms = parts.backward_ms - parts.head_backward_ms - sizes.blocks * parts.block_backward_ms
    block = Piece(parts.block_backward_ms, sizes.block, work.in_buckets)
    if rows:
        yield Piece(parts.head_backward_ms, (sizes.table, *sizes.head), work.in_buckets)
        yield from [block] * sizes.blocks
        yield Piece(max(0.0, rest_ms - (parts.embedding_backward_ms or 0)), sizes.positions)
    else:
        yield Piece(parts.head_backward_ms, sizes.head)
        yield from [block] * sizes.blocks
        yield Piece(rest_ms, (*sizes.positions, sizes.table))


def replay_ddp(work: Work, links: Links, gpus: int) -> Replay:
    """Replay a step of ddp.

    After backward, all buckets are waited for, and after them the embedding's rows, which are then
    added to the table's gradient. The update comes last, shared or by each GPU.
    """
    parts, rows = work.parts, work.rows_for(gpus)
    by_copies = work.all_reduce(gpus, links.gpus_per_node) == "copies"
    replay = Replay(work.copies_slowdown if by_copies else work.slowdown)
    replay.compute((parts.micro_steps - 1) * (parts.forward_ms + parts.backward_ms))
    replay.compute(parts.forward_ms)
    averaged_at = arrived_at = send_buckets(replay, work, links, gpus)
    if rows:
        arrived_at = replay.send(links.gather(rows.gathered_bytes(gpus), gpus))
    if work.shares_update:
        replay.wait(averaged_at)
        begin_rest(replay, work, links, gpus)
    replay.wait(arrived_at)
    if rows:
        replay.compute(work.copy_ms(rows.added_bytes(gpus)))
    replay.wait_for_all()
    if work.shares_update:
        update_shared(replay, work, links, gpus)
    else:
        replay.compute(parts.rest_ms)
    return replay


def send_buckets(replay: Replay, work: Work, links: Links, gpus: int) -> float:
    """Replay backward; return the time at which all buckets are averaged.

    A bucket is sent as soon as its gradients are complete.
    """
    rows = work.rows_for(gpus) is not None
    by_copies = work.all_reduce(gpus, links.gpus_per_node) == "copies"
    tensors, shared = work.averaged_sizes.tensors(rows), work.shared_buckets(gpus)
    complete = {index: size for size, index in buckets(tensors, work.bucket_mb)}
    done = 0
    for piece in backward_pieces(work, rows):
        # each gradient is read and written once to copy it into its bucket
        copied = 0 if piece.in_buckets else 2 * FLOAT32_BYTES * sum(piece.gradients)
        replay.compute(piece.ms + work.copy_ms(copied))
        for index in range(done, done + len(piece.gradients)):
            if index in complete:
                # with copies, a kernel averages: it reads a part from each rank and writes one
                if by_copies and index not in shared:
                    replay.compute(work.copy_ms((1 + 1 / gpus) * complete[index]))
                if index in shared:
                    replay.send(links.gather(work.reduce_bytes * shared[index], gpus))
                else:
                    replay.send(links.all_reduce(complete[index], gpus))
                replay.pause(work.pause_ms)
        done += len(piece.gradients)
    return replay.free_at["link"]


def begin_rest(replay: Replay, work: Work, links: Links, gpus: int) -> None:
    """Send the gradients that are in no bucket, while the squares of this GPU's part are summed."""
    left = work.sizes.parameters - work.averaged_sizes.parameters
    replay.send(links.all_reduce(FLOAT32_BYTES * left, gpus))
    squares_ms, shared = work.parts.squares_ms or 0.0, sum(work.shared_buckets(gpus).values())
    replay.compute(part_ms(squares_ms, work, links, gpus, shared))


def update_shared(replay: Replay, work: Work, links: Links, gpus: int) -> None:
    """Replay the shared update: stages of this GPU's part, each sent while the next is updated."""
    parts = work.parts
    squares_ms, own = parts.squares_ms or 0.0, 1 - shared_share(work, gpus)
    update_ms = parts.update_ms - squares_ms
    replay.compute(parts.rest_ms - parts.update_ms + squares_ms * own)
    for stage in stages([*work.shared_buckets(gpus).values()]):
        replay.compute(part_ms(update_ms, work, links, gpus, sum(stage)))
        for parameters in stage:
            replay.send(links.gather(COPY_BYTES * parameters, gpus))
        replay.pause(work.pause_ms)
    replay.compute(update_ms * own)
    replay.wait_for_all()


def part_ms(every_ms: float, work: Work, links: Links, gpus: int, parameters: int) -> float:
    """Time in ms of a kernel over this GPU's part of `parameters` weights.

    The kernel takes `every_ms` for all weights of the model. It reads gradients as they were sent.
    With copies, those of each GPU have to be read, because nothing has averaged them yet.
    """
    by_copies = work.all_reduce(gpus, links.gpus_per_node) == "copies"
    # bytes per weight that it reads in addition to what the captured kernel read
    read = work.reduce_bytes * (gpus if by_copies else 1) - FLOAT32_BYTES
    part = parameters / gpus
    return max(0.0, every_ms * part / work.sizes.parameters + work.copy_ms(read * part))


def shared_share(work: Work, gpus: int) -> float:
    """Share of all parameters that the GPUs update in parts."""
    return sum(work.shared_buckets(gpus).values()) / work.sizes.parameters


def replay_sharded(work: Work, links: Links, gpus: int, shards: int) -> Replay:
    """Replay a step of fsdp or hsdp.

    `shards` ranks share one copy of the model, and gpus / shards such groups average gradients.
    """
    parts, kept = work.parts, work.sizes.travel.kept
    step = ShardedStep(work, links, gpus, shards, Replay(work.slowdown))
    for number in range(parts.micro_steps):
        step.forward(gathers=number == 0 or not kept)
        step.backward(gathers=not kept, reduces=number == parts.micro_steps - 1)
    step.replay.wait_for_all()
    step.replay.compute(parts.rest_ms - parts.update_ms * (1 - 1 / shards))
    return step.replay


@dataclass
class ShardedStep:
    """Passes of fsdp and hsdp: a stretch of blocks is gathered while the one before computes."""

    work: Work
    links: Links
    gpus: int
    shards: int
    replay: Replay

    def forward(self, gathers: bool) -> None:
        """Replay forward; embedding, last norm and head are gathered first in float32, and kept."""
        sizes, parts = self.work.sizes, self.work.parts
        if gathers:
            self.replay.wait(self.gather(FLOAT32_BYTES * sizes.root_parameters))
        stretches = [(len(stretch), gathers) for stretch in sizes.travel.stretches]
        self.run_stretches(stretches, parts.block_forward_ms)
        self.replay.compute(parts.forward_ms - sizes.blocks * parts.block_forward_ms)

    def backward(self, gathers: bool, reduces: bool) -> None:
        """Replay backward, beginning with forward's last stretch, whose weights are still there."""
        sizes, parts = self.work.sizes, self.work.parts
        self.replay.compute(parts.head_backward_ms)
        last, *others = (len(each) for each in reversed(sizes.travel.stretches))
        stretches = [(last, False), *((blocks, gathers) for blocks in others)]
        self.run_stretches(stretches, parts.block_backward_ms, reduces)
        below_head_ms = parts.backward_ms - parts.head_backward_ms
        self.replay.compute(below_head_ms - sizes.blocks * parts.block_backward_ms)
        if reduces:
            self.reduce(sizes.root_parameters)

    def run_stretches(
        self, stretches: Sequence[tuple[int, bool]], block_ms: float, reduces: bool = False
    ) -> None:
        """Replay a pass over stretches: (number of blocks, whether weights must be gathered)."""
        sizes, block_bytes = self.work.sizes, self.work.sizes.block_bytes
        gathered = [blocks * block_bytes * gathers for blocks, gathers in stretches]
        arrived_at = self.gather(gathered[0])
        for (blocks, _), size, after in zip(stretches, gathered, [*gathered[1:], 0], strict=True):
            self.replay.wait(arrived_at)
            arrived_at = self.gather(after)
            # weights are copied out of the buffer in which they were gathered
            self.replay.compute(blocks * block_ms + self.work.copy_ms(2 * size))
            if reduces:
                self.reduce(blocks * sizes.block_parameters)

    def gather(self, size: float) -> float:
        """Gather `size` bytes; return the time at which they have arrived."""
        return self.replay.send(self.links.gather(size, self.shards)) if size else self.replay.now

    def reduce(self, parameters: int) -> None:
        """Reduce-scatter gradients in float32, then average the shares among the groups."""
        size = FLOAT32_BYTES * parameters
        self.replay.compute(self.work.copy_ms(2 * size))  # into the buffer that is sent
        scattered = self.replay.send(self.links.gather(size, self.shards))
        groups = self.gpus // self.shards
        if groups > 1:
            cost = self.links.between_nodes().all_reduce(size / self.shards, groups)
            self.replay.send(cost, "network", after=scattered)
