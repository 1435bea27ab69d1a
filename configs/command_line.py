"""The command line of train.py: Hydra's, but a config file is a plain argument.

    python train.py [FLAGS] [FILE] [KEY=VALUE ...]

Every configuration, under -m those of all jobs, is composed and checked before the first job
trains. Hydra itself takes over only for its own flags, and if its own settings are used.
"""

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import env_override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from cli.errors import ending, program_command, user_errors
from cli.help import key_table
from cli.keys import keys, spell
from cli.parser import Parser
from cli.program import as_called
from cli.slurm import adopt_slurm_ranks
from configs import files
from configs.completion import completions
from configs.compose import (
    PRIMARY,
    check_package,
    compose_jobs,
    explain,
    named_keys,
    take_shape,
    to_config,
    without_sweeper_params,
)
from configs.jobs import Jobs, Train
from configs.nanogpt import say_defaults, translate_words
from configs.recipes import name_recipe_in_errors
from configs.schema import Config
from configs.texts import quote_texts
from configs.without_effect import TRAINING, say_idle_keys, say_idle_sweep

HELP = """\
Trains a GPT on Shakespeare or on your own text; every run can be profiled and compared.

usage: python train.py [FLAGS] [FILE] [KEY=VALUE ...]

  FILE        a file of configs/, given as NAME, config/NAME.yaml or configs/NAME.yaml, or a path
              to any other YAML file: {files}
              or a nanoGPT file, NAME.py: its key = value lines are read, no code in it runs
  KEY=VALUE   or --KEY=VALUE; overrides FILE, and FILE overrides the defaults
              recipe={recipes}: keys from configs/recipe/; override FILE, not other KEY=VALUE

examples
  python train.py config/shakespeare_char.yaml                  the main experiment
  python train.py config/shakespeare_char.yaml attention=flash  with one key changed
  python train.py config/shakespeare_char_cpu.yaml              a model size for CPUs
  python train.py config/shakespeare_char.yaml recipe=fast      a low validation loss soonest
  python train.py config/shakespeare_char.yaml speed=reference  plain PyTorch, nothing compiled
  python train.py -m attention=slow,flash                       a run for each, in its own folder
  python train.py DIR/config.yaml init_from=resume              continue from DIR/ckpt.pt
  python train.py config/finetune_shakespeare.yaml init_from=gpt2     with GPT-2's weights
  python train.py data_source=my.txt out_dir=out-mine           your own text
  python train.py dataset=../nanoGPT/data/openwebtext           a folder of tokens, or of shards
  python train.py wandb.mode=offline wandb.project=mine         Weights & Biases, no network
  python train.py profile=torch profile.steps=5                 capture five iterations

flags (Hydra's)
  -m, --multirun           train once for each combination: a=1,2  a=choice(1,2)  a=range(1,4)
  --cfg job                print the configuration as YAML and stop; --resolve replaces ${{...}}
  --info [WHAT]            show how Hydra composed the configuration
  --config-name NAME       the same as FILE
  -sc install=bash         tab completion: eval "$(python train.py -sc install=bash)"
  --hydra-help, --version  help and version of Hydra
"""
LISTED = frozenset(re.findall(r"(?<!\w)--?[a-z][a-z-]*", HELP))
# a config file is named by its path instead; the pickle of an earlier run may run any code
REFUSED = ("config_path", "config_dir", "experimental_rerun")
COMPLETION = re.compile(r"(install|uninstall|query)=(bash|fish|zsh)")  # after -sc
SUBMITIT = "hydra/launcher=submitit"
Start = Callable[[Train, Train], None]


def no_check(config: Config) -> None:
    """Check nothing, for a caller without a check that depends on the machine."""


def run(train: Train, check: Train = no_check) -> None:
    """Read sys.argv and train as it says.

    train.py calls `read` itself, since it defines `train` only once its command line is checked.
    """
    read()(train, check)


@user_errors()
def read() -> Start:
    """Check sys.argv and return a function to be called with `train` and `check`.

    In a sweep that function calls `check` with the configuration of each job, and then `train`.
    --help, --cfg, TAB completion and the like are answered here, and end the program.
    """
    adopt_slurm_ranks()  # only the first rank prints
    options, flags, words = split_arguments(sys.argv[1:])
    if options.shell_completion and words[:1] in (["query=bash"], ["query=fish"], ["query=zsh"]):
        complete(words[0].removeprefix("query="))
        raise SystemExit(0)
    if options.shell_completion and not any(COMPLETION.fullmatch(word) for word in words):
        raise ValueError("-sc: write -sc install=bash; uninstall, fish and zsh work the same way")
    ours = [] if options.shell_completion else translate_words(words)
    path, overrides = split_words(ours, options.config_name)
    typed = quote_texts(without_sweeper_params(overrides, options.multirun), options.multirun)
    overrides = leave_to_level(typed)
    if options.help:
        (config,) = compose_jobs(path, [], multirun=False)
        recipes = "|".join(files.options("recipe"))
        text = HELP.format(files=file_names(), recipes=recipes)
        print(as_called(f"{text}\n{key_table(config)}"))
        raise SystemExit(0)
    configs = compose_jobs(path, overrides, options.multirun)
    if options.package is not None:
        if not options.cfg:
            raise ValueError(f"--package {options.package}: only works together with --cfg")
        check_package(options.package)
    arguments = words if options.shell_completion else [] if options.hydra_help else overrides
    for_hydra = [*flags, "--config-name", PRIMARY, *arguments]
    jobs = Jobs(configs, options.multirun)
    by_hydra = partial(train_by_hydra, for_hydra, path, jobs)
    shows = options.cfg or options.info or options.hydra_help or options.resolve
    if shows or options.shell_completion:
        by_hydra(no_check, no_check)
        raise SystemExit(0)
    if path:
        say_defaults(path)
    say_idle_keys(TRAINING, typed, configs)
    if not options.multirun:
        say_idle_sweep(overrides)
    if options.run or sets_hydra(path, overrides):
        return by_hydra
    return partial(train_each, overrides, jobs)


@user_errors()
def train_each(typed: list[str], jobs: Jobs, train: Train, check: Train) -> None:
    with name_recipe_in_errors(typed):
        jobs.check(check)
        for number, config in enumerate(jobs.configs, start=1):
            jobs.run(number, config, train)
    jobs.end()


@user_errors()
def train_by_hydra(
    arguments: list[str], path: Path | None, jobs: Jobs, train: Train, check: Train
) -> None:
    """Call Hydra's own main with the rewritten arguments: it shows, completes, or runs the jobs.

    It composes each job once more, since its launchers may run them in other processes.
    """
    typed, begun = sys.argv, False

    @hydra.main(version_base=None, config_path=str(files.FOLDER), config_name=PRIMARY)
    def job(composed: DictConfig) -> None:
        nonlocal begun
        begun = True
        sys.argv = typed  # a record of the command line shows what the user typed
        settings = HydraConfig.get()
        swept = settings.mode is RunMode.MULTIRUN
        with user_errors(), name_recipe_in_errors(arguments):
            take_shape(composed, named_keys(path, arguments))
            config = to_config(composed, settings.sweep.subdir if swept else "")
            jobs.run(settings.job.num + 1 if swept else 1, config, train)

    with name_recipe_in_errors(arguments):
        jobs.check(check)
    if launchers := [word for word in arguments if word.startswith(SUBMITIT)]:
        jobs.submit(launchers[-1].partition("=")[2])
    sys.argv = [typed[0], *arguments]
    try:
        with env_override({"HYDRA_FULL_ERROR": "1"}):  # raise, rather than print and exit
            job()
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(explain(error, path)) from error
    except OSError as error:
        if begun:  # the job raised it, not Hydra
            raise
        reason = f"{error.filename}: cannot be created: {error.strerror}"
        raise ValueError(f"hydra.run.dir, hydra.sweep.dir: {reason}") from error
    finally:
        sys.argv = typed
    jobs.end()


def compose_one(words: list[str], *added: str) -> Config:
    """Configuration of the one run that train.py would start for `words`, FILE and KEY=VALUE.

    `added` are KEY=VALUE for keys that the words leave alone. Raises ValueError.
    """
    _, flags, words = split_arguments(words, suggested=())  # those listed are of train.py
    if flags:
        raise ValueError(
            f"{flags[0]}: this flag of train.py does not work here, where there is one run at a "
            "time; leave it out"
        )
    path, overrides = split_words(translate_words(words), None)
    overrides = quote_texts(overrides, multirun=False)
    typed = {word.split("=")[0] for word in overrides}
    overrides += [word for word in added if word.split("=")[0] not in typed]
    (config,) = compose_jobs(path, leave_to_level(overrides), multirun=False)
    return config


def leave_to_level(words: list[str]) -> list[str]:
    """The words, and after a typed speed=LEVEL others that leave to it what FILE or a recipe set.

    A key that is typed beside the level keeps its value.
    """
    typed = {word.partition("=")[0] for word in words}
    if "speed" not in typed:
        return words
    decided = ["speed"]
    for name, key in keys(Config).items():  # each stands behind the one that it follows
        if key.follows in decided:
            decided.append(name)
    left = [name for name in decided if name not in typed]
    return [*words, *(f"{name}={spell(getattr(Config, name))}" for name in left)]


def file_names() -> str:
    """Names of the files in configs/, wrapped into the lines of --help."""
    indent = " " * 14
    text = textwrap.fill(f"{' ' * 16}{', '.join(files.names())}", 96, subsequent_indent=indent)
    return text.strip()


def split_arguments(
    argv: list[str], suggested: Collection[str] = LISTED
) -> tuple[argparse.Namespace, list[str], list[str]]:
    """Hydra's flags, parsed and as typed, and the other words; --key=value becomes key=value.

    Raises ValueError for an unknown flag, with the nearest of `suggested`, or one that is not
    offered.
    """
    parser = Parser("", parents=[get_args_parser()])
    parser.prog = program_command()
    own = {flag for action in parser._actions for flag in action.option_strings}
    argv = [
        word[2:]
        if word.startswith("--") and "=" in word and word.split("=")[0] not in own
        else word
        for word in argv
        if word != "--"
    ]
    options, unknown = parser.parse_known_intermixed_args(argv)
    for flag in unknown:
        key = flag.lstrip("-")
        cure = f"; as a key, write {key}=VALUE" if key in keys(Config) else ending(flag, suggested)
        raise ValueError(f"{flag}: no such flag{cure}")
    for name in REFUSED:
        if getattr(options, name) is not None:
            raise ValueError(
                f"--{name.replace('_', '-')}: this flag of Hydra is not supported; give FILE and "
                "KEY=VALUE"
            )
    flags = [word for word in argv if word not in options.overrides]
    return options, flags, options.overrides


def split_words(words: list[str], config_name: str | None) -> tuple[Path | None, list[str]]:
    """The config file, if any, and the overrides. Raises ValueError for a word that is neither."""
    overrides = [word for word in words if "=" in word or word.startswith(("+", "~"))]
    named = [word for word in words if word not in overrides]
    if config_name is not None:
        named.append(config_name)
    paths = [find_config(word) for word in named]
    if len(paths) > 1:
        raise ValueError(f"{' and '.join(named)}: give at most one config file")
    return (paths[0] if paths else None), overrides


def find_config(word: str) -> Path:
    if path := files.find(word):
        return path
    if word in keys(Config):
        raise ValueError(f"{word}: this key has no value; write {word}=VALUE")
    raise ValueError(files.missing_message(word))


def sets_hydra(path: Path | None, overrides: list[str]) -> bool:
    """Whether a setting of Hydra's own is set: a launcher, a variable, a folder of its records.

    A file with a defaults list counts, since it may lead to another file that sets one.
    """
    return any(word.lstrip("+~").startswith("hydra") for word in overrides) or (
        path is not None and not {"hydra", "defaults"}.isdisjoint(files.load(path))
    )


def complete(shell: str) -> None:
    """Print what TAB offers for the last word of the line, which the shell passes in COMP_LINE."""
    *words, last = os.environ.get("COMP_LINE", "").split(" ")
    named = [path for word in words if "=" not in word and (path := files.find(word))]
    with suppress(ValueError):  # from a broken file: a message would be printed into the prompt
        (config,) = compose_jobs(named[0] if named else None, [], multirun=False)
        print(("\n" if shell == "fish" else " ").join(completions(last, config)))
