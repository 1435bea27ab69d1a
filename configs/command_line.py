"""The command line of train.py: Hydra's, with a config file as a plain argument.

    python train.py [FLAGS] [FILE] [KEY=VALUE ...]

train.py calls `run(train)`. Every configuration, under -m those of all jobs, is composed and
checked before the first job trains; only then does Hydra itself take over.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import env_override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from cli.errors import suggestion, user_errors
from cli.keys import keys
from configs import files
from configs.compose import PRIMARY, compose_jobs, explain, to_config
from configs.help import TRAIN_HELP, key_table
from configs.schema import Config

REFUSED = {
    "config_path": "--config-path: not offered; give the path of the YAML file itself",
    "config_dir": "--config-dir: not offered; give the path of the YAML file itself",
    "experimental_rerun": "--experimental-rerun: not offered, a pickle may run any code; "
    "repeat the command line",
}


def run(train: Callable[[Config], None]) -> None:
    """Calls `train` once, or under -m once for each job, with the configuration of sys.argv.

    A ValueError, from here or from `train`, ends the program with one line and exit code 2.
    """
    with user_errors():
        options, flags, words = split_arguments(sys.argv[1:])
        if options.shell_completion:
            path, overrides = config_on_typed_line(), []
        else:
            path, overrides = split_words(words, options.config_name)
        if options.help:
            (config,) = compose_jobs(path, [], multirun=False)
            print(TRAIN_HELP.format(files=", ".join(files.names())) + "\n" + key_table(config))
            return
        jobs = compose_jobs(path, overrides, options.multirun)
        asked = words if options.shell_completion else [] if options.hydra_help else overrides
        try:
            hydra_main(train, [*flags, "--config-name", PRIMARY, *asked], len(jobs))
        except (HydraException, OmegaConfBaseException) as error:
            raise ValueError(explain(error, path)) from error


def hydra_main(train: Callable[[Config], None], arguments: list[str], job_count: int) -> None:
    """Hydra's own main on the rewritten arguments: it shows, completes, or runs the job or jobs."""
    typed = sys.argv

    @hydra.main(version_base=None, config_path=str(files.FOLDER), config_name=PRIMARY)
    def job(composed: DictConfig) -> None:
        sys.argv = typed  # whoever records the command line is to see the user's
        settings = HydraConfig.get()
        swept = settings.mode is RunMode.MULTIRUN
        with user_errors():
            config = to_config(composed, settings.sweep.subdir if swept else None)
            if swept and os.environ.get("RANK", "0") == "0":
                print(f"job {settings.job.num + 1} of {job_count}: {config.out_dir}", flush=True)
            train(config)

    sys.argv = [typed[0], *arguments]
    try:
        with env_override({"HYDRA_FULL_ERROR": "1"}):  # raise, rather than print and exit
            job()
    finally:
        sys.argv = typed


def split_arguments(argv: list[str]) -> tuple[argparse.Namespace, list[str], list[str]]:
    """Hydra's flags as options and as typed, and the other words; --key=value becomes key=value."""
    parser = get_args_parser()
    parser.allow_abbrev = False
    parser.error = refuse
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
        cure = f"; as a key, write {key}=VALUE" if key in keys(Config) else suggestion(flag, own)
        raise ValueError(f"{flag}: no such flag{cure or '; --help lists flags and keys'}")
    for name, message in REFUSED.items():
        if getattr(options, name) is not None:
            raise ValueError(message)
    flags = [word for word in argv if word not in options.overrides]
    return options, flags, options.overrides


def refuse(message: str) -> None:
    raise ValueError(message)


def split_words(words: list[str], config_name: str | None) -> tuple[Path | None, list[str]]:
    """The config file, if any, and the overrides."""
    overrides = [word for word in words if "=" in word or word.startswith(("+", "~"))]
    named = [word for word in words if word not in overrides]
    if config_name is not None:
        named.append(config_name)
    paths = [find_config(word) for word in named]
    if len(paths) > 1:
        raise ValueError(f"{' and '.join(named)}: one config file at most")
    return (paths[0] if paths else None), overrides


def find_config(word: str) -> Path:
    path = files.find(word)
    if path is None and word in keys(Config):
        raise ValueError(
            f"{word}: as a key it lacks its value, write {word}=VALUE; "
            f"as a config file it does not exist (configs/ has {', '.join(files.names())})"
        )
    if path is None:
        raise ValueError(files.missing(word))
    return path


def config_on_typed_line() -> Path | None:
    """For tab completion: takes the config file out of the typed line, which Hydra reads next.

    The shell passes the line in COMP_LINE. Its last word, still being typed, stays.
    """
    *words, last = os.environ.get("COMP_LINE", "").split(" ")
    found = {w: files.find(w) for w in words if not w.startswith("-") and "=" not in w}
    named = [w for w in found if found[w] or w.endswith((".yaml", ".yml"))]
    kept = [w.removeprefix("--") if "=" in w else w for w in words if w not in named]
    os.environ["COMP_LINE"] = " ".join([*kept, last])
    return found[named[0]] if named else None
