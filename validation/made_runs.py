"""Run folders as the trainer leaves them, made up: of any size, with GPU metrics."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

STEP_MS = {"slow": 6.6, "flash": 5.4}
CONFIG: dict[str, Any] = dict(
    n_layer=6, n_head=6, n_embd=384, block_size=256, batch_size=64, dropout=0.2
)
CONFIG |= dict(
    gradient_accumulation_steps=1, dtype="bfloat16", compile=True, dataset="shakespeare_char"
)
CONFIG |= dict(
    max_iters=2000, learning_rate=1e-3, wandb={"mode": "disabled"}, profile={"steps": 20}
)
TOKENS = 64 * 256
IN_FORCE = dict(data="tiny_shakespeare", text_sha256="86c4", tokenizer="char", vocab_size=65)
IN_FORCE |= dict(device="NVIDIA H200", ranks=1, torch="2.11.0+cu130")


def write_run(
    folder: Path,
    attention: str = "flash",
    seed: int = 1,
    rows: int = 40,
    interval: int = 10,
    gpu: bool = True,
    data: str = "tiny_shakespeare",
    start_s: float | None = None,
    **config: Any,
) -> Path:
    """Write a run of `rows` training rows, `interval` iterations apart, a tenth with an evaluation.

    start_s: time of the first iteration; None writes rows of an older run, without times.
    """
    folder.mkdir(parents=True)
    values = CONFIG | config | {"attention": attention, "seed": seed, "out_dir": str(folder)}
    in_force = IN_FORCE | {"data": data, "text_sha256": data, "attention": attention}
    (folder / "config.yaml").write_text(yaml.safe_dump(values | {"in_force": in_force}))
    random = np.random.default_rng([seed, len(attention)])
    step_ms = STEP_MS.get(attention, 6.0) * (1 + 0.004 * random.standard_normal(rows))
    step_ms[0] *= 4
    lines: list[dict[str, Any]] = [{"run": in_force, "iter": 0}]
    val_losses = []
    for row in range(rows):
        iteration = row * interval
        loss = 1.45 + 2.8 * np.exp(-iteration / 250) + 0.003 * random.standard_normal()
        if row % 10 == 0 or row == rows - 1:
            val_losses.append(loss)
            lines.append({"iter": iteration, "val/loss": loss, "eval/train_loss": loss - 0.1})
        lines.append(training_row(iteration, loss, step_ms[row], gpu, attention, random))
    if start_s is not None:
        for line in lines[1:]:
            line["time/elapsed_s"] = start_s + line["iter"] * STEP_MS.get(attention, 6.0) / 1e3
    text = "".join(json.dumps(line | {"data": data}) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    summary = {"best_val_loss": min(val_losses), "iterations": rows * interval, "wall_s": 20.0}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def training_row(
    iteration: int, loss: float, ms: float, gpu: bool, attention: str, random: np.random.Generator
) -> dict[str, Any]:
    row = {"iter": iteration, "train/loss": loss + 0.02 * random.standard_normal(), "lr": 1e-3}
    row |= {
        "time/step_ms": ms,
        "perf/tokens_per_s": TOKENS / ms * 1e3,
        "perf/mfu": 1.16 / ms / 0.989,
    }
    row |= {"memory/peak_bytes": 2_400_000_000 if attention == "flash" else 3_900_000_000}
    row |= {"cpu/process_percent": 100 + iteration % 7, "cpu/threads": 40, "cpu/memory_bytes": 3e9}
    if not gpu:
        return row | {"perf/mfu": None, "memory/peak_bytes": None}
    power_w = 520 + 8 * random.standard_normal()
    iterations = 10 if iteration else 1
    row |= {"gpu/power_w": power_w, "gpu/energy_j": power_w * ms / 1e3 * iterations}
    row |= {"perf/energy_per_token_j": power_w * ms / 1e3 / TOKENS}
    row |= {"gpu/util_percent": 97.0, "gpu/memory_bytes": 9e9, "gpu/temperature_c": 52}
    row |= {"gpu/sm_clock_mhz": 1980, "gpu/sm_active_percent": 84 + random.standard_normal()}
    tensor = 31.0 if attention == "flash" else 25.0
    row |= {"gpu/tensor_active_percent": tensor + random.standard_normal()}
    return row | {"gpu/dram_active_percent": 40 + random.standard_normal()}
