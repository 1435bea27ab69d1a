"""TAB completion after `python train.py ...`: the words that the one being typed may become."""

import glob
import os
from operator import attrgetter
from pathlib import Path

from cli.keys import keys, spell
from configs import files
from configs.data import BUILT_IN
from configs.schema import Config

FLAGS = ("--help", "--multirun", "--cfg", "--info", "--config-name=", "--resolve", "--version")
YAML = (".yaml", ".yml")


def completions(word: str, config: Config) -> list[str]:
    """Completions of `word`, sorted; a key without choices offers its value in `config`."""
    dashes = "--" if word.startswith("--") else ""
    name, equals, typed = word.removeprefix("--").partition("=")
    if equals:
        offered = [f"{dashes}{name}={value}" for value in values(name, typed, config)]
    else:
        names = [*keys(Config), *files.groups()]
        offered = [f"{dashes}{name}=" for name in names if not name.endswith(".kind")]
        offered += FLAGS if word.startswith("-") else file_names(word)
    return sorted({completion for completion in offered if completion.startswith(word)})


def values(name: str, typed: str, config: Config) -> list[str]:
    if name in files.groups():
        return files.options(name)
    key = keys(Config).get(name)
    if key is None:
        return []
    if key.path and typed:
        return paths(typed) + list(BUILT_IN if key.name == "dataset" else ())
    if key.name == "dataset":
        return list(BUILT_IN)
    if key.kind is bool:
        return ["true", "false"]
    value = attrgetter(name)(config)
    return list(key.choices) or ([] if value is None else [spell(value)])


def file_names(word: str) -> list[str]:
    """Config files to offer: experiments by each of their names, YAML files by their paths."""
    own = [f"{folder}{name}.yaml" for folder in ("config/", "configs/") for name in files.names()]
    if not word:
        return own[: len(files.names())]
    own += files.names()
    return own + [path for path in paths(word) if path.endswith(("/", *YAML))]


def paths(word: str) -> list[str]:
    """Paths that begin with `word`; a folder ends with a slash."""
    matches = glob.glob(glob.escape(os.path.expanduser(word)) + "*")
    return [f"{path}/" if Path(path).is_dir() else path for path in matches]
