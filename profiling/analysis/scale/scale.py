"""Prediction for many GPUs from a capture of one. Called by the verb scale."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from configs.optimizers import OPTIMIZERS
from configs.sharing import EVEN, SHARDED, misfit, needed_in_16_bits
from profiling.analysis.open_report import Capture
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.scale import links
from profiling.analysis.scale.model_sizes import (
    Keys,
    ModelSizes,
    keys_of,
    model_of,
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
from profiling.analysis.scale.replay import Work
from profiling.analysis.scale.scale_records import (
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
from profiling.analysis.scale.step_parts import step_parts
from profiling.shared.gpu_clock import GpuClock
from profiling.shared.hardware import peak_bytes_per_s
from profiling.shared.memory_sizes import FLOAT32_BYTES
from profiling.shared.units import whole_percent

COPY_SHARE = 0.63  # share of the memory's bandwidth that copies of gradients reached on an H200
# slowdown of compute beside NCCL's collectives: 1.7 ms of them made a backward pass 0.8 to 0.9 ms
# longer, so that it got half as much done (124M on two H200s, docs/scale.md)
SLOWDOWN_PERCENT = 100.0
# slowdown beside copies: the middle of the 4 to 9 % by which matrix products of 12,288 rows took
# longer on two H200s
COPIES_SLOWDOWN_PERCENT = 6.5
# gap between two pieces of a CUDA graph: 0.1 ms in all between the 14 pieces of 124M's backward, in
# a capture of two H200s (docs/scale.md)
PAUSE_MS = 0.1 / 13
# host time of fsdp without CUDA graphs: 124M, 12 blocks, took 73.4 ms on four H200s when each block
# travelled by itself, and 37.6 ms on two in two stretches. The weights outside of the blocks travel
# as one more stretch, so 12 x + 13 y = 73.4 and 12 x + 3 y = 37.6. That the host took all of this
# time is an inference; no capture shows it.
HOST_MS_PER_BLOCK, HOST_MS_PER_STRETCH = 2.24, 3.58
LEAST_HIDDEN = 0.01  # share of a step that has to be hidden to measure a slowdown


@dataclass(frozen=True)
class Request:
    """Options of the user; None: to be measured or assumed."""

    counts: tuple[int, ...]
    gpus_per_node: int
    modes: tuple[Mode, ...] = MODES
    micro_steps: int | None = None
    link: LinkSpeed | None = None
    network: LinkSpeed | None = None
    slowdown_percent: float | None = None
    host_step_ms: float | None = None  # for fsdp and hsdp
    all_reduce: AllReduce = "collective"  # for ddp
    shard_update: bool = False  # for ddp
    reduce_dtype: ReduceDtype = "float32"  # for shard_update


def scale(
    capture: Capture,
    request: Request,
    ranks: RanksReport | None = None,
    peak_bytes: int | None = None,
) -> Scale:
    """Predict the captured step on the requested numbers of GPUs.

    `ranks` is a report whose collectives measure the links. `peak_bytes` is the most memory that
    the measured run used. Raises ValueError naming what is missing.
    """
    manifest, report = capture.manifest, capture.plain_report
    keys = keys_of(manifest, capture.trace.file)
    assert manifest is not None  # or keys_of would have raised
    model = model_of(manifest, capture.trace.file)
    gpu = report.capture.gpu
    sizes = sizes_of(model, keys.dtype, gpu.memory_bytes if gpu else None)
    parts = with_micro_steps(step_parts(capture, sizes), request.micro_steps)
    check_keys(request, replace(keys, gradient_accumulation_steps=parts.micro_steps))
    machine = machine_of(
        request,
        gpu.name if gpu else None,
        ranks,
        host_time(request, sizes, parts.micro_steps),
        gpu.memory_bytes if gpu else None,
    )
    memory_speed = peak_bytes_per_s(gpu.name) if gpu else None
    copies = memory_speed * COPY_SHARE / 1e3 if memory_speed else None
    slowdown = slowdown_of(request, ranks)
    beside_copies = slowdown_beside_copies(request)
    work = Work(
        parts,
        sizes,
        keys.bucket_mb,
        slowdown.percent / 100,
        copies,
        averages=request.all_reduce,
        copies_slowdown=beside_copies.percent / 100 if beside_copies else 0.0,
        rows=rows_of(keys, model),
        in_buckets=keys.gradients_in_buckets,
        optimizer=keys.optimizer,
        shares_update=request.shard_update,
        reduce_dtype=request.reduce_dtype,
        pause_ms=PAUSE_MS if keys.replays_graphs else 0.0,
    )
    if request.shard_update:
        check_shared(work, request.counts)
    tokens = keys.batch_size * keys.block_size * parts.micro_steps
    activations = None
    if peak_bytes is not None:
        activations = max(0, peak_bytes - 4 * FLOAT32_BYTES * sizes.parameters)
    modes = possible_modes(request, keys)
    rows = predictions(work, machine, request.counts, modes, tokens, activations)
    return Scale(
        SCHEMA_VERSION,
        file=capture.trace.file.name,
        gpu=gpu.name if gpu else None,
        memory_bytes=machine.memory_bytes,
        gpus_per_node=request.gpus_per_node,
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
    """Replace the number of micro-steps on each GPU; each takes as long as the measured ones."""
    if micro_steps is None or micro_steps == parts.micro_steps:
        return parts
    step_ms = parts.rest_ms + micro_steps * (parts.forward_ms + parts.backward_ms)
    return replace(parts, step_ms=step_ms, micro_steps=micro_steps)


def machine_of(
    request: Request,
    gpu: str | None,
    ranks: RanksReport | None,
    host: HostTime,
    memory_bytes: int | None,
) -> Machine:
    """Machine with link speeds as given, else as measured, else as assumed for the GPU.

    Raises ValueError where a speed is needed and not known.
    """
    most = max(request.counts)
    link = network = None
    if most > 1 and request.gpus_per_node > 1:
        link = request.link
        if link is None and ranks is not None:
            link = links.measured_link(ranks.collectives, request.gpus_per_node, "--links-from")
        link = link or links.known_link(gpu)
        if link is None:
            raise ValueError(
                f"--link: the speed of the links of {gpu or 'this GPU'} is not known; give their "
                "bus bandwidth in GB/s, or captures of several ranks with --links-from"
            )
    if most > request.gpus_per_node:
        network = request.network or links.known_network(gpu)
        if network is None:
            raise ValueError(
                f"--network: the speed of the network of {gpu or 'this GPU'} is not known; give "
                "the GB/s per GPU (50 for 400 Gb/s InfiniBand per GPU)"
            )
    return Machine(request.gpus_per_node, link, network, host, memory_bytes)


def host_time(request: Request, sizes: ModelSizes, micro_steps: int) -> HostTime:
    given = request.host_step_ms
    if given is None:
        return HostTime(host_step_ms(sizes, micro_steps), 0.0, "assumed")
    return HostTime(given, given, "given")


def host_step_ms(sizes: ModelSizes, micro_steps: int) -> float:
    """Assumed host time in ms to launch a step of fsdp or hsdp.

    Weights that are kept travel only once, whatever the number of micro-steps.
    """
    travels = 1 if sizes.travel.kept else micro_steps
    stretches = len(sizes.travel.stretches) + 1  # and what is outside of blocks
    blocks_ms = micro_steps * sizes.blocks * HOST_MS_PER_BLOCK
    return blocks_ms + travels * stretches * HOST_MS_PER_STRETCH


def slowdown_of(request: Request, ranks: RanksReport | None) -> Slowdown:
    """Slowdown beside collectives: as given, else as measured on several ranks, else assumed.

    It is measured as the time that compute lost, relative to what it would have taken alone.
    """
    if request.slowdown_percent is not None:
        return Slowdown(request.slowdown_percent, "given")
    rows = ranks.ranks if ranks else []
    slowed_ms = sum(row.communication.slowed_ms for row in rows)
    # what the compute beside collectives would have taken alone
    done_ms = sum(row.communication.hidden_ms for row in rows) - slowed_ms
    if done_ms <= LEAST_HIDDEN * sum(row.step_ms for row in rows):
        return Slowdown(SLOWDOWN_PERCENT, "assumed")
    return Slowdown(100 * slowed_ms / done_ms, "measured")


def slowdown_beside_copies(request: Request) -> Slowdown | None:
    """Slowdown of compute beside copies; None where nothing is averaged by copies."""
    if request.all_reduce == "collective":
        return None
    if request.slowdown_percent is not None:
        return Slowdown(request.slowdown_percent, "given")
    return Slowdown(COPIES_SLOWDOWN_PERCENT, "assumed")


def assumptions(
    keys: Keys,
    work: Work,
    machine: Machine,
    slowdowns: tuple[Slowdown, Slowdown | None],
    rows: Sequence[Prediction],
    activations: int | None,
) -> list[str]:
    """Lines on everything that was not measured.

    `slowdowns` are those beside collectives and beside copies.
    """
    slowdown, beside_copies = slowdowns
    modes = {row.mode for row in rows}
    lines = ["each GPU has the same batch as the measured GPU, and no rank is late"]
    for speed in (machine.link, machine.network):
        if speed and speed.source == "assumed":
            lines.append(speed.why)
    if slowdown.source == "assumed":
        lines.append(
            f"compute takes {SLOWDOWN_PERCENT:.0f} % longer during a collective, as measured "
            "with NCCL on two H200s (--slowdown)"
        )
    if beside_copies:
        lines.extend(about_copies(beside_copies, rows))
    if "ddp" in modes:
        lines.extend(about_rows(work, rows))
    if any(row.shard_update for row in rows):
        lines.append(about_shared_update(work, rows))
        if work.reduce_dtype != "float32":
            lines.append(about_16_bits(work))
    if work.parts.blocks_from == "arithmetic":
        lines.append(
            "the share of a block in the time of a pass equals its share of the arithmetic"
        )
    if work.copy_bytes_per_ms is None:
        lines.append("copies, means and sums of gradients and gathered weights take no time")
    elif modes - {"one"}:
        lines.append(
            "gradients and gathered weights are copied, averaged and added at "
            f"{whole_percent(COPY_SHARE)} of the memory's speed"
        )
    if "ddp" in modes and work.in_buckets:
        lines.append(
            "kernels=fused writes gradients directly into ddp's buckets: those of blocks, and "
            "the head's if the embedding's gradient is sent as rows. None of these is copied"
        )
    if "ddp" in modes and work.pause_ms:
        lines.append(
            f"CUDA graphs are split where ddp sends data, {work.pause_ms:.3f} ms each time, as "
            "measured between pieces of a backward pass on two H200s"
        )
    if modes & {*SHARDED} and machine.host.source == "assumed":
        lines.append(
            f"fsdp and hsdp have no CUDA graphs: the host takes {HOST_MS_PER_BLOCK} ms per block "
            f"and {HOST_MS_PER_STRETCH} per group of blocks that are sent together, from two "
            "measured steps; at best the GPU never waits for the host (--host-ms)"
        )
    if not OPTIMIZERS[keys.optimizer].elementwise:
        lines.append(f"fsdp and hsdp are left out: they do not support optimizer={keys.optimizer}")
    if modes & {*SHARDED} and keys.kernels == "fused":
        lines.append(
            "fsdp and hsdp are assumed to compute as fast as this run, but they do not support "
            "its kernels=fused"
        )
    if activations is None:
        lines.append("activations were not measured, so it is not known what fits in memory")
    else:
        lines.append("activations take as much memory as in the measured run")
    return lines


def about_clock(clock: GpuClock | None) -> list[str]:
    if clock is None or clock.held_down_by != "power":
        return []
    return [
        f"the GPU's clock stays as it was, {clock.text}. Links draw power too: next to a second "
        "H200 the clock of one was 2 % lower, and two of them at that limit took 3 to 4 % "
        "longer than replayed; the range of several GPUs includes this"
    ]


def about_copies(beside: Slowdown, rows: Sequence[Prediction]) -> list[str]:
    lines = ["all_reduce=copies sends as much data as a collective, at the same speed"]
    if beside.source == "assumed":
        lines.append(
            f"compute takes {beside.percent} % longer during copies, the middle of the 4 to 9 % "
            "measured for matrix products on two H200s (--slowdown)"
        )
    if any(row.all_reduce == "collective" for row in rows):
        lines.append(
            "all_reduce=copies works only within a node: ddp on several nodes averages with "
            "collectives"
        )
    return lines


def about_rows(work: Work, rows: Sequence[Prediction]) -> list[str]:
    """Line on how the tied embedding's gradient travels with ddp."""
    if work.rows is None:
        return ["compile_scope=model: the embedding's gradient is sent dense, not as rows"]
    travelling = [row.gpus for row in rows if row.embedding_rows]
    if not travelling:
        return []
    saved_ms = work.parts.embedding_backward_ms
    if saved_ms is None:
        saved = "the time of the dense gradient in backward is not known, so it is not subtracted"
    else:
        saved = f"the dense gradient, {saved_ms:.2f} ms of backward, is not computed"
    return [
        f"with ddp on up to {max(travelling)} GPUs the embedding's gradient is sent as one row "
        f"per token: {saved}"
    ]


def about_shared_update(work: Work, rows: Sequence[Prediction]) -> str:
    parts = work.parts
    shared = {sum(work.shared_buckets(row.gpus).values()) for row in rows if row.shard_update}
    millions = " to ".join(f"{count / 1e6:.1f}" for count in sorted({min(shared), max(shared)}))
    if parts.squares_ms is None:
        squares = "the time of the norm is not known and counts as part of the update"
    else:
        squares = (
            f"{parts.squares_ms:.2f} ms of this is the norm, which each GPU computes for its part "
            "during communication"
        )
    return (
        f"shard_update=true: with ddp each GPU updates its part of {millions} of "
        f"{work.sizes.parameters / 1e6:.1f} million weights, and its time is proportional to the "
        f"weights: {parts.update_ms:.2f} ms for all; {squares}; the host is assumed to start "
        "each exchange in time, which it does not for a small model"
    )


def about_16_bits(work: Work) -> str:
    return (
        f"reduce_dtype={work.reduce_dtype}: gradients of the weights that GPUs share are sent "
        "and read in 16 bits; matrix products that write 16 bits take as long as those that "
        "write float32"
    )


def check_keys(request: Request, keys: Keys) -> None:
    """Raise ValueError where the trainer would refuse the request; `keys` are those of the step."""
    if request.shard_update and (reason := misfit(keys)):
        raise ValueError(f"--shard-update: {reason}")
    if request.reduce_dtype == "float32":
        return
    if reason := misfit(keys, needed_in_16_bits(ranks=1)):
        raise ValueError(f"--reduce-dtype {request.reduce_dtype}: {reason}")


def possible_modes(request: Request, keys: Keys) -> tuple[Mode, ...]:
    """Requested modes that support the optimizer of the run. Raises ValueError if none does."""
    if OPTIMIZERS[keys.optimizer].elementwise:
        return request.modes
    modes = tuple(mode for mode in request.modes if mode not in SHARDED)
    if not modes:
        raise ValueError(
            f"--parallel {request.modes[0]}: does not support optimizer={keys.optimizer}; "
            "use --parallel ddp"
        )
    return modes


def check_shared(work: Work, counts: Sequence[int]) -> None:
    """Raise ValueError where the update cannot be shared, as the trainer does."""
    if not work.parts.update_ms:
        raise ValueError("--shard-update: the capture has no kernels of the optimizer")
    for gpus in counts:
        if gpus > 1 and not work.shared_buckets(gpus):
            raise ValueError(
                f"--shard-update: not possible for {gpus} GPUs: no bucket of {work.bucket_mb:g} "
                f"MiB contains only blocks and a multiple of {EVEN * gpus} weights"
            )


def checked_counts(counts: Sequence[int], gpus_per_node: int) -> tuple[int, ...]:
    """Numbers of GPUs, ascending, each once.

    Raises ValueError for one that leaves a node partly filled.
    """
    for gpus in counts:
        if gpus > gpus_per_node and gpus % gpus_per_node:
            raise ValueError(
                f"--gpus {gpus}: must be a multiple of --gpus-per-node {gpus_per_node}"
            )
    return tuple(sorted(set(counts)))
