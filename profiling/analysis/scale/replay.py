"""One step played again, with collectives beside its compute. Called by prediction.

Each GPU computes what the measured one did. Collectives queue: one after the other inside a node,
and likewise between nodes. While one runs, compute takes longer by the slowdown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from profiling.analysis.scale.links import Cost, Links, Place
from profiling.analysis.scale.model_sizes import (
    FLOAT32_BYTES,
    EmbeddingRows,
    ModelSizes,
    buckets,
    shared_buckets,
)
from profiling.analysis.scale.records import AllReduce, ReduceDtype, StepParts
from profiling.shared_update import stages

COPY_BYTES = 2  # of a weight, with which the model computes


@dataclass(frozen=True)
class Work:
    """`copy_bytes_per_ms`: of the GPU's memory; None: not known, copies are free."""

    parts: StepParts
    sizes: ModelSizes
    bucket_mb: float
    slowdown: float  # 0.1: compute is a tenth longer beside a collective; 1: twice as long
    copy_bytes_per_ms: float | None
    averages: AllReduce = "collective"  # ddp
    copies_slowdown: float = 0.0
    rows: EmbeddingRows | None = None  # of ddp, where they can travel
    in_buckets: bool = False  # ddp: gradients of matrices are made there, and not copied
    shares_update: bool = False  # ddp: each GPU updates its part of the blocks' matrices
    reduce_dtype: ReduceDtype = "float32"  # of what is sent of their gradients
    pause_ms: float = 0.0  # ddp: behind a piece of a CUDA graph, which is cut to send something

    @property
    def reduce_bytes(self) -> int:
        """Of a gradient that is sent to be added by the update."""
        return 2 if self.reduce_dtype == "bfloat16" else FLOAT32_BYTES

    def copy_ms(self, size: float) -> float:
        """Of a kernel that reads and writes so many bytes in all."""
        return size / self.copy_bytes_per_ms if self.copy_bytes_per_ms else 0.0

    def all_reduce(self, gpus: int, gpus_per_node: int) -> AllReduce:
        """Of ddp. Copy engines reach the GPUs of a node."""
        return self.averages if gpus <= gpus_per_node else "collective"

    def rows_for(self, gpus: int) -> EmbeddingRows | None:
        """Of ddp, with one micro-step: of more a dense gradient is one exchange, too."""
        one = self.parts.micro_steps == 1
        return self.rows if one and self.rows and self.rows.travel(gpus) else None

    @property
    def averaged_sizes(self) -> ModelSizes:
        """What ddp has in its buckets."""
        return self.sizes.matrices_only if self.shares_update else self.sizes

    def shared_buckets(self, gpus: int) -> dict[int, int]:
        """Of ddp: see model_sizes.shared_buckets."""
        if not self.shares_update:
            return {}
        rows = self.rows_for(gpus) is not None
        return shared_buckets(self.averaged_sizes, self.bucket_mb, rows, gpus)

    def received_bytes(self, gpus: int) -> int:
        """Of ddp by copies: where gradients come to, of shared buckets each in a place of its own,
        of the others one after the other in one."""
        tensors = self.averaged_sizes.tensors(self.rows_for(gpus) is not None)
        shared, every = self.shared_buckets(gpus), buckets(tensors, self.bucket_mb)
        largest = max((size for size, index in every if index not in shared), default=0)
        return self.reduce_bytes * sum(shared.values()) + largest


@dataclass
class Replay:
    """A clock of one GPU, in ms since the step began."""

    slowdown: float
    now: float = 0.0
    exposed: float = 0.0  # waits for collectives
    free_at: dict[Place, float] = field(default_factory=lambda: {"link": 0.0, "network": 0.0})
    sent: list[Cost] = field(default_factory=list)

    def compute(self, ms: float) -> None:
        """All collectives that were begun before have no gap between them."""
        beside = max(0.0, max(self.free_at.values()) - self.now)
        slow = min(ms, beside / (1 + self.slowdown))  # of the work, what runs beside them
        self.now += ms + slow * self.slowdown

    def send(self, cost: Cost, queue: Place = "link", after: float = 0.0) -> float:
        """Begins when it is its turn, and not before `after`; returns when it ends."""
        self.free_at[queue] = max(self.now, self.free_at[queue], after) + cost.ms
        self.sent.append(cost)
        return self.free_at[queue]

    def pause(self, ms: float) -> None:
        self.now += ms

    def wait(self, until: float) -> None:
        self.exposed += max(0.0, until - self.now)
        self.now = max(self.now, until)

    def wait_for_all(self) -> None:
        self.wait(max(self.free_at.values()))


@dataclass(frozen=True)
class Piece:
    """Of backward, and the gradients that are complete behind it."""

    ms: float
    gradients: tuple[int, ...]  # numbers of parameters
    in_buckets: bool = False  # nothing is copied


def backward_pieces(work: Work, rows: bool) -> Iterator[Piece]:
    """Head, blocks from the last, embedding. Where its `rows` travel, the head's gradient is the
    table's, and the embedding has no dense one; else autograd adds the two outside of buckets."""
    parts, sizes = work.parts, work.averaged_sizes
    behind_ms = parts.backward_ms - parts.head_backward_ms - sizes.blocks * parts.block_backward_ms
    block = Piece(parts.block_backward_ms, sizes.block, work.in_buckets)
    if rows:
        yield Piece(parts.head_backward_ms, (sizes.table, *sizes.head), work.in_buckets)
        yield from [block] * sizes.blocks
        yield Piece(max(0.0, behind_ms - (parts.embedding_backward_ms or 0)), sizes.positions)
    else:
        yield Piece(parts.head_backward_ms, sizes.head)
        yield from [block] * sizes.blocks
        yield Piece(behind_ms, (*sizes.positions, sizes.table))


def replay_ddp(work: Work, links: Links, gpus: int) -> Replay:
    """All buckets are waited for behind backward, and behind them the embedding's rows, which are
    added then."""
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
    """Backward. A bucket leaves when its gradients are complete; returns when all are averaged."""
    rows = work.rows_for(gpus) is not None
    by_copies = work.all_reduce(gpus, links.gpus_per_node) == "copies"
    tensors, shared = work.averaged_sizes.tensors(rows), work.shared_buckets(gpus)
    complete = {index: size for size, index in buckets(tensors, work.bucket_mb)}
    done = 0
    for piece in backward_pieces(work, rows):
        # each gradient is copied into its bucket: read and written
        copied = 0 if piece.in_buckets else 2 * FLOAT32_BYTES * sum(piece.gradients)
        replay.compute(piece.ms + work.copy_ms(copied))
        for index in range(done, done + len(piece.gradients)):
            if index in complete:
                # a kernel averages: it reads a part from each rank, and writes one
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
    """What is in no product leaves at once; beside it the squares of a part are summed."""
    left = work.sizes.parameters - work.averaged_sizes.parameters
    replay.send(links.all_reduce(FLOAT32_BYTES * left, gpus))
    squares_ms, shared = work.parts.squares_ms or 0.0, sum(work.shared_buckets(gpus).values())
    replay.compute(part_ms(squares_ms, work, links, gpus, shared))


def update_shared(replay: Replay, work: Work, links: Links, gpus: int) -> None:
    """This GPU's part, whose copies travel while the rest is updated."""
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
    """Of a kernel that takes `every_ms` for all weights: for this GPU's part of so many, of which
    it reads the gradients as they were sent. By copies each GPU's are there, their mean is not."""
    by_copies = work.all_reduce(gpus, links.gpus_per_node) == "copies"
    read = work.reduce_bytes * (gpus if by_copies else 1) - FLOAT32_BYTES  # beyond the captured
    part = parameters / gpus
    return max(0.0, every_ms * part / work.sizes.parameters + work.copy_ms(read * part))


def shared_share(work: Work, gpus: int) -> float:
    """Of all parameters, those that the GPUs update in parts."""
    return sum(work.shared_buckets(gpus).values()) / work.sizes.parameters


def replay_sharded(work: Work, links: Links, gpus: int, shards: int) -> Replay:
    """`shards` ranks share a copy of the model, and gpus / shards such groups average theirs."""
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
    """The passes of fsdp and hsdp: a stretch is gathered while the one before it computes."""

    work: Work
    links: Links
    gpus: int
    shards: int
    replay: Replay

    def forward(self, gathers: bool) -> None:
        """Embedding, last norm and head are gathered first, in float32, and stay."""
        sizes, parts = self.work.sizes, self.work.parts
        if gathers:
            self.replay.wait(self.gather(FLOAT32_BYTES * sizes.root_parameters))
        stretches = [(len(stretch), gathers) for stretch in sizes.travel.stretches]
        self.run_stretches(stretches, parts.block_forward_ms)
        self.replay.compute(parts.forward_ms - sizes.blocks * parts.block_forward_ms)

    def backward(self, gathers: bool, reduces: bool) -> None:
        """The last stretch of forward comes first, which was not given up."""
        sizes, parts = self.work.sizes, self.work.parts
        self.replay.compute(parts.head_backward_ms)
        last, *others = (len(each) for each in reversed(sizes.travel.stretches))
        stretches = [(last, False), *((blocks, gathers) for blocks in others)]
        self.run_stretches(stretches, parts.block_backward_ms, reduces)
        behind = parts.backward_ms - parts.head_backward_ms
        self.replay.compute(behind - sizes.blocks * parts.block_backward_ms)
        if reduces:
            self.reduce(sizes.root_parameters)

    def run_stretches(
        self, stretches: Sequence[tuple[int, bool]], block_ms: float, reduces: bool = False
    ) -> None:
        """`stretches`: of each its blocks, and whether their weights have to be gathered."""
        sizes, block_bytes = self.work.sizes, self.work.sizes.block_bytes
        gathered = [blocks * block_bytes * gathers for blocks, gathers in stretches]
        arrived_at = self.gather(gathered[0])
        for (blocks, _), size, after in zip(stretches, gathered, [*gathered[1:], 0], strict=True):
            self.replay.wait(arrived_at)
            arrived_at = self.gather(after)
            # out of the gathered buffer
            self.replay.compute(blocks * block_ms + self.work.copy_ms(2 * size))
            if reduces:
                self.reduce(blocks * sizes.block_parameters)

    def gather(self, size: float) -> float:
        """Returns when all is there."""
        return self.replay.send(self.links.gather(size, self.shards)) if size else self.replay.now

    def reduce(self, parameters: int) -> None:
        """A reduce-scatter in float32; its shares are averaged among the groups."""
        size = FLOAT32_BYTES * parameters
        self.replay.compute(self.work.copy_ms(2 * size))  # into the buffer that leaves
        scattered = self.replay.send(self.links.gather(size, self.shards))
        groups = self.gpus // self.shards
        if groups > 1:
            cost = self.links.between_nodes().all_reduce(size / self.shards, groups)
            self.replay.send(cost, "network", after=scattered)
