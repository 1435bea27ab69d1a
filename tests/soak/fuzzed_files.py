"""A damaged file of each kind that profiling reads, and the commands that read it.

Used by `python -m tests.soak fuzz`. Each of KINDS writes into the current folder, as `chance` says,
and returns command lines, without the leading `python -m profiling`.
"""

import gzip
import json
import random
from collections import Counter
from functools import cache
from pathlib import Path

from tests.paths import PROJECT
from tests.soak import damage

CAPTURES = PROJECT / "tests" / "captures"
EXPORTS = ("flash_compile", "flash_eager", "slow_compile", "flash_metrics")
HOSTILE_NAMES = 0.2  # the share of files whose own name is hostile
Words = list[str]


@cache
def export(name: str, rows: int) -> bytes:
    content = gzip.decompress((CAPTURES / f"{name}.sqlite.gz").read_bytes())
    return damage.without_constraints(content, rows)


@cache
def trace(most: int) -> bytes:
    """A real Chrome trace, cut to at most `most` events of each category."""
    whole = json.loads(gzip.decompress((CAPTURES / "flash_eager.trace.json.gz").read_bytes()))
    seen = Counter[str]()
    kept = []
    for event in whole["traceEvents"]:
        seen[event.get("cat", "")] += 1
        if seen[event.get("cat", "")] <= most:
            kept.append(event)
    return json.dumps(whole | {"traceEvents": kept}).encode()


def command(verb: str, *words: str, outputs: str = "json,markdown,html") -> Words:
    return [verb, *words, *(word for o in outputs.split(",") for word in (f"--{o}", f"out.{o}"))]


def reading_commands(content: bytes, name: str, chance: random.Random) -> list[Words]:
    """Commands that read a capture: by itself, and compared with an undamaged one."""
    capture = f"{name_prefix(chance)}{name}"
    Path(capture).write_bytes(content)
    Path("base.sqlite").write_bytes(export("flash_compile", 4000))
    pairs = ("base.sqlite", capture), (capture, "base.sqlite")
    compared = [command("compare", *pair, "--force") for pair in pairs]
    return [["report", capture], command("report", capture), *compared]


def name_prefix(chance: random.Random) -> str:
    """Beginning of a file's name, which is sometimes hostile."""
    return damage.NAME.replace("/", "_") if chance.random() < HOSTILE_NAMES else "x"


def damage_export(chance: random.Random) -> list[Words]:
    content = export(chance.choice(EXPORTS), chance.choice((40, 4000)))
    return reading_commands(damage.damaged_export(content, chance), "x.sqlite", chance)


def damage_trace(chance: random.Random) -> list[Words]:
    content = trace(chance.choice((2, 20, 500)))
    return reading_commands(damage.damaged_json(content, chance), "x.json", chance)


def damage_manifest(chance: random.Random) -> list[Words]:
    """Damage a manifest that is found beside its capture, or named by --manifest."""
    content = (CAPTURES / "flash_metrics.window-1.json").read_bytes()
    Path("window-1.json").write_bytes(damage.damaged_json(content, chance))
    beside = reading_commands(export("flash_metrics", 4000), "x.sqlite", chance)
    return [[*beside[1], "--manifest", "window-1.json"], *beside]


def damage_run(chance: random.Random) -> list[Words]:
    """Damage one of two run folders."""
    name = name_prefix(chance)
    damaged = damage.damaged_run(small_run(6.0), chance)
    for folder, files in (("base", small_run(5.0)), (name, damaged)):
        Path(folder).mkdir()
        for file, content in files.items():
            (Path(folder) / file).write_bytes(content)
    compared = command("compare", "base", name, "--force")
    return [["dashboard", place, "-o", "out.html"] for place in (name, ".")] + [compared]


def damage_ncu(chance: random.Random) -> list[Words]:
    whole = chance.choice(sorted(CAPTURES.glob("ncu_*.csv"))).read_bytes()
    name = f"{name_prefix(chance)}.csv"
    Path(name).write_bytes(damage.damaged_page(whole, chance))
    return [command("ncu", name, outputs="json,html")]


def small_run(step_ms: float) -> dict[str, bytes]:
    """File name -> content of a run's folder, as training writes it."""
    config: dict[str, object] = {
        "batch_size": 4,
        "block_size": 32,
        "gradient_accumulation_steps": 1,
        "seed": 1,
    }
    config |= {"attention": "flash", "n_layer": 2, "dataset": "play", "profile": {"steps": 20}}
    in_force = {"data": "play", "text_sha256": "86c4", "tokenizer": "char", "vocab_size": 65}
    in_force |= {"device": "NVIDIA H200", "ranks": 1, "torch": "2.11.0", "attention": "flash"}
    rows: list[dict[str, object]] = [{"run": in_force, "iter": 0}]
    for i in range(0, 300, 10):
        ms = step_ms * (1 + i % 7 / 100)
        rows.append({"iter": i, "time/step_ms": ms, "perf/tokens_per_s": 128e3 / ms})
        rows[-1] |= {"train/loss": 4 - i / 100, "time/elapsed_s": i / 10, "gpu/power_w": 500.0}
        if i % 50 == 0:
            rows.append({"iter": i, "val/loss": 4 - i / 100, "time/elapsed_s": i / 10})
    summary = {"best_val_loss": 1.1, "iterations": 300, "wall_s": 30.0}
    return {
        "config.yaml": json.dumps(config | {"in_force": in_force}).encode(),  # JSON is YAML
        "metrics.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in rows),
        "summary.json": json.dumps(summary).encode(),
        "environment.json": json.dumps({"gpus": [{"name": "NVIDIA H200"}]}).encode(),
    }


KINDS = {
    "export": damage_export,
    "trace": damage_trace,
    "manifest": damage_manifest,
    "run": damage_run,
    "ncu": damage_ncu,
}
