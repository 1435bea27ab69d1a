"""Steps of the trainer on several GPUs: as `scale` predicts them, beside as they were measured.

    python -m validation predicted [step_ms=MS]

Prints these two tables of docs/scale.md, as Markdown. The steps are records: nothing is run.
"""

from dataclasses import dataclass, replace

from benchmarks.measuring import Keys, key
from profiling.analysis.scale.links import Speed, known_link, known_network
from profiling.analysis.scale.model_sizes import Keys as ModelKeys
from profiling.analysis.scale.model_sizes import rows_of, sizes_of
from profiling.analysis.scale.prediction import MODES, Machine, predictions, replays_by_speed
from profiling.analysis.scale.replay import Work
from profiling.analysis.scale.scale import (
    COPIES_SLOWDOWN_PERCENT,
    COPY_SHARE,
    PAUSE_MS,
    SLOWDOWN_PERCENT,
    with_micro_steps,
)
from profiling.analysis.scale.scale_records import (
    AllReduce,
    HostTime,
    Mode,
    Prediction,
    ReduceDtype,
    StepParts,
)
from profiling.shared.hardware import peak_bytes_per_s
from profiling.shared.model_description import GPT2Keys, ModelDescription, gpt2

GPU = "NVIDIA H200"
GPT2_124M = ModelKeys(block_size=1024, batch_size=12)
COUNTS = (1, 2, 4, 8, 64, 1024)
# shares of a step of 124M on one H200 (2026-11-21); what is left is the update
FORWARD, BACKWARD = 0.31, 0.63
EMBEDDING_MS = 0.36  # in that backward: dense gradient of 12,288 tokens and 50,257 ids
FUSED_UPDATE_MS = 1.04  # AdamW of 124M with kernels=fused, in a capture (docs/optimisation.md)
AT_ONCE = 1e5  # bucket_mb above any model's size


@dataclass
class PredictedConfig(Keys):
    step_ms: float = key(27.3, "of 124M on one GPU, one micro-step of 12 x 1,024 tokens", least=0.1)


@dataclass(frozen=True)
class Step:
    """A measured step of ddp on H200s of one host, and the step on one of them."""

    what: str
    keys: ModelKeys
    model: ModelDescription
    alone_ms: float
    gpus: int
    measured_ms: float
    copies: int = 1  # of each gradient: 1 into its bucket, 2 also out of it
    rows: bool = False  # the embedding's gradient travels as rows
    all_reduce: AllReduce = "collective"
    shard_update: bool = False
    reduce_dtype: ReduceDtype = "float32"


def of_124m(vocabulary: int) -> ModelDescription:
    return gpt2(GPT2Keys(n_layer=12, n_head=12, n_embd=768, block_size=1024), vocabulary)


def in_one_bucket(keys: ModelKeys) -> ModelKeys:
    return replace(keys, bucket_mb=AT_ONCE)


CHAR = ModelKeys(block_size=256, batch_size=64)
CHAR_65 = gpt2(GPT2Keys(n_layer=6, n_head=6, n_embd=384, block_size=256), 65)
FEW, ALL, PADDED = map(of_124m, (2_048, 50_257, 50_304))
BUCKETS, AT_END = "buckets behind backward", "one all-reduce behind backward"
SMALL, WHOLE = "124M, 2,048 tokens", "124M, 50,257 tokens"
FUSED = replace(GPT2_124M, kernels="fused", compile=False, residual_dtype="bfloat16")
COPIED = replace(FUSED, kernels="compiled")  # before products wrote gradients into their buckets
BY_COPIES = Step(
    f"{WHOLE}, rows, copies, written into buckets",
    FUSED,
    ALL,
    20.86,
    2,
    21.86,
    rows=True,
    all_reduce="copies",
)
SHARED = replace(
    BY_COPIES,
    what=f"{WHOLE}, rows, copies, a shared update",
    keys=replace(FUSED, bucket_mb=50.0),
    shard_update=True,
)
NANOGPT = replace(GPT2_124M, cuda_graphs="false")
# 2026-11-23, from line to line at the power limit; the last three against the slower GPU alone
AT_POWER_LIMIT = (
    replace(BY_COPIES, alone_ms=21.52, measured_ms=22.64),
    replace(SHARED, alone_ms=20.96, measured_ms=21.60),
    replace(SHARED, alone_ms=21.19, measured_ms=21.73),
    replace(SHARED, alone_ms=21.25, measured_ms=21.935),
    replace(
        SHARED,
        what=f"{SHARED.what}, gradients in 16 bits",
        alone_ms=21.25,
        measured_ms=21.765,
        reduce_dtype="bfloat16",
    ),
)
# 2026-11-22, torch 2.11, CUDA graphs; the first four 2026-11-21
MEASURED = (
    Step(f"{SMALL}, {AT_END}", in_one_bucket(GPT2_124M), FEW, 20.4, 2, 22.9, copies=2),
    Step(f"{SMALL}, {AT_END}", in_one_bucket(GPT2_124M), FEW, 20.4, 4, 23.1, copies=2),
    Step(f"`shakespeare_char`, {AT_END}", in_one_bucket(CHAR), CHAR_65, 5.40, 4, 5.71, copies=2),
    Step("nanoGPT, 124M, 50,304 tokens, its DDP", NANOGPT, PADDED, 29.0, 4, 30.4, copies=2),
    Step(f"{SMALL}, {BUCKETS}", GPT2_124M, FEW, 20.56, 2, 22.21),
    Step(f"{WHOLE}, {BUCKETS}", GPT2_124M, ALL, 21.65, 2, 24.10),
    Step(f"{WHOLE}, {BUCKETS}", GPT2_124M, ALL, 22.10, 4, 24.67),
    Step(f"{WHOLE}, rows", COPIED, ALL, 20.92, 2, 22.85, rows=True),
    Step(f"{WHOLE}, rows, copies", COPIED, ALL, 20.92, 2, 21.94, rows=True, all_reduce="copies"),
    BY_COPIES,
    *AT_POWER_LIMIT,
)


def main(config: PredictedConfig) -> None:
    print("| from one H200 | GPUs | measured | predicted | off | with no slowdown |")
    print("|---|---|---|---|---|---|")
    for step in MEASURED:
        print(comparison_row(step))
    print("\n| GPUs | ddp, ms | kept | sent by each GPU | exposed ", end="")
    print("| five micro-steps, kept | fsdp at best, ms | hsdp at best, ms |\n" + "|---" * 8 + "|")
    one, five = (on_more_gpus(config.step_ms, micro_steps) for micro_steps in (1, 5))
    for gpus in COUNTS:
        print(prediction_row(by_mode(one, gpus), by_mode(five, gpus)))


def comparison_row(step: Step) -> str:
    """Row of the first table: the step as measured and as predicted."""
    ms, plain = predicted_ms(step), predicted_ms(step, slowed=False)["middle"]
    off = 100 * (ms["middle"] / step.measured_ms - 1)
    took = f"{step.alone_ms:.2f} -> {step.measured_ms:.2f} ms"
    predicted = f"{ms['middle']:.2f} ({ms['high']:.2f} to {ms['low']:.2f})"
    return f"| {step.what} | {step.gpus} | {took} | {predicted} | {off:+.1f} % | {plain:.2f} |"


def machine() -> Machine:
    """Hosts of eight GPUs whose own time is none."""
    host = HostTime(0.0, 0.0, "given")
    return Machine(8, known_link(GPU), known_network(GPU), host, memory_bytes=None)


def predicted_ms(step: Step, slowed: bool = True) -> dict[Speed, float]:
    """Time of the step in ms over links of each speed."""
    work = work_of(step.alone_ms, step.keys, step.model, slowed)
    if not step.rows:
        work = replace(work, rows=None)
    assert work.copy_bytes_per_ms is not None
    copy_bytes_per_ms = work.copy_bytes_per_ms / step.copies
    work = replace(work, averages=step.all_reduce, copy_bytes_per_ms=copy_bytes_per_ms)
    work = replace(work, shares_update=step.shard_update, reduce_dtype=step.reduce_dtype)
    replays = replays_by_speed(work, machine(), step.gpus, "ddp")
    return {speed: replay.now for speed, replay in replays.items()}


def work_of(step_ms: float, keys: ModelKeys, model: ModelDescription, slowed: bool = True) -> Work:
    """Work of one micro-step; the time of a block is its share of the arithmetic."""
    sizes, rows = sizes_of(model, keys.dtype), rows_of(keys, model)
    forward_ms, backward_ms = FORWARD * step_ms, BACKWARD * step_ms
    embedding_ms = EMBEDDING_MS if rows and rows.travel(2) else 0.0
    of_products_ms = backward_ms - embedding_ms
    of_block = sizes.block_share / sizes.blocks
    update_ms = step_ms - forward_ms - backward_ms
    parts = StepParts(
        step_ms=step_ms,
        micro_steps=1,
        forward_ms=forward_ms,
        backward_ms=backward_ms,
        block_forward_ms=forward_ms * of_block,
        block_backward_ms=of_products_ms * of_block,
        head_backward_ms=of_products_ms * (1 - sizes.block_share),
        update_ms=FUSED_UPDATE_MS if keys.kernels == "fused" else update_ms,
        blocks_from="arithmetic",
        embedding_backward_ms=embedding_ms,
    )
    bytes_per_s = peak_bytes_per_s(GPU)
    assert bytes_per_s is not None
    return Work(
        parts,
        sizes,
        keys.bucket_mb,
        SLOWDOWN_PERCENT / 100 * slowed,
        COPY_SHARE * bytes_per_s / 1e3,
        copies_slowdown=COPIES_SLOWDOWN_PERCENT / 100 * slowed,
        rows=rows,
        in_buckets=keys.gradients_in_buckets,
        pause_ms=PAUSE_MS if keys.replays_graphs else 0.0,
    )


def on_more_gpus(step_ms: float, micro_steps: int) -> list[Prediction]:
    """Predictions for 124M by each mode; fsdp and hsdp at best, without waits for the host."""
    work = work_of(step_ms, GPT2_124M, PADDED)
    work = replace(work, parts=with_micro_steps(work.parts, micro_steps))
    tokens = micro_steps * GPT2_124M.batch_size * GPT2_124M.block_size
    return predictions(work, machine(), COUNTS, MODES, tokens, activations=None)


def by_mode(rows: list[Prediction], gpus: int) -> dict[Mode, Prediction]:
    return {row.mode: row for row in rows if row.gpus == gpus}


def prediction_row(one: dict[Mode, Prediction], five: dict[Mode, Prediction]) -> str:
    """Row of the second table, from predictions with one micro-step on each GPU and with five."""
    if "one" in one:
        return f"| 1 | {one['one'].step_ms:.1f} |" + " |" * 6
    ddp = one["ddp"]
    ms = f"{ddp.step_ms:.1f} ({ddp.fastest_ms:.1f} to {ddp.slowest_ms:.1f})"
    sent = f"{ddp.sent_bytes / 1e9:.2f} GB | {ddp.exposed_ms:.1f} ms"
    kept, later = (f"{rows['ddp'].efficiency_percent:.0f} %" for rows in (one, five))
    others = (f" {one[way].step_ms:.1f}" if way in one else "" for way in MODES[1:])
    return f"| {ddp.gpus:,} | {ms} | {kept} | {sent} | {later} |{' |'.join(others)} |"
