"""From a capture of one GPU to the answer for many. Called by the verb scale."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from profiling.analysis.capture import Capture
from profiling.analysis.ranks.records import RanksReport
from profiling.analysis.scale import links
from profiling.analysis.scale.model_sizes import (
    FLOAT32_BYTES,
    Keys,
    ModelSizes,
    keys_of,
    rows_of,
    sizes_of,
)
from profiling.analysis.scale.prediction import (
    MODES,
    Machine,
    choices,
    model_facts,
    predictions,
)
from profiling.analysis.scale.records import (
    SCHEMA_VERSION,
    AllReduce,
    HostTime,
    LinkSpeed,
    Mode,
    Prediction,
    ReduceDtype,
    Scale,
    Slowdown,
    StepParts,
)
from profiling.analysis.scale.replay import Work
from profiling.analysis.scale.step_parts import step_parts
from profiling.gpu_clock import GpuClock
from profiling.hardware import peak_bytes_per_s
from profiling.shared_update import EVEN, misfit, needed_in_16_bits

COPY_SHARE = 0.63  # of the memory's bandwidth, that copies of gradients reached on an H200
# of compute beside NCCL's collectives: 1.7 ms of them made a backward pass 0.8 to 0.9 ms longer, so
# that it got half as much done (124M on two H200s, docs/scale.md)
SLOWDOWN_PERCENT = 100.0
# and beside copies: the middle of the 4 to 9 that products of 12,288 rows took longer on two H200s
COPIES_SLOWDOWN_PERCENT = 6.5
# between two pieces of a CUDA graph: 0.1 between the 14 of 124M's backward, in a capture of two
# H200s (docs/scale.md)
PAUSE_MS = 0.1 / 13
# of fsdp without CUDA graphs: 124M, 12 blocks, took 73.4 ms on four H200s when each block travelled
# by itself, and 37.6 on two in two stretches. What is outside of the blocks travels once more, so
# 12 x + 13 y = 73.4 and 12 x + 3 y = 37.6. That the host took all of it is concluded; no capture
# shows it.
HOST_MS_PER_BLOCK, HOST_MS_PER_STRETCH = 2.24, 3.58
LEAST_HIDDEN = 0.01  # of a step: less of it tells no slowdown


@dataclass(frozen=True)
class Asked:
    """What the user said; None: to be found out."""

    counts: tuple[int, ...]
    gpus_per_node: int
    modes: tuple[Mode, ...] = MODES
    micro_steps: int | None = None
    link: LinkSpeed | None = None
    network: LinkSpeed | None = None
    slowdown_percent: float | None = None
    host_step_ms: float | None = None  # of fsdp and hsdp
    all_reduce: AllReduce = "collective"  # of ddp
    shard_update: bool = False  # of ddp
    reduce_dtype: ReduceDtype = "float32"  # of shard_update


def scale(
    capture: Capture, asked: Asked, ranks: RanksReport | None = None, peak_bytes: int | None = None
) -> Scale:
    """`ranks`: collectives of several GPUs, for the links. `peak_bytes`: of the measured run.

    Raises ValueError naming what is missing.
    """
    manifest, report = capture.manifest, capture.report
    keys = keys_of(manifest, capture.trace.file)
    assert manifest is not None and manifest.vocab_size is not None  # keys_of has looked
    sizes = sizes_of(keys, manifest.vocab_size)
    parts = with_micro_steps(step_parts(capture, sizes), asked.micro_steps)
    check_keys(asked, replace(keys, gradient_accumulation_steps=parts.micro_steps))
    gpu = report.capture.gpu
    machine = machine_of(
        asked,
        gpu.name if gpu else None,
        ranks,
        host_time(asked, sizes, parts.micro_steps),
        gpu.memory_bytes if gpu else None,
    )
    memory_speed = peak_bytes_per_s(gpu.name) if gpu else None
    copies = memory_speed * COPY_SHARE / 1e3 if memory_speed else None
    slowdown = slowdown_of(asked, ranks)
    beside_copies = slowdown_beside_copies(asked)
    work = Work(
        parts,
        sizes,
        keys.bucket_mb,
        slowdown.percent / 100,
        copies,
        averages=asked.all_reduce,
        copies_slowdown=beside_copies.percent / 100 if beside_copies else 0.0,
        rows=rows_of(keys, manifest.vocab_size),
        in_buckets=keys.gradients_in_buckets,
        shares_update=asked.shard_update,
        reduce_dtype=asked.reduce_dtype,
        pause_ms=PAUSE_MS if keys.replays_graphs else 0.0,
    )
    if asked.shard_update:
        check_shared(work, asked.counts)
    tokens = keys.batch_size * keys.block_size * parts.micro_steps
    activations = None
    if peak_bytes is not None:
        activations = max(0, peak_bytes - 4 * FLOAT32_BYTES * sizes.parameters)
    rows = predictions(work, machine, asked.counts, asked.modes, tokens, activations)
    return Scale(
        SCHEMA_VERSION,
        file=capture.trace.file.name,
        gpu=gpu.name if gpu else None,
        memory_bytes=machine.memory_bytes,
        gpus_per_node=asked.gpus_per_node,
        tokens=tokens,
        bucket_mb=keys.bucket_mb,
        model=model_facts(work),
        measured=parts,
        link=machine.link,
        network=machine.network,
        slowdown=slowdown,
        slowdown_beside_copies=beside_copies,
        host=machine.host,
        predictions=rows,
        choices=choices(rows),
        assumed=[
            *assumptions(keys, work, machine, (slowdown, beside_copies), rows, activations),
            *about_clock(report.run.gpu_clock if report.run else None),
        ],
    )


def with_micro_steps(parts: StepParts, micro_steps: int | None) -> StepParts:
    """So many on each GPU, each like those that were measured."""
    if micro_steps is None or micro_steps == parts.micro_steps:
        return parts
    step_ms = parts.rest_ms + micro_steps * (parts.forward_ms + parts.backward_ms)
    return replace(parts, step_ms=step_ms, micro_steps=micro_steps)


def machine_of(
    asked: Asked,
    gpu: str | None,
    ranks: RanksReport | None,
    host: HostTime,
    memory_bytes: int | None,
) -> Machine:
    """Speeds as given, else as measured, else as assumed of the GPU. Raises ValueError."""
    most = max(asked.counts)
    link = network = None
    if most > 1 and asked.gpus_per_node > 1:
        link = asked.link
        if link is None and ranks is not None:
            link = links.measured_link(ranks.collectives, asked.gpus_per_node, "--links-from")
        link = link or links.known_link(gpu)
        if link is None:
            raise ValueError(
                f"--link: how fast the links of {gpu or 'this GPU'} are is not known; give their "
                "bus bandwidth in GB/s, or --links-from captures of several ranks"
            )
    if most > asked.gpus_per_node:
        network = asked.network or links.known_network(gpu)
        if network is None:
            raise ValueError(
                f"--network: how fast the network of {gpu or 'this GPU'} is is not known; give "
                "GB/s of a GPU (400 Gb/s InfiniBand for each: 50)"
            )
    return Machine(asked.gpus_per_node, link, network, host, memory_bytes)


def host_time(asked: Asked, sizes: ModelSizes, micro_steps: int) -> HostTime:
    given = asked.host_step_ms
    if given is None:
        return HostTime(host_step_ms(sizes, micro_steps), 0.0, "assumed")
    return HostTime(given, given, "given")


def host_step_ms(sizes: ModelSizes, micro_steps: int) -> float:
    """Weights that are kept travel once, whatever the number of micro-steps."""
    travels = 1 if sizes.travel.kept else micro_steps
    stretches = len(sizes.travel.stretches) + 1  # and what is outside of blocks
    blocks_ms = micro_steps * sizes.blocks * HOST_MS_PER_BLOCK
    return blocks_ms + travels * stretches * HOST_MS_PER_STRETCH


def slowdown_of(asked: Asked, ranks: RanksReport | None) -> Slowdown:
    """As given, else by what several ranks' compute lost beside what they hid, else as assumed."""
    if asked.slowdown_percent is not None:
        return Slowdown(asked.slowdown_percent, "given")
    rows = ranks.ranks if ranks else []
    slowed_ms = sum(row.communication.slowed_ms for row in rows)
    done_ms = sum(row.communication.hidden_ms for row in rows) - slowed_ms  # as if alone
    if done_ms <= LEAST_HIDDEN * sum(row.step_ms for row in rows):
        return Slowdown(SLOWDOWN_PERCENT, "assumed")
    return Slowdown(100 * slowed_ms / done_ms, "measured")


def slowdown_beside_copies(asked: Asked) -> Slowdown | None:
    """None: nothing is averaged by copies."""
    if asked.all_reduce == "collective":
        return None
    if asked.slowdown_percent is not None:
        return Slowdown(asked.slowdown_percent, "given")
    return Slowdown(COPIES_SLOWDOWN_PERCENT, "assumed")


def assumptions(
    keys: Keys,
    work: Work,
    machine: Machine,
    slowdowns: tuple[Slowdown, Slowdown | None],
    rows: Sequence[Prediction],
    activations: int | None,
) -> list[str]:
    """All that was not measured, in words. `slowdowns`: beside collectives, and beside copies."""
    slowdown, beside_copies = slowdowns
    modes = {row.mode for row in rows}
    found = ["each GPU has the batch of the one that was measured, and no rank is late"]
    for speed in (machine.link, machine.network):
        if speed and speed.source == "assumed":
            found.append(speed.why)
    if slowdown.source == "assumed":
        found.append(
            f"compute is {SLOWDOWN_PERCENT:.0f} % longer beside a collective, as it was beside "
            "NCCL's on two H200s (--slowdown)"
        )
    if beside_copies:
        found.extend(about_copies(beside_copies, rows))
    if "ddp" in modes:
        found.extend(about_rows(work, rows))
    if any(row.shard_update for row in rows):
        found.append(about_shared_update(work, rows))
        if work.reduce_dtype != "float32":
            found.append(about_16_bits(work))
    if work.parts.blocks_from == "arithmetic":
        found.append("a block's share of a pass is its share of the arithmetic")
    if work.copy_bytes_per_ms is None:
        found.append("copies, means and sums of gradients and gathered weights take no time")
    elif modes - {"one"}:
        found.append(
            "gradients and gathered weights are copied, averaged and added at "
            f"{COPY_SHARE:.0%} of the memory's speed"
        )
    if "ddp" in modes and work.in_buckets:
        found.append(
            "kernels=fused makes gradients in ddp's buckets, those of blocks, and the head's where "
            "the embedding's travels as rows: none of these is copied there"
        )
    if "ddp" in modes and work.pause_ms:
        found.append(
            f"CUDA graphs are cut where ddp sends something, {work.pause_ms:.3f} ms each time, as "
            "measured between pieces of a backward pass on two H200s"
        )
    if modes & {"fsdp", "hsdp"} and machine.host.source == "assumed":
        found.append(
            f"fsdp and hsdp have no CUDA graphs: the host takes {HOST_MS_PER_BLOCK} ms a block and "
            f"{HOST_MS_PER_STRETCH} for each stretch of blocks that travel together, by two steps "
            "that were measured, and at best it is never waited for (--host-ms)"
        )
    if modes & {"fsdp", "hsdp"} and keys.kernels == "fused":
        found.append("fsdp and hsdp compute as fast as this run, but refuse its kernels=fused")
    if activations is None:
        found.append("activations: not measured, so what fits is not known")
    else:
        found.append("activations are those of the measured run")
    return found


def about_clock(clock: GpuClock | None) -> list[str]:
    if clock is None or clock.held_down_by != "power":
        return []
    return [
        f"the GPU's clock stays as it was, {clock.text}; links draw power too, beside another one "
        "an H200's was 2 % lower, and two of them at that limit took 3 to 4 % longer than predicted"
    ]


def about_copies(beside: Slowdown, rows: Sequence[Prediction]) -> list[str]:
    found = ["all_reduce=copies sends as much as a collective, as fast"]
    if beside.source == "assumed":
        found.append(
            f"compute is {beside.percent} % longer beside copies, the middle of the 4 to 9 % that "
            "products took longer on two H200s (--slowdown)"
        )
    if any(row.all_reduce == "collective" for row in rows):
        found.append("copies are for the GPUs of one node: ddp of several averages by collectives")
    return found


def about_rows(work: Work, rows: Sequence[Prediction]) -> list[str]:
    """Of the tied embedding's gradient, with ddp."""
    if work.rows is None:
        return ["compile_scope=model: the embedding's gradient is dense, its rows do not travel"]
    travelling = [row.gpus for row in rows if row.embedding_rows]
    if not travelling:
        return []
    saved_ms = work.parts.embedding_backward_ms
    if saved_ms is None:
        saved = "what its dense one takes of backward is not known, and stays"
    else:
        saved = f"its dense one, {saved_ms:.2f} ms of backward, is not made"
    return [
        f"with ddp of up to {max(travelling)} GPUs the embedding's gradient travels as a row for "
        f"each token: {saved}"
    ]


def about_shared_update(work: Work, rows: Sequence[Prediction]) -> str:
    parts = work.parts
    shared = {sum(work.shared_buckets(row.gpus).values()) for row in rows if row.shard_update}
    millions = " to ".join(f"{count / 1e6:.1f}" for count in sorted({min(shared), max(shared)}))
    if parts.squares_ms is None:
        squares = "what the norm takes of it is not known, and counts as the update itself"
    else:
        squares = f"{parts.squares_ms:.2f} ms of it are the norm's, their part beside what travels"
    return (
        f"shard_update=true: with ddp each GPU updates its part of {millions} of "
        f"{work.sizes.parameters / 1e6:.1f} million weights, and the time is by weights, of "
        f"{parts.update_ms:.2f} ms for all; {squares}; the host begins each exchange in time, "
        "which it does not where a model is small"
    )


def about_16_bits(work: Work) -> str:
    return (
        f"reduce_dtype={work.reduce_dtype}: gradients of the weights that GPUs share are sent and "
        "read in 16 bits; products that leave them so take as long as those that left float32"
    )


def check_keys(asked: Asked, keys: Keys) -> None:
    """Raises ValueError where the trainer refuses what was asked for. `keys`: of this step."""
    if asked.shard_update and (reason := misfit(keys)):
        raise ValueError(f"--shard-update: {reason}")
    if asked.reduce_dtype == "float32":
        return
    if reason := misfit(keys, needed_in_16_bits(ranks=1)):
        raise ValueError(f"--reduce-dtype {asked.reduce_dtype}: {reason}")


def check_shared(work: Work, counts: Sequence[int]) -> None:
    """Raises ValueError where the update cannot be shared, as the trainer does."""
    if not work.parts.update_ms:
        raise ValueError("--shard-update: the capture has no kernels of the optimizer")
    for gpus in counts:
        if gpus > 1 and not work.shared_buckets(gpus):
            raise ValueError(
                f"--shard-update: not for {gpus} GPUs: of buckets of {work.bucket_mb:g} MiB none "
                f"is of blocks alone and of a multiple of {EVEN * gpus} weights"
            )


def checked_counts(counts: Sequence[int], gpus_per_node: int) -> tuple[int, ...]:
    """Ascending, each once. Raises ValueError for what does not fill its nodes."""
    for gpus in counts:
        if gpus > gpus_per_node and gpus % gpus_per_node:
            raise ValueError(f"--gpus {gpus}: no multiple of --gpus-per-node {gpus_per_node}")
    return tuple(sorted(set(counts)))
