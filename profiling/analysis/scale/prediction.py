"""Prediction of a step on more GPUs in each mode, and the choice between the modes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from configs.optimizers import OPTIMIZERS
from configs.sharing import SHARDED
from profiling.analysis.scale.links import SPEEDS, Cost, Links, Speed
from profiling.analysis.scale.model_sizes import ModelSizes, buckets
from profiling.analysis.scale.replay import Replay, Work, replay_ddp, replay_sharded
from profiling.analysis.scale.scale_records import (
    Choice,
    GpuMemory,
    HostTime,
    Limit,
    LinkSpeed,
    Mode,
    ModelFacts,
    Prediction,
)
from profiling.shared.memory_sizes import STATE, fits, gathered_bytes, state_of
from profiling.shared.units import milliseconds, size_bytes

MODES: tuple[Mode, ...] = ("ddp", "fsdp", "hsdp")
EXPOSED_PERCENT = 1.0  # of a step; below it communication is no limit
# steps of several GPUs at their power limits took up to so much longer than replayed: five on two
# H200s, four on two and four H100s (docs/scale.md); why is not known, so only the range has it
LONGER_PERCENT = 4.0
CLEARLY_PERCENT = 5.0  # how much faster a mode without ddp's CUDA graphs has to be, to be chosen


@dataclass(frozen=True)
class Machine:
    """GPUs, links and host of a prediction. `link` or `network` is None where nothing uses it."""

    gpus_per_node: int
    link: LinkSpeed | None
    network: LinkSpeed | None
    host: HostTime
    memory_bytes: int | None  # of a GPU

    def links(self, level: Speed) -> Links:
        link, network = (
            speed_of(speed, level) if speed else 1.0 for speed in (self.link, self.network)
        )
        return Links(self.gpus_per_node, link, network)

    def host_ms(self, mode: Mode, level: Speed) -> float:
        """Time in ms in which the host launches a step; 0 with ddp, which replays CUDA graphs."""
        if mode not in SHARDED:
            return 0.0
        return self.host.low_step_ms if level == "high" else self.host.step_ms


def speed_of(speed: LinkSpeed, level: Speed) -> float:
    return {"middle": speed.gb_per_s, "low": speed.low_gb_per_s, "high": speed.high_gb_per_s}[level]


def predictions(
    work: Work,
    machine: Machine,
    counts: Sequence[int],
    modes: Sequence[Mode],
    tokens: int,
    activations: int | None,
) -> list[Prediction]:
    """Predict a step for each number of GPUs and, within it, for each possible mode.

    `tokens` is per GPU and step, `activations` in bytes, or None where not measured.
    """
    return [
        prediction(work, machine, gpus, mode, tokens, activations)
        for gpus in counts
        for mode in modes_for(gpus, machine.gpus_per_node, modes)
    ]


def modes_for(gpus: int, gpus_per_node: int, modes: Sequence[Mode]) -> list[Mode]:
    """Modes that are possible on `gpus` GPUs.

    hsdp shards within a node, so it needs several nodes with several GPUs each; otherwise it is
    left out without a replacement.
    """
    if gpus == 1:
        return ["one"]
    several_nodes = 1 < gpus_per_node < gpus
    return [mode for mode in modes if mode != "hsdp" or several_nodes]


def prediction(
    work: Work, machine: Machine, gpus: int, mode: Mode, tokens: int, activations: int | None
) -> Prediction:
    replays = replays_by_speed(work, machine, gpus, mode)
    step_ms = {level: max(replays[level].now, machine.host_ms(mode, level)) for level in SPEEDS}
    middle = replays["middle"]
    shared_by = shards(mode, gpus, machine)
    memory = memory_of(work.sizes, mode, shared_by, work.parts.micro_steps, work.optimizer)
    memory = replace(memory, activations=activations)
    all_reduce = work.all_reduce(gpus, machine.gpus_per_node) if mode == "ddp" else None
    if all_reduce == "copies":
        memory = replace(memory, gathered=work.received_bytes(gpus))
    # without activations it can only be known not to fit
    most = None if memory.activations is None else memory.known
    local = min(gpus, machine.gpus_per_node)
    return Prediction(
        gpus=gpus,
        nodes=gpus // local,
        mode=mode,
        step_ms=step_ms["middle"],
        fastest_ms=step_ms["high"],
        slowest_ms=step_ms["low"],
        tokens_per_s=gpus * tokens / step_ms["middle"] * 1e3,
        efficiency_percent=100 * work.parts.step_ms / step_ms["middle"],
        exposed_ms=middle.exposed,
        communication_ms=sum(cost.ms for cost in middle.sent),
        sent_bytes=round(sum(cost.bytes_sent for cost in middle.sent)),
        limited_by="host" if step_ms["middle"] > middle.now else limit(middle),
        memory=memory,
        fits=fits(memory.known, most, machine.memory_bytes),
        all_reduce=all_reduce,
        embedding_rows=mode == "ddp" and work.rows_for(gpus) is not None,
        shard_update=mode == "ddp" and work.shares_update,
        reduce_dtype=work.reduce_dtype if mode == "ddp" and work.shares_update else None,
    )


def replays_by_speed(work: Work, machine: Machine, gpus: int, mode: Mode) -> dict[Speed, Replay]:
    """Replay the step over links of each speed; over slow ones it takes LONGER_PERCENT longer."""
    replays = {level: replay_mode(work, machine.links(level), gpus, mode) for level in SPEEDS}
    if gpus > 1:
        replays["low"].now *= 1 + LONGER_PERCENT / 100
    return replays


def replay_mode(work: Work, links: Links, gpus: int, mode: Mode) -> Replay:
    """Replay the step in one mode; on one GPU it is the measured step."""
    if mode == "one":
        return Replay(0.0, now=work.parts.step_ms)
    if mode == "ddp":
        return replay_ddp(work, links, gpus)
    return replay_sharded(work, links, gpus, links.gpus_per_node if mode == "hsdp" else gpus)


def shards(mode: Mode, gpus: int, machine: Machine) -> int:
    """Number of ranks that share one copy of the model."""
    return {"fsdp": gpus, "hsdp": machine.gpus_per_node}.get(mode, 1)


def limit(replay: Replay) -> Limit:
    """Limit of a replayed step, as in records.Limit; the host is not considered here."""
    if replay.exposed < EXPOSED_PERCENT / 100 * replay.now:
        return "compute"

    def spent(costs: Sequence[Cost]) -> float:
        return sum(cost.ms - cost.latency_ms for cost in costs)

    if sum(cost.latency_ms for cost in replay.sent) > spent(replay.sent):
        return "latency"
    network = [cost for cost in replay.sent if cost.slower == "network"]
    return "network" if 2 * spent(network) > spent(replay.sent) else "link"


def memory_of(
    sizes: ModelSizes, mode: Mode, shards: int, micro_steps: int, optimizer: str = "adamw"
) -> GpuMemory:
    """Bytes on each GPU in float32, of the whole model or of one of `shards` shares.

    Gradients stay whole between micro-steps. Activations are left unknown.
    """
    gathered = 0
    if mode in SHARDED:
        gathered = gathered_bytes(
            sizes.root_parameters,
            sizes.block_parameters,
            sizes.travel_bytes,
            sizes.travel.blocks_held,
            sizes.travel.longest,
        )
    matrices = sizes.blocks * sum(sizes.matrices)
    moments = OPTIMIZERS[optimizer].moments_of(matrices, sizes.parameters - matrices)
    whole = state_of(sizes.parameters, moments)
    state = whole.shared(shards, STATE if micro_steps == 1 else ("weights", "moments"))
    return GpuMemory(state.weights, state.gradients, state.moments, gathered, activations=None)


def choices(rows: Sequence[Prediction]) -> list[Choice]:
    """Choose a mode for each number of GPUs: ddp if it fits and no other is clearly faster."""
    picked = []
    for gpus in dict.fromkeys(row.gpus for row in rows):
        of_count = [row for row in rows if row.gpus == gpus]
        fitting = [row for row in of_count if row.fits is not False]
        best = min(fitting or of_count, key=lambda row: row.step_ms * preference(row))
        picked.append(Choice(gpus, best.mode, why(best, of_count)))
    return picked


def preference(row: Prediction) -> float:
    """Factor on the step's time that makes other modes prove clearly faster than ddp."""
    return 1.0 if row.mode in ("one", "ddp") else 1 + CLEARLY_PERCENT / 100


def why(best: Prediction, rows: Sequence[Prediction]) -> str:
    if best.fits is False:
        return "no mode fits in memory; use a smaller batch or activation_checkpointing=full"
    if best.mode == "one":
        return "sends nothing"
    others = [row for row in rows if row is not best]
    reason = "keeps CUDA graphs" if best.mode == "ddp" else "the fastest"
    return "; ".join([reason, *map(other_mode_text, others)])


def other_mode_text(other: Prediction) -> str:
    if other.fits is False:
        return f"{other.mode} does not fit, {size_bytes(other.memory.known)}"
    return f"{other.mode} would take {milliseconds(other.step_ms)} ms"


def model_facts(work: Work) -> ModelFacts:
    sizes = work.sizes
    last, last_with_rows = (
        buckets(work.averaged_sizes.tensors(rows), work.bucket_mb)[-1][0] for rows in (False, True)
    )
    return ModelFacts(sizes.parameters, sizes.blocks, sizes.block_parameters, last, last_with_rows)
