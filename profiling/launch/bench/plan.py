"""The plan of `bench`: kinds of processes, sides, rounds, and the command line of each process.

Called by profiling.verbs.bench. Both sides get one configuration: ours. The other checkout gets
every key that it has too and whose value differs from its own.
"""

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cli import program
from cli.keys import keys
from cli.program import python_arguments
from configs.python_files import Setting
from configs.sampling import SampleConfig
from configs.schema import role_of
from profiling.analysis.bench.bench_records import Asked, Kind, Side
from profiling.launch.bench.checkout import (
    DATASET,
    EXPERIMENT,
    SAMPLER,
    TRAINER,
    Checkout,
    overrides,
)
from profiling.launch.command import whole_process_prefix
from profiling.launch.experiment import captures
from profiling.launch.experiment.plan import (
    LOG_INTERVAL,
    WARM_UP,
    order,
    quote_path,
    training_command,
)
from profiling.tools import nsight, nsys_tool

if TYPE_CHECKING:
    from configs.schema import Config

FEW = 10  # iterations of the process that fills the caches and leaves a checkpoint to sample from
NEVER = 1_000_000  # iterations between evaluations
THEIR_EVALUATION = 200  # batches of an evaluation, if the checkout's source does not say
# keys that bench sets itself, and what to use instead
OWN = {
    "out_dir": "use --out",
    "max_iters": "use --iterations, or --steps for iterations that are timed one by one",
    "log_interval": "leave it out: both log every ten iterations",
    "always_save_checkpoint": "leave it out: both save checkpoints as their experiment does",
    "init_from": "leave it out: every process starts from scratch",
    "eval_only": "leave it out: whole runs are timed",
    "profile": "use --parts captured",
    "wandb": "leave it out: W&B is off in timed processes",
}
LEFT_OPEN = "auto"  # value of device and dtype that is decided on the machine


@dataclass(frozen=True)
class Trial:
    """A process of the series: its kind, side and round (from 0)."""

    kind: Kind
    side: Side
    round: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.side}-{self.round + 1}"


@dataclass(frozen=True)
class Plan:
    asked: Asked
    checkout: Checkout | None
    folder: Path

    @cached_property
    def config(self) -> "Config":
        """Our configuration, as it was asked for. Raises ValueError."""
        return compose([*self.asked.words, *self.asked.ours])

    @cached_property
    def captures_theirs(self) -> bool:
        """Whether the other checkout can be captured: nsys is installed and a GPU may be there.

        nanoGPT opens no window of its own, so only nsys can capture it.
        """
        return self.config.device not in captures.OTHERS and bool(nsight.installed_programs("nsys"))

    def sides(self, kind: Kind) -> list[Side]:
        alone = kind == "captured" and not self.captures_theirs
        if self.checkout is None or alone:
            return ["ours"]
        exact: list[Side] = ["exact"] if kind == "run" and not self.config.eval_iters else []
        return ["ours", "theirs", *exact]

    def out_dir(self, trial: Trial) -> Path:
        return self.folder / "runs" / trial.name

    def label(self, trial: Trial) -> str:
        if trial.side == "theirs" and self.checkout:
            return f"{trial.kind}, {self.checkout.name}"
        return f"{trial.kind}, {trial.side}"


def compose(words: list[str]) -> "Config":
    """The configuration that train.py makes of the words. Raises ValueError."""
    from configs.command_line import compose_one  # here: --help needs no Hydra

    return compose_one(words)


def check_words(plan: Plan) -> None:
    """Raise ValueError for keys that bench sets itself, and for words that do not compose."""
    for word in [*plan.asked.words, *plan.asked.ours]:
        key = word.removeprefix("--").split("=")[0]
        if "=" in word and (section := key.split(".")[0]) in OWN:
            raise ValueError(f"{key}: bench sets it itself; {OWN[section]}")
    if plan.checkout and plan.config.dataset != DATASET:
        raise ValueError(
            f"dataset={plan.config.dataset}: --against trains on characters only; use "
            f"dataset={DATASET}"
        )
    kinds: tuple[Kind, ...] = ("prepare", "steps", "run")
    for kind in kinds:
        compose(our_words(plan, Trial(kind, "ours", 0)))


def trials(plan: Plan, kinds: list[Kind], rounds: int) -> list[Trial]:
    """The processes in order: those that prepare, then round by round each kind.

    The sides take turns from round to round: A B, B A, A B.
    """
    planned = [Trial("prepare", side, 0) for side in plan.sides("prepare")]
    for number in range(rounds):
        for kind in kinds:
            sides = plan.sides(kind)
            turns = order(len(sides), number + 1)[-len(sides) :]
            planned += [Trial(kind, sides[turn], number) for turn in turns]
    return planned


def command(
    plan: Plan, trial: Trial, in_force: dict[str, Setting]
) -> tuple[Path | None, list[str]]:
    """(folder to run a trial in, or None; its command).

    `in_force` has device and dtype as they were decided on this machine, as far as known.
    """
    if trial.side == "theirs":
        assert plan.checkout is not None
        return plan.checkout.folder, their_command(plan, plan.checkout, trial, in_force)
    if trial.kind in ("sample", "samples"):
        known = keys(SampleConfig)
        asked = sampling_keys(plan, trial).items()
        words = [f"{name}={value}" for name, value in asked if name in known]
        return None, [sys.executable, "-u", *python_arguments(program.SAMPLER), *words]
    words = our_words(plan, trial)
    if trial.kind == "captured":
        has_cuda = in_force.get("device") not in captures.OTHERS
        return None, captures.capture_command(program.TRAINER, words, WARM_UP, has_cuda)[1]
    return None, training_command(program.TRAINER, words)


def our_words(plan: Plan, trial: Trial) -> list[str]:
    """train.py's words for a trial of ours, and those whose values the other side gets.

    Each round has a seed of its own.
    """
    config = plan.config
    words = [*plan.asked.words, *([] if trial.side == "theirs" else plan.asked.ours)]
    words += [f"log_interval={LOG_INTERVAL}", f"seed={config.seed + trial.round}"]
    if trial.kind == "prepare":
        words += [f"max_iters={FEW}", f"eval_interval={FEW}", "eval_iters=1"]
        words += ["always_save_checkpoint=true"]
    elif trial.kind == "run":
        words += [f"max_iters={plan.asked.iterations}"]
        if plan.checkout and trial.side != "exact" and not config.eval_iters:
            words += [f"eval_iters={plan.checkout.train.get('eval_iters') or THEIR_EVALUATION}"]
    else:
        words += [f"eval_interval={NEVER}", "eval_iters=1"]
        if trial.kind == "steps" or trial.side == "theirs":  # else capture_command sets it
            words += [f"max_iters={WARM_UP + plan.asked.steps + 1}"]
    return [*words, f"out_dir={quote_path(plan.out_dir(trial))}", "wandb.mode=disabled"]


def their_command(
    plan: Plan, checkout: Checkout, trial: Trial, in_force: dict[str, Setting]
) -> list[str]:
    """Command of a trial of the other checkout. Raises ValueError if it cannot be captured."""
    if trial.kind in ("sample", "samples"):
        script, known, before = SAMPLER, checkout.sample, []
        values = sampling_keys(plan, trial) | in_force
        asked = {name: setting(value) for name, value in values.items()}
    else:
        script, known, before = TRAINER, checkout.train, [str(EXPERIMENT)]
        asked = shared_settings(plan, trial, in_force)
        asked["out_dir"] = str(plan.out_dir(trial).resolve())
    prefix = []
    if trial.kind == "captured":
        if in_force.get("device") in captures.OTHERS:
            raise ValueError(f"nsys captures CUDA, but this device is {in_force['device']}")
        prefix = whole_process_prefix(nsys_tool.find(), report_of(plan, trial))
    return [*prefix, sys.executable, "-u", str(script), *before, *overrides(asked, known)]


def report_of(plan: Plan, trial: Trial) -> Path:
    """nsys's report of the other checkout. It holds the environment, so it is not kept."""
    return Path(f"{plan.out_dir(trial).resolve()}.nsys-rep")


def shared_settings(plan: Plan, trial: Trial, in_force: dict[str, Setting]) -> dict[str, Setting]:
    """Values in this trial of our keys that nanoGPT may have too, where they mean the same.

    A start, its folder and its text are asked for in another way.
    """
    config = compose(our_words(plan, trial))
    values = {name: setting(value) for name, value in vars(config).items()} | in_force
    apart = ("start", "place", "text")
    return {name: value for name, value in values.items() if role_of(name) not in apart}


def sampling_keys(plan: Plan, trial: Trial) -> dict[str, Setting]:
    """Keys of sampling for both sides, each of which gets those that it has.

    Device and dtype are as in training.
    """
    defaults, config = SampleConfig(), plan.config
    sequences = plan.asked.samples if trial.kind == "samples" else 1
    prepared = plan.out_dir(Trial("prepare", trial.side, 0))
    return {
        "out_dir": str(prepared.resolve()),
        "num_samples": sequences,
        "batch_size": sequences,  # at once, where that can be
        "max_new_tokens": plan.asked.tokens,
        "temperature": defaults.temperature,
        "top_k": defaults.top_k,
        "seed": config.seed + trial.round,
        "device": config.device,
        "dtype": config.dtype,
    }


def setting(value: object) -> Setting:
    """The value as a setting; None if the machine decides it, or if it is no plain value."""
    plain = isinstance(value, (bool, int, float, str)) and value != LEFT_OPEN
    return value if plain and isinstance(value, (bool, int, float, str)) else None
