"""Known bottlenecks in the real trainer, each captured and diagnosed: does the verdict find them?

    python -m benchmarks planted out=out-planted
    python -m benchmarks planted plants=slow_loader,python_stall

Needs CUDA and nsys; `slow_link` needs two GPUs and is named as left out where there is one. Prints
a row for each plant and a confusion table; OUT/results.json has the evidence. With `reread=true`
the captures of an earlier series are diagnosed again, without a GPU.
"""

import json
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch
from hydra.core.utils import env_override

from benchmarks.planted_train import PLANTS, Plant
from profiling.analysis.capture import open_report
from profiling.verbs import run

WINDOW = "max_iters=90 eval_interval=1000 wandb.mode=disabled profile.start=60 profile.steps=20"
TRAINER = ["-m", "benchmarks.planted_train"]


@dataclass
class PlantedConfig:
    plants: str = field(default="all", metadata={"help": "names, by comma"})
    config: str = field(default="shakespeare_char", metadata={"help": "experiment to train"})
    out: str = field(default="out-planted", metadata={"help": "folder of runs and results.json"})
    preset: str = field(default="light", metadata={"help": "of `python -m profiling run`"})
    reread: bool = field(default=False, metadata={"help": "diagnose the captures in OUT again"})


def main(config: PlantedConfig) -> None:
    names = list(PLANTS) if config.plants == "all" else config.plants.split(",")
    if unknown := set(names) - set(PLANTS):
        raise ValueError(f"plants={','.join(unknown)}: there are {', '.join(PLANTS)}")
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in names:
        plant = PLANTS[name]
        capture = (
            out / name / "profile" / ("nsys.sqlite" if plant.ranks == 1 else "nsys-rank0.sqlite")
        )
        if not config.reread and (problem := record(name, plant, config, out)):
            print(f"{name}: {problem}", flush=True)
            continue
        rows.append(diagnosed(name, plant.verdict, capture))
        print(markdown_row(rows[-1]), flush=True)
    (out / "results.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    print_confusion(rows)


def record(name: str, plant: Plant, config: PlantedConfig, out: Path) -> str | None:
    """Trains with the plant under nsys; says why there is no capture where there is none."""
    if torch.cuda.device_count() < plant.ranks:
        return f"left out, needs {plant.ranks} GPUs"
    words = ["--preset", config.preset, config.config, *plant.keys.split(), *WINDOW.split()]
    if plant.ranks > 1:
        words = ["--nproc-per-node", str(plant.ranks), *words]
    with (
        open(out / f"{name}.log", "w", encoding="utf-8") as log,
        redirect_stdout(log),
        env_override({"PLANT": name, **plant.environ}),
    ):
        status = run.main([*words, f"out_dir={out / name}"], TRAINER)
    return f"ended with {status}, see {out / name}.log" if status else None


def diagnosed(name: str, planted: str, capture: Path) -> dict:
    report = open_report(capture).report
    return {
        "plant": name,
        "planted": planted,
        "step_ms": report.window.step_ms.median,
        "idle_ms": report.breakdown.idle_ms if report.breakdown else None,
        **msgspec.to_builtins(report.bottleneck),
    }


def markdown_row(row: dict) -> str:
    found = "right" if row["verdict"] == row["planted"] else "WRONG"
    ranked = ", ".join(
        f"{entry['class']} {entry['recoverable_ms_per_step']:.2f}" for entry in row["ranked"][:3]
    )
    return (
        f"| {row['plant']} | {row['planted']} | {row['verdict']} | {found} "
        f"| {row['step_ms']:.2f} ms, idle {row['idle_ms']:.2f} | {ranked} |"
    )


def print_confusion(rows: list[dict]) -> None:
    """Planted classes down, verdicts across."""
    pairs = Counter((row["planted"], row["verdict"]) for row in rows)
    classes = sorted({name for pair in pairs for name in pair})
    print(f"\n| planted \\ verdict | {' | '.join(classes)} |\n|{'---|' * (len(classes) + 1)}")
    for planted in sorted({row["planted"] for row in rows}):
        counts = " | ".join(str(pairs[planted, verdict] or "") for verdict in classes)
        print(f"| {planted} | {counts} |")
    right = sum(row["verdict"] == row["planted"] for row in rows)
    print(f"\n{right} of {len(rows)} verdicts are right")
