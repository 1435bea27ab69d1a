"""The plan of an experiment: its factor, the order of its processes, their command lines.

Called by profiling.verbs.ab.
"""

import re
import sys
from pathlib import Path

from msgspec.structs import replace

from cli.program import python_arguments
from profiling.analysis.difference.comparison_records import SCHEMA_VERSION, Experiment, Factor
from profiling.launch.pace import Pace, find_pace
from profiling.launch.process import process_beside

LOG_INTERVAL = 10  # iterations between two readings of the clock: each waits for the GPU
FEWEST_TIMED = 2 * LOG_INTERVAL
WARM_UP = 50  # iterations that are not timed; compiling comes before the first
# keys that the experiment sets itself, and what to use instead
OWN = {
    "out_dir": "use --out",
    "max_iters": "use --steps",
    "eval_interval": "leave it out: an evaluation would interrupt the timed steps",
    "eval_iters": "leave it out: evaluations are not timed",
    "log_interval": "leave it out: step times are read every ten iterations",
    "init_from": "leave it out: every process starts from scratch",
    "profile": "leave it out: timed processes are not profiled; captures are made afterwards",
    "wandb": "leave it out: W&B is off in timed processes",
}


def order(values: int, repeats: int) -> list[int]:
    """Number of the value for each process: A B B A A B ..., so that a drift affects all alike."""
    forth = list(range(values))
    return [i for turn in range(repeats) for i in (forth[::-1] if turn % 2 else forth)]


def max_iters(experiment: Experiment) -> int:
    return experiment.warm_up + timed_steps(experiment) + 1  # the first row is of iteration 0 alone


def timed_steps(experiment: Experiment) -> int:
    """The timed iterations of a process of the trainer."""
    assert experiment.steps is not None, "only commands run to an end that nobody knows"
    return experiment.steps


def timed_process(
    experiment: Experiment, trainer: Path, folder: Path, number: int, value: int
) -> tuple[Path, list[str]]:
    """(out_dir, command) of timed process `number` of the experiment in `folder`."""
    out_dir = folder / "runs" / f"{number + 1:02d}-{file_name(experiment.factor.labels[value])}"
    return out_dir, training_command(trainer, timed_words(experiment, value, out_dir))


def timed_words(experiment: Experiment, value: int, out_dir: Path) -> list[str]:
    """Words for train.py, for a timed process."""
    return [
        *value_words(experiment, value, out_dir),
        f"max_iters={max_iters(experiment)}",
        f"log_interval={experiment.log_interval}",
        "profile=none",  # FILE may be the config.yaml of a captured run
    ]


def value_words(experiment: Experiment, value: int, out_dir: Path) -> list[str]:
    """Words for train.py with this value of the factor, and without evaluations."""
    return [
        *experiment.words,
        f"{experiment.factor.key}={experiment.factor.values[value]}",
        f"out_dir={quote_path(out_dir)}",
        "eval_interval=1000000",
        "eval_iters=1",
        "wandb.mode=disabled",
    ]


def file_name(text: str) -> str:
    """A file name made of a text: other characters than letters, digits, _ . and - become -."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-")


def quote_path(path: Path) -> str:
    """The path quoted for Hydra, whatever characters are in it."""
    text = str(path)
    if re.fullmatch(r"[\w./-]+", text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def training_command(trainer: Path, words: list[str]) -> list[str]:
    return [sys.executable, "-u", *python_arguments(trainer), *words]


def plan_experiment(words: list[str], steps: int) -> Experiment:
    """Plan the experiment that the words describe. Raises ValueError naming the word that is wrong.

    Every value's configuration is composed here, so that a mistake shows before anything runs.
    """
    from configs.command_line import compose_one  # here: --help needs no Hydra
    from configs.jobs import compile_alike

    words = [word[2:] if word.startswith("--") and "=" in word else word for word in words]
    for word in words:
        key = word.split("=")[0]
        section = key.split(".")[0]
        if section in OWN:
            raise ValueError(f"{key}: ab sets it itself; {OWN[section]}")
    swept = {word: values for word in words if (values := swept_values(word))}
    if len(swept) != 1:
        given = f"{' and '.join(swept)}: {len(swept)} keys" if swept else "no key"
        raise ValueError(
            f"{given} with several values; give exactly one key several values, separated by "
            "commas, such as attention=slow,flash"
        )
    check_steps(steps)
    ((word, values),) = swept.items()
    experiment = Experiment(
        schema_version=SCHEMA_VERSION,
        factor=factor_of(word.split("=")[0], values),
        words=[other for other in words if other != word],
        steps=steps,
        warm_up=WARM_UP,
        log_interval=LOG_INTERVAL,
        runs=[],
    )
    out = Path("out-ab")
    configs = [compose_one(timed_words(experiment, n, out)) for n in range(len(values))]
    if compile_alike(configs):
        experiment = replace(experiment, words=[*experiment.words, "compile=true"])
    if configs[0].init_from == "resume":  # FILE is the config.yaml of a run that was resumed
        return replace(experiment, words=[*experiment.words, "init_from=scratch"])
    return experiment


def check_steps(steps: int | None) -> None:
    """Raise ValueError for steps that do not fill their last row."""
    if steps and steps % LOG_INTERVAL:
        raise ValueError(f"--steps {steps}: must be a multiple of {LOG_INTERVAL}")


def check_on_this_machine(experiment: Experiment, folder: Path) -> list[Pace]:
    """Check device, attention and files of every value before the first process.

    Returns this machine's pace at each value. Raises ValueError naming the value that cannot run.
    """
    labels = experiment.factor.labels
    with process_beside() as beside:
        words = [
            timed_words(experiment, number, folder / "runs" / file_name(label))
            for number, label in enumerate(labels)
        ]
        for label, words_of_value in zip(labels, words, strict=True):
            try:
                beside.submit(check_words, words_of_value).result()
            except ValueError as error:
                raise ValueError(f"{label}: {error}") from error
        return [beside.submit(find_pace, words_of_value).result() for words_of_value in words]


def check_words(words: list[str]) -> None:
    from configs.command_line import compose_one
    from training.checks import check_job

    check_job(compose_one(words))


def factor_of(key: str, values: list[str]) -> Factor:
    """The factor with a label for each value; one that is repeated (A against A) gets a number."""
    labels = []
    for number, value in enumerate(values):
        name = value if key == "attention" else f"{key}={value}"
        before = values[:number].count(value)
        labels.append(f"{name} ({before + 1})" if before else name)
    return Factor(key, values, labels)


def swept_values(word: str) -> list[str]:
    """Values of a word KEY=A,B as Hydra reads it; empty for one value, a list or a file."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    if "=" not in word:
        return []
    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException:
        return []  # composing the configuration says what is wrong with it
    if not override.is_discrete_sweep():
        return []
    values = list(override.sweep_string_iterator())
    return [value.lower() if value in ("True", "False") else value for value in values]
