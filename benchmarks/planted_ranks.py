"""A fault on one rank of several in the real trainer: is that rank named, with its cause and cost?

    python -m benchmarks planted_ranks out=out-planted-ranks
    python -m benchmarks planted_ranks plants=extra_products,rank_loader
    python -m benchmarks planted_ranks reread=true out=out-planted-ranks

Trains three times for each plant: without the fault; with it and torch.profiler on all ranks in the
last iterations, after others that give the step's time; under nsys on all ranks. Prints a row for
each plant and tool: who is late, why, at what cost, beside what the fault really cost.

Needs two GPUs and nsys.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import Keys, key
from benchmarks.planted import (
    SHORT,
    TORCH_WINDOW,
    TRAINER,
    check_machine,
    failure,
    launcher,
    step_ms,
    train,
    train_under_nsys,
)
from benchmarks.plants.planting import Plant
from benchmarks.plants.ranks import OF_RANKS
from cli.files import write_text
from profiling.analysis.ranks.files import open_ranks
from profiling.analysis.ranks.found import captures_in
from profiling.records import to_json
from profiling.units import ABSENT

TOOLS = {"nsys": "nsys", "torch": "torch.profiler"}  # a training's folder, and what captured it
WITHIN = 0.15  # of what the fault really costs
HEADER = (
    "| plant | rank | cause | tool | told | cost told, ms | cost, ms | right |\n"
    "|---|---:|---|---|---|---:|---:|---|"
)


@dataclass
class PlantedRanksConfig(Keys):
    plants: str = key("all", "or names, by comma")
    config: str = key("shakespeare_char", "experiment to train")
    out: str = key("out-planted-ranks", "folder of runs and results.json")
    preset: str = key("light", "of `python -m profiling run`")
    reread: bool = key(False, "report the captures in OUT again")


@dataclass(frozen=True)
class Told:
    """What the report of all ranks says of a run with a plant, beside what is true."""

    plant: str
    planted: str
    late_rank: int | None
    tool: str
    verdict: str | None  # None: there is no report; the next three too
    rank: int | None
    because: str | None
    costs_ms: float | None
    true_ms: float | None  # by which the fault lengthens a step without a profiler
    evidence: list[str]

    @property
    def is_right(self) -> bool:
        if self.late_rank is None:
            return self.verdict == self.planted
        return (self.rank, self.because) == (self.late_rank, self.planted)

    @property
    def is_close(self) -> bool | None:
        """Whether the cost is; None: there is none to hold it against."""
        if self.costs_ms is None or not self.true_ms or self.late_rank is None:
            return None
        return abs(self.costs_ms / self.true_ms - 1) <= WITHIN


def main(config: PlantedRanksConfig) -> None:
    names = list(OF_RANKS) if config.plants == "all" else config.plants.split(",")
    if unknown := set(names) - set(OF_RANKS):
        raise ValueError(f"plants={','.join(sorted(unknown))}: there are {', '.join(OF_RANKS)}")
    out = Path(config.out).resolve()
    if not config.reread:
        check_machine(out)
    print(HEADER, flush=True)
    found: list[Told] = []
    for name in names:
        if not config.reread and (problem := record(name, OF_RANKS[name], config, out / name)):
            print(f"{name}: {problem}", file=sys.stderr, flush=True)
        for folder, tool in TOOLS.items():
            found.append(told(name, OF_RANKS[name], out / name, folder, tool))
            print(row(found[-1]), flush=True)
        write_text(out / "results.json", to_json(found))
    right, close = [each.is_right for each in found], [each.is_close for each in found]
    known = [each for each in close if each is not None]
    print(f"\n{sum(right)} of {len(right)} right; cost within 15 %: {sum(known)} of {len(known)}")


def record(name: str, plant: Plant, config: PlantedRanksConfig, folder: Path) -> str | None:
    """Three trainings; says what failed, where something did."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [config.config, *SHORT.split(), *plant.keys.split()]
    fault = {"PLANT": name, **plant.environ}
    everyone = f"profile.ranks=[{','.join(map(str, range(plant.ranks)))}]"
    profiled = [*launcher(plant), *TRAINER, *words, *TORCH_WINDOW.split(), everyone]
    ended = {
        "without": train([*launcher(plant), "train.py", *words], folder / "without", {}),
        "torch": train(profiled, folder / "torch", fault),
        "nsys": train_under_nsys(words, plant, config.preset, folder / "nsys", fault, "all"),
    }
    failed = [failure(folder / which, status) for which, status in ended.items() if status]
    return "\n".join(failed) or None


def told(name: str, plant: Plant, folder: Path, which: str, tool: str) -> Told:
    with_ms, without_ms = step_ms(folder / "torch"), step_ms(folder / "without")
    true_ms = with_ms - without_ms if with_ms and without_ms else None
    try:
        report = open_ranks(captures_in(folder / which)).report
    except (ValueError, OSError) as error:
        print(f"{name}, {tool}: {error}", file=sys.stderr)
        nothing = (None, None, None, None)
        return Told(name, plant.verdict, plant.late_rank, tool, *nothing, true_ms, [])
    late = report.straggler
    return Told(
        plant=name,
        planted=plant.verdict,
        late_rank=plant.late_rank,
        tool=tool,
        verdict=report.verdict,
        rank=late.rank if late else None,
        because=late.because if late else None,
        costs_ms=late.costs_ms_per_step if late else report.jitter_ms_per_step,
        true_ms=true_ms,
        evidence=report.evidence,
    )


def row(told: Told) -> str:
    said = told.verdict or ABSENT
    if told.rank is not None:
        said = f"rank {told.rank}, {told.because}"
    figures = [ABSENT if ms is None else f"{ms:.2f}" for ms in (told.costs_ms, told.true_ms)]
    late = ABSENT if told.late_rank is None else str(told.late_rank)
    right = "yes" if told.is_right else "no"
    cells = [told.plant, late, told.planted, told.tool, said, *figures, right]
    return f"| {' | '.join(cells)} |"
