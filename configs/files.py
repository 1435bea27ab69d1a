"""The files of experiments: where a word of the command line finds one, and what it holds.

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
# folders of configs/ by the option that holds where none is asked for
SECTIONS = {"profile": "none"}  # their files set the keys of a section, below FILE's own
PRESETS = {"recipe": "nanogpt"}  # theirs set flat keys, over those of FILE
MOST_VALUES = 10_000  # of a file: a few lines of aliases can stand for more than memory holds


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def groups() -> list[str]:
    """GROUP=OPTION sets what configs/GROUP/OPTION.yaml says."""
    return [*SECTIONS, *PRESETS]


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (FOLDER / group).glob("*.yaml"))


def find(word: str) -> Path | None:
    """The file that `word` means: a path to any YAML or Python file, or a YAML file of configs/.

    The last as NAME, NAME.yaml, configs/NAME.yaml or, as nanoGPT spells it, config/NAME.yaml,
    from any working directory.
    """
    path = Path(word)
    if path.suffix in (".yaml", ".yml", PYTHON) and path.is_file():
        return path
    if path.parts[:1] in (("config",), ("configs",)):
        path = Path(*path.parts[1:])
    own = FOLDER / path.with_name(path.name.removesuffix(".yaml") + ".yaml") if path.name else path
    return own if own.is_file() else None


def name_of_long_number(node: yaml.MappingNode) -> str | None:
    """The key whose value has more digits than Python makes a number of; None: there is none."""
    for name, value in node.value:
        inner = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for each in inner:
            if isinstance(each, yaml.MappingNode) and (found := name_of_long_number(each)):
                return f"{name.value}.{found}"
            if each.tag.endswith(":int") and len(each.value) > sys.get_int_max_str_digits() > 0:
                return str(name.value)
    return None


def values_within(node: yaml.Node, most: int) -> int:
    """How many an alias-free writing would have, counted up to one more than `most`."""
    waiting, count = [node], 0
    while waiting and count <= most:
        node = waiting.pop()
        count += 1
        if isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
    return count


def missing(word: str) -> str:
    """What to say of a word that `find` finds no file for."""
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
    """The mapping in a file, interpolations as they stand; an empty file is an empty one.

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
                f"{path}: its aliases (*NAME) go round in a circle, or stand for more than "
                f"{MOST_VALUES:,} values; write the values themselves"
            )
        if name := name_of_long_number(root):
            raise ValueError(f"{path}: {name}: a number too long to be read")
        values = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        assert isinstance(values, dict)
        # in_force: a finished run's config.yaml says what its keys came to
        return {str(key): value for key, value in values.items() if key != "in_force"}
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ValueError(f"{path}{place}: broken YAML: {error.problem}") from error
    except RecursionError as error:
        raise ValueError(f"{path}: cannot be read: nested too deeply") from error
    except (yaml.YAMLError, UnicodeDecodeError, OmegaConfBaseException, OSError) as error:
        raise ValueError(f"{path}: cannot be read: {one_line(error)}") from error
