"""Known bottlenecks in the real trainer, each captured and diagnosed: does the verdict find them?

    python -m benchmarks planted out=out-planted
    python -m benchmarks planted plants=slow_loader,python_stall

Needs CUDA and nsys; `slow_link` needs two GPUs and is named as left out where there is one. Prints
a row for each plant and a confusion table; OUT/results.json has the evidence. With `reread=true`
the captures of an earlier series are diagnosed again, without a GPU.
"""

from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import torch
from hydra.core.utils import env_override

from benchmarks.diagnoses import Diagnosis, diagnosed, print_confusion
from benchmarks.measuring import Keys, key
from benchmarks.planted_train import PLANTS, Plant
from cli.files import write_text
from profiling.records import to_json
from profiling.units import ABSENT
from profiling.verbs import run

WINDOW = "max_iters=90 eval_interval=1000 wandb.mode=disabled profile.start=60 profile.steps=20"
TRAINER = ["-m", "benchmarks.planted_train"]


@dataclass
class PlantedConfig(Keys):
    plants: str = key("all", "names, by comma")
    config: str = key("shakespeare_char", "experiment to train")
    out: str = key("out-planted", "folder of runs and results.json")
    preset: str = key("light", "of `python -m profiling run`")
    reread: bool = key(False, "diagnose the captures in OUT again")


def main(config: PlantedConfig) -> None:
    names = list(PLANTS) if config.plants == "all" else config.plants.split(",")
    if unknown := set(names) - set(PLANTS):
        raise ValueError(f"plants={','.join(unknown)}: there are {', '.join(PLANTS)}")
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Diagnosis] = []
    for name in names:
        plant = PLANTS[name]
        if not config.reread and (problem := record(name, plant, config, out)):
            print(f"{name}: {problem}", flush=True)
            continue
        capture = "nsys.sqlite" if plant.ranks == 1 else "nsys-rank0.sqlite"
        rows.append(diagnosed(name, plant.verdict, out / name / "profile" / capture))
        print(markdown_row(rows[-1]), flush=True)
    write_text(out / "results.json", to_json(rows))
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


def markdown_row(row: Diagnosis) -> str:
    found = "right" if row.verdict == row.planted else "WRONG"
    idle = ABSENT if row.idle_ms is None else f"{row.idle_ms:.2f}"
    gains = [f"{gain.verdict} {gain.recoverable_ms_per_step:.2f}" for gain in row.ranked[:3]]
    return (
        f"| {row.plant} | {row.planted} | {row.verdict} | {found} "
        f"| {row.step_ms:.2f} ms, idle {idle} | {', '.join(gains)} |"
    )
