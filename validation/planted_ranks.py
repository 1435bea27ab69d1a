"""A fault on one rank of several in the real trainer: is that rank named, with its cause and cost?

    python -m validation planted_ranks out=out-planted-ranks
    python -m validation planted_ranks plants=extra_products,rank_loader ranks=4 limit_s=400
    python -m validation planted_ranks config=gpt2_124m words="dataset=FOLDER batch_size=12"
    python -m validation planted_ranks reread=true out=out-planted-ranks

Trains twice for each plant, with the fault and a profiler on all ranks in the last iterations,
after others that give the step's time: torch.profiler, and nsys. Trains without a fault once for
all plants of the same keys. The trainings of a plant start up at once, and then take turns. Prints
a row for each plant and tool: who is late, why, at what cost, beside what the fault really cost in
the iterations of the same training that nobody captured.

Needs nsys and as many GPUs as `ranks` says, each with room for two trainings and another model and
optimizer. `limit_s` ends it between plants; a signal also ends the trainings that run.
"""

import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.measuring import Keys, key, launcher, say
from cli.files import write_text
from profiling.analysis.ranks.files import open_ranks
from profiling.analysis.ranks.found import captures_in
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.shared.json_records import to_json
from profiling.shared.units import ABSENT
from validation import turns
from validation.diagnoses import check_kept, choose, end_where_failed
from validation.planted import (
    NSYS_WINDOW,
    SHORT,
    TORCH_WINDOW,
    TRAINER,
    check_machine,
    failure_message,
    step_ms,
)
from validation.plants.planting import Plant
from validation.plants.ranks import OF_RANKS

TOOLS = {"nsys": "nsys", "torch": "torch.profiler"}  # a training's folder, and what captured it
UNDER_NSYS = ["-m", "validation.planted_under_nsys"]
EACH_S = 150  # a plant, until the first has been measured
READ_S = 30  # export and reading of a plant's captures behind its trainings
Recorded = Generator[tuple[str, str | None], None, None]  # a plant's name, and what failed
WITHIN = 0.15  # share of the true cost by which the reported cost may be off
HEADER = (
    "| plant | rank | cause | tool | reported | reported cost, ms | cost, ms | right |\n"
    "|---|---:|---|---|---|---:|---:|---|"
)


@dataclass
class PlantedRanksConfig(Keys):
    plants: str = key("all", "or names, by comma")
    config: str = key("shakespeare_char", "experiment to train")
    out: str = key("out-planted-ranks", "folder of runs and results.json")
    ranks: int = key(2, "GPUs of one host", least=2)
    preset: str = key("light", "of `python -m profiling run`")
    words: str = key("", "further words of train.py, by blanks, over the plant's")
    limit_s: float = key(0, "start no plant that would end later than this; 0: no limit", least=0)
    reread: bool = key(False, "report the captures in OUT again")


@dataclass(frozen=True)
class RanksDiagnosis:
    """Verdict of the report of all ranks on a run with a plant, beside the truth."""

    plant: str
    planted: str
    late_rank: int | None
    tool: str
    verdict: str | None  # None, as the next three, without a report
    rank: int | None
    because: str | None
    costs_ms: float | None
    true_ms: float | None  # time that the fault adds to a step without a profiler
    evidence: list[str]
    between_ms: tuple[float, float] | None = None  # range of the reported cost

    @property
    def is_right(self) -> bool:
        if self.late_rank is None:
            return self.verdict == self.planted
        return (self.rank, self.because) == (self.late_rank, self.planted)

    @property
    def is_close(self) -> bool | None:
        """Whether the reported cost is within WITHIN of the true one, or its range holds that; None
        where one is missing."""
        if self.costs_ms is None or not self.true_ms or self.planted == "balanced":
            return None
        least, most = self.between_ms or (self.costs_ms, self.costs_ms)
        return least <= self.true_ms <= most or abs(self.costs_ms / self.true_ms - 1) <= WITHIN


def main(config: PlantedRanksConfig) -> None:
    """Run the measurement.

    Raises ValueError for a mistake, SystemExit where a capture failed or cannot be read.
    """
    names = choose("plants", config.plants, 1, {1: OF_RANKS})
    out = Path(config.out).resolve()
    if config.reread:
        check_kept(out, (f"{name}/{folder}" for name in names for folder in TOOLS))
    else:
        check_machine(out)
    print(HEADER, flush=True)
    diagnoses, failed = list[RanksDiagnosis](), list[str]()
    recorded: Recorded = ((name, None) for name in names)
    if not config.reread:
        recorded = record_each(names, config, out)
    with closing(recorded):
        for name, problem in recorded:
            if problem:
                say(f"{name}: {problem}")
                failed.append(name)
            for tool in TOOLS:
                plant = replace(OF_RANKS[name], ranks=config.ranks)
                diagnoses.append(diagnose(name, plant, out, tool))
                print(row(diagnoses[-1]), flush=True)
            write_text(out / "results.json", to_json(diagnoses))
    right, close = [each.is_right for each in diagnoses], [each.is_close for each in diagnoses]
    known = [each for each in close if each is not None]
    print(f"\n{sum(right)} of {len(right)} right")
    print(f"cost within 15 % or in its range: {sum(known)} of {len(known)}")
    failed += [f"{each.plant} by {each.tool}" for each in diagnoses if each.verdict is None]
    end_where_failed("planted_ranks", failed, out)


def record_each(names: Sequence[str], config: PlantedRanksConfig, out: Path) -> Recorded:
    """Train for each plant that `limit_s` leaves time for.

    While a plant's captures are exported and read, the trainings of the next one start up.
    """
    begin_s, longest_s = time.monotonic(), 0.0
    running, before = list[turns.Training](), ""
    with turns.ended_at_exit(running):
        for number, name in enumerate(names):
            began_s = time.monotonic()
            needs_s = longest_s + READ_S if longest_s else EACH_S
            if 0 < config.limit_s < began_s - begin_s + needs_s:
                say(f"left out, as limit_s={config.limit_s:g} says: {', '.join(names[number:])}")
                break
            old = len(running)
            running.extend(start(name, config, out))
            if before:
                yield before, finish(running, old)
            turns.take_turns(running)
            before, longest_s = name, max(longest_s, time.monotonic() - began_s)
        if before:
            yield before, finish(running, len(running))


def finish(running: list[turns.Training], count: int) -> str | None:
    """Wait for the first `count` trainings and take them off the list; return what failed."""
    ended = {training.out_dir: training.finish() for training in running[:count]}
    del running[:count]
    failed = [failure_message(out_dir, status) for out_dir, status in ended.items() if status]
    return "\n".join(failed) or None


def faultless_folder(plant: Plant, out: Path) -> Path:
    """Folder of the training without a fault, shared by all plants that have the same keys."""
    return out / "without" / next(name for name in OF_RANKS if OF_RANKS[name].keys == plant.keys)


def start(name: str, config: PlantedRanksConfig, out: Path) -> Iterator[turns.Training]:
    """Start two trainings with the fault, and first one without it if nobody has.

    The one under nsys is the last: its reports are exported while the next plant starts up.
    """
    plant = replace(OF_RANKS[name], ranks=config.ranks)
    folder, without = out / name, faultless_folder(plant, out)
    one_each = f"gradient_accumulation_steps={plant.ranks}"
    words = [config.config, *SHORT.split(), *plant.keys.split(), *config.words.split(), one_each]
    everyone = f"profile.ranks=[{','.join(map(str, range(plant.ranks)))}]"
    plain = [sys.executable, *launcher(plant.ranks), *TRAINER, *words]
    flags = ["--preset", config.preset, "--nproc-per-node", str(plant.ranks), "--ranks", "all"]
    under_nsys = [sys.executable, *UNDER_NSYS, *flags, *words, *NSYS_WINDOW.split()]
    fault = {"PLANT": name, **plant.environ}
    planned = [] if without.exists() else [(plain, without, {"PLANT": "no_fault"})]
    planned.append(([*plain, *TORCH_WINDOW.split(), everyone], folder / "torch", fault))
    planned.append((under_nsys, folder / "nsys", fault))
    for each in planned:
        yield turns.start(*each, plant.ranks)


def diagnose(name: str, plant: Plant, out: Path, folder: str) -> RanksDiagnosis:
    """Diagnosis of the captures in a plant's folder."""
    with_ms, without_ms = step_ms(out / name / folder), step_ms(faultless_folder(plant, out))
    true_ms = with_ms - without_ms if with_ms and without_ms else None
    captures = partial(captures_in, out / name / folder)
    return diagnosis_of(name, plant.verdict, plant.late_rank, TOOLS[folder], captures, true_ms)


def diagnosis_of(
    name: str,
    planted: str,
    late_rank: int | None,
    tool: str,
    captures: Callable[[], list[Path]],
    true_ms: float | None,
) -> RanksDiagnosis:
    """Diagnosis of the captures of all ranks; its verdict is None if they cannot be read."""
    try:
        paths = captures()
        if not paths:
            raise ValueError("no captures of several ranks")
        report = open_ranks(paths).report
    except (ValueError, OSError) as error:
        print(f"{name}, {tool}: {error}", file=sys.stderr)
        nothing = (None, None, None, None)
        return RanksDiagnosis(name, planted, late_rank, tool, *nothing, true_ms, [])
    late = report.straggler
    return RanksDiagnosis(
        plant=name,
        planted=planted,
        late_rank=late_rank,
        tool=tool,
        verdict=report.verdict,
        rank=late.rank if late else None,
        because=late.because if late else None,
        costs_ms=cost_ms(report),
        true_ms=true_ms,
        evidence=report.evidence,
        between_ms=late.costs_between_ms if late else report.transfers_between_ms,
    )


def cost_ms(report: RanksReport) -> float | None:
    """Time in ms per step that the report's verdict says the fault costs."""
    if report.straggler:
        return report.straggler.gains_ms_per_step
    if report.verdict == "communication":
        return median(rank.communication.exposed_ms for rank in report.ranks)
    return report.jitter_ms_per_step


def row(diagnosis: RanksDiagnosis) -> str:
    said = diagnosis.verdict or ABSENT
    if diagnosis.rank is not None:
        said = f"rank {diagnosis.rank}, {diagnosis.because}"
    figures = [
        ABSENT if ms is None else f"{ms:.2f}" for ms in (diagnosis.costs_ms, diagnosis.true_ms)
    ]
    late = ABSENT if diagnosis.late_rank is None else str(diagnosis.late_rank)
    right = "yes" if diagnosis.is_right else "no"
    cells = [diagnosis.plant, late, diagnosis.planted, diagnosis.tool, said, *figures, right]
    return f"| {' | '.join(cells)} |"
