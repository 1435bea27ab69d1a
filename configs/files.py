"""The files of experiments: how a word of the command line finds one, and how it is read.

They are YAML, or in Python as nanoGPT's own are (configs.nanogpt).

Called by configs.command_line (find) and configs.compose (load).
"""

import sys
from pathlib import Path

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cli.errors import one_line, suggestion
from cli.files import is_pipe
from cli.keys import Value
from configs import nanogpt
from configs.nanogpt import PYTHON

FOLDER = Path(__file__).resolve().parent
# folders of configs/, each with the option that is its default
SECTIONS = {"profile": "none"}  # a file of these sets the keys of a section; FILE overrides them
PRESETS = {"recipe": "nanogpt"}  # a file of these sets flat keys, and overrides those of FILE
MOST_VALUES = 10_000  # in a file: a few lines of aliases can stand for more than memory holds


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def groups() -> list[str]:
    """Names of the groups: GROUP=OPTION sets the keys of configs/GROUP/OPTION.yaml."""
    return [*SECTIONS, *PRESETS]


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (FOLDER / group).glob("*.yaml"))


def find(word: str) -> Path | None:
    """File that `word` means, or None: any YAML or Python file by its path, or one of configs/.

    One of configs/ is spelled NAME, NAME.yaml, configs/NAME.yaml or, as in nanoGPT,
    config/NAME.yaml, from any working directory.
    """
    path = Path(word)
    if path.suffix in (".yaml", ".yml", PYTHON) and path.is_file():
        return path
    if path.parts[:1] in (("config",), ("configs",)):
        path = Path(*path.parts[1:])
    own = FOLDER / path.with_name(path.name.removesuffix(".yaml") + ".yaml") if path.name else path
    return own if own.is_file() else None


def name_of_long_number(node: yaml.MappingNode) -> str | None:
    """Key whose value has more digits than Python converts to a number, or None without one."""
    for name, value in node.value:
        inner = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for part in inner:
            if isinstance(part, yaml.MappingNode) and (key := name_of_long_number(part)):
                return f"{name.value}.{key}"
            if part.tag.endswith(":int") and len(part.value) > sys.get_int_max_str_digits() > 0:
                return str(name.value)
    return None


def values_within(node: yaml.Node, most: int) -> int:
    """Number of values with all aliases written out, counted up to one more than `most`."""
    waiting, count = [node], 0
    while waiting and count <= most:
        node = waiting.pop()
        count += 1
        if isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
    return count


def missing_message(word: str) -> str:
    """Message about a word that `find` finds no file for."""
    problem = "neither key=value nor a config file"
    if word and Path(word).is_dir():
        problem = "a folder, not a YAML file"
    elif word and is_pipe(Path(word)):
        problem = "a device or a pipe, not a YAML file"
    elif word.endswith((".yaml", ".yml", PYTHON)):
        problem = "no such file"
    near = suggestion(Path(word).stem, names())
    return f"{word or repr(word)}: {problem}{near} (configs/ has {', '.join(names())})"


def load(path: Path) -> dict[str, Value]:
    """The mapping in a file, with interpolations left as written; {} if the file is empty.

    Raises ValueError with file, line and column of a mistake in the YAML.
    """
    try:
        if path.suffix == PYTHON:
            return nanogpt.load(path)
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, yaml.SafeLoader)
        if root is None:
            return {}
        if not isinstance(root, yaml.MappingNode):
            raise ValueError(f"{path}: not a mapping; write lines of the form key: value")
        if values_within(root, MOST_VALUES) > MOST_VALUES:
            raise ValueError(
                f"{path}: its YAML aliases (*NAME) are circular or stand for more than "
                f"{MOST_VALUES:,} values; write the values directly"
            )
        if name := name_of_long_number(root):
            raise ValueError(f"{path}: {name}: this number has too many digits")
        values = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        assert isinstance(values, dict)
        # a run's config.yaml has a section in_force, with the values that its keys came to
        return {str(key): value for key, value in values.items() if key != "in_force"}
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ValueError(f"{path}{place}: broken YAML: {error.problem}") from error
    except RecursionError as error:
        raise ValueError(f"{path}: cannot be read: nested too deeply") from error
    except (yaml.YAMLError, UnicodeDecodeError, OmegaConfBaseException, OSError) as error:
        raise ValueError(f"{path}: cannot be read: {one_line(error)}") from error
