"""Defaults <- YAML file <- command line -> Config: composed by Hydra, checked before anything runs.

Called by configs.command_line. What a user writes is checked piece by piece against the schema,
so that a message can say which piece is wrong; few mistakes are left to Hydra's own exceptions.
"""

import copy
import itertools
import os
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, Sweep, ValueType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException, ValidationError

from cli.errors import ending, one_line
from cli.interrupts import leave_on_signal
from cli.keys import TYPE_NAMES, Value, choice, keys, spell, unknown_key, valid_value
from configs import files
from configs.gpt2 import CONTEXT, SHAPE, shape_of
from configs.nanogpt import DEFAULTS, PYTHON, merge
from configs.schema import Config

# names in Hydra's ConfigStore; no file of configs/ may bear them
PRIMARY, SCHEMA = "_primary", "_schema"

composed: dict[tuple[str, ...], DictConfig] = {}  # by compose_base

LONGEST_NAME = 128  # characters that W&B allows in a run's name

# settings of Hydra's own that have an effect here, with all settings below them
HYDRA_KEYS = (
    *("hydra.launcher", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.job.env_set"),
    *("hydra.verbose", "hydra.searchpath", "hydra.callbacks"),
)
SWEPT = "hydra.sweeper.params."
SEARCHPATH = "hydra.searchpath"
# Hydra's message about a missing file of a group
NO_OPTION = re.compile(r"Could not find '([\w/]+)/([^/']+)' Available options in '[^']+': (.+)")

# Hydra composes and sweeps; folders, logging and records belong to the trainer
HYDRA_SETTINGS = {
    "job": {"name": "train", "chdir": False},
    "run": {"dir": "."},
    "sweep": {"dir": "${out_dir}", "subdir": "${hydra.job.override_dirname}"},
    "output_subdir": None,
    "job_logging": {"root": None},
    "hydra_logging": {"root": None},
}


@leave_on_signal()
def compose_jobs(path: Path | None, arguments: list[str], multirun: bool) -> list[Config]:
    """Configuration of every job: one, or with `multirun` one for each swept combination.

    `arguments` are Hydra overrides. The primary config is left in Hydra's ConfigStore under
    PRIMARY. Raises ValueError.
    """
    values = load(path)
    try:
        with initialize_config_dir(str(files.FOLDER), version_base=None):
            parser = OverridesParser.create(GlobalHydra.instance().config_loader())
            overrides = [parse_override(parser, text, multirun) for text in arguments]
            # the last override of a key counts; a job's folder is named after what is swept
            values = with_nanogpt_defaults(path, values, overrides)
            values = with_checkpoint_folder(path, values, overrides)
            named = {o.key_or_group: o.is_sweep_override() for o in overrides} | {"out_dir": False}
            unnamed = [key for key in named if not named[key]]
            store_primary(values, unnamed)
            lines = [arguments]
            if multirun:
                (lines,) = BasicSweeper.split_arguments(overrides, None)
            words = {t: parser.parse_override(t) for t in dict.fromkeys(itertools.chain(*lines))}
            for override in words.values():
                check_override(override)
            base_of = cache(lambda *base: compose_base(values, list(base)))
            jobs = []
            for line in lines:
                job = copy.deepcopy(base_of(*(t for t in line if not sets_key(words[t]))))
                for override in (words[t] for t in line if sets_key(words[t])):
                    OmegaConf.update(job, override.key_or_group, override.value())
                shape = take_shape(job, values.keys() | named.keys())
                name = sorted(t for t in line if named[words[t].key_or_group])
                jobs.append(to_config(job, ",".join(name)))
            if shape and not multirun:  # so that --cfg and --info show it
                store_primary(values | shape, unnamed)
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(explain(error, path)) from error
    check_folders(jobs)
    return jobs


def compose_base(values: dict[str, Value], base: list[str]) -> DictConfig:
    """Configuration of PRIMARY, which has these values, with overrides of groups.

    Hydra is slow at groups: it composes once for all jobs that share these, and for all processes
    that a verb plans. With settings of Hydra's own, such as a search path, each call composes.
    """
    if "hydra" in values or any("hydra" in text.partition("=")[0] for text in base):
        return compose(PRIMARY, base)
    key = (str(files.FOLDER), repr(values), *base)
    if key not in composed:
        composed[key] = compose(PRIMARY, base)
    return composed[key]


def with_checkpoint_folder(
    path: Path | None, values: dict[str, Value], overrides: list[Override]
) -> dict[str, Value]:
    """The file's values; out_dir is the file's folder if it resumes a checkpoint that lies there.

    The folder of a run may have been moved or copied since; out_dir on the command line wins.
    """
    typed = {o.key_or_group: o.value() for o in overrides}
    resumes = typed.get("init_from", values.get("init_from")) == "resume"
    if path and resumes and "out_dir" not in typed and (path.parent / "ckpt.pt").is_file():
        return values | {"out_dir": str(path.parent)}
    return values


def with_nanogpt_defaults(
    path: Path | None, values: dict[str, Value], overrides: list[Override]
) -> dict[str, Value]:
    """The file's values; those of a nanoGPT file over the defaults of nanoGPT's train.py.

    The defaults include the model's shape only for a start from scratch: GPT-2's or other weights
    bring their own.
    """
    if path is None or path.suffix != PYTHON:
        return values
    typed = {o.key_or_group: o.value() for o in overrides}
    begins = str(typed.get("init_from", values.get("init_from", "scratch")))
    of_weights = begins.startswith("gpt2") or begins == "weights"
    shape = (*SHAPE, CONTEXT) if of_weights else ()
    return merge({k: v for k, v in DEFAULTS.items() if k not in shape}, values)


def take_shape(job: DictConfig, named: Collection[str]) -> dict[str, Value]:
    """Set the model's keys to the shape of init_from's weights, and return these keys and values.

    `named` are the keys that the file and the command line set. Raises ValueError if they ask for
    another shape, or name weights without an init_from that reads them.
    """
    if job.weights and "init_from" not in named:
        raise ValueError(
            f"weights={job.weights}: not read with init_from=scratch; add init_from=gpt2, or "
            "init_from=weights for weights of another shape"
        )
    init_from = valid_value(keys(Config)["init_from"], job.init_from)
    shape = shape_of(str(init_from), job.weights)
    for name, of_weights in shape.items():
        own = name in named or job[name] != getattr(Config, name)
        shorter = name == CONTEXT and own and job[name] < of_weights
        if own and not shorter and job[name] != of_weights:
            less = " or use a smaller value" if name == CONTEXT else ""
            raise ValueError(
                f"{name}={spell(job[name])}: init_from={init_from} has {spell(of_weights)}; leave "
                f"{name} out{less}"
            )
        if not shorter:
            OmegaConf.update(job, name, of_weights)
    return {name: job[name] for name in shape}


def sets_key(override: Override) -> bool:
    """Whether the override sets a key, rather than a group's option or a setting of Hydra's."""
    choosing = override.key_or_group in files.groups() or override.package is not None
    return not choosing and not override.is_hydra_override()


def named_keys(path: Path | None, words: list[str]) -> set[str]:
    """Keys that the file and the words of the command line set."""
    typed = {word.partition("=")[0].lstrip("+~") for word in words}
    return typed | files.load(path).keys() if path else typed


def to_config(job: DictConfig, subdir: str) -> Config:
    """Turn what Hydra composed into the typed configuration.

    A job of a sweep writes into its own `subdir`. In W&B the jobs share a group, which is named
    after their parent folder, and each job's name says what it varies.
    """
    config = OmegaConf.to_object(job)
    assert isinstance(config, Config)
    if subdir:
        config.wandb.group = config.wandb.group or os.path.basename(os.path.abspath(config.out_dir))
        config.wandb.name = f"{config.wandb.name or config.dataset_name}-{subdir}"[:LONGEST_NAME]
        config.out_dir = os.path.join(config.out_dir, subdir)
    return config


def load(path: Path | None) -> dict[str, Value]:
    """Keys and values of the file, each checked against the schema. Raises ValueError."""
    values = files.load(path) if path else {}
    for name, value in values.items():
        try:
            if name == "defaults" and not isinstance(value, list):
                raise ValueError("defaults: must be a list")
            if name == "hydra" and not isinstance(value, dict):
                raise ValueError("hydra: must be a mapping")
            if name == "hydra":
                assert isinstance(value, dict)
                for setting in hydra_keys(value):
                    check_hydra_key(setting)
                check_hydra_value(SEARCHPATH, value.get("searchpath"))
            if "." in name:
                raise ValueError(f"{name}: in a file, write this key under its section")
            if name not in ("defaults", "hydra"):
                check_value(name, value)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return values


def store_primary(values: dict[str, Value], unnamed: list[str]) -> None:
    """Store the primary config in Hydra's ConfigStore: the file's values over the schema.

    The project's settings of Hydra lie between the two. A defaults list of the file's own stays;
    its groups come from configs/. The file's section of a group's name overrides the group's
    option, and its key `kind` names the option. A preset overrides the file. The `unnamed` keys are
    left out of the name of a job's folder.
    """
    folders = {"job": {"config": {"override_dirname": {"exclude_keys": unnamed}}}}
    defaults = values.get("defaults") or []
    assert isinstance(defaults, list)
    # Hydra wants the entries "override GROUP: OPTION" last
    last = [d for d in defaults if isinstance(d, dict) and any("override " in key for key in d)]
    defaults = [d for d in defaults if d not in last]
    if "_self_" not in defaults:
        defaults.append("_self_")
    chosen = {name for entry in defaults if isinstance(entry, dict) for name in entry}
    groups: list[Value] = []
    for group, default in files.SECTIONS.items():
        section = values.get(group, {})
        assert isinstance(section, dict)
        option = check_option(group, section.get("kind", default))
        if group not in chosen:
            groups.append({group: option})
        if group in values:
            values = {**values, group: {k: v for k, v in section.items() if k != "kind"}}
    presets: list[Value] = [{g: option} for g, option in files.PRESETS.items() if g not in chosen]
    defaults = [*defaults, *presets, *last]
    hydra = OmegaConf.merge(HYDRA_SETTINGS, folders, values.get("hydra") or {})
    store_schema()
    ConfigStore.instance().store(
        PRIMARY, {**values, "defaults": [SCHEMA, *groups, *defaults], "hydra": hydra}
    )


@cache
def store_schema() -> None:
    """Store the schema, which no composition changes, in Hydra's ConfigStore."""
    ConfigStore.instance().store(SCHEMA, Config)


def parse_override(parser: OverridesParser, text: str, multirun: bool) -> Override:
    """Parse one argument by Hydra's grammar. Several values without -m raise ValueError, too."""
    if text.startswith("="):
        raise ValueError(f"{text}: no key before the '='; write key=value")
    try:
        override = parser.parse_override(text)
    except HydraException as error:
        raise ValueError(
            f"{text}: not understood ({one_line(error).split(' expecting ')[0]}); put a value "
            "with special characters in its own quotes: 'key=\"value\"'"
        ) from error
    except ValueError as error:  # Python's own, of a number with thousands of digits
        raise ValueError(f"{text}: this number has too many digits") from error
    if override.is_sweep_override() and not multirun:
        raise ValueError(
            f"{text}: several values; add -m to train once with each "
            f"(or write [a,b] for a list, 'key=\"a,b\"' for a text)"
        )
    if override.value_type is ValueType.GLOB_CHOICE_SWEEP:
        name = override.key_or_group
        some = files.options(name) if name in files.groups() else ["VALUE", "VALUE"]
        raise ValueError(
            f"{text}: patterns are not supported; name the values: {name}={','.join(some)}"
        )
    if override.is_sweep_override() and not override.is_discrete_sweep():
        raise ValueError(
            f"{text}: an interval has infinitely many values; write range(START,STOP,STEP)"
        )
    return override


def check_override(override: Override) -> None:
    """Raise ValueError for a key or value that the schema, the groups or Hydra do not know."""
    name, typed, groups = override.key_or_group, override.input_line, files.groups()
    value = override.value()
    assert not isinstance(value, Sweep)  # a job has one value of a sweep
    if override.is_hydra_override():
        check_hydra_key(name)
        check_hydra_value(name, value)
        return
    changing = override.type in (OverrideType.ADD, OverrideType.DEL)
    if changing and name in {*keys(Config), *groups}:
        raise ValueError(f"{typed}: keys cannot be added or deleted; write {name}=VALUE")
    section, _, key = name.partition(".")
    if name in groups:
        check_option(name, value)
    elif section in groups and key == "kind":
        raise ValueError(f"{typed}: write {section}={check_option(section, value)}")
    else:
        check_value(name, value)


def check_hydra_key(name: str) -> None:
    """Raise ValueError for a setting of Hydra's that would change nothing.

    Groups, with a slash in the name, are left to Hydra to check.
    """
    if "/" in name or any(name == key or name.startswith(f"{key}.") for key in HYDRA_KEYS):
        return
    if f"{name}.".startswith(SWEPT):
        raise ValueError(f"{name}: give the key directly, with -m: -m KEY=A,B")
    if name in ("hydra.run.dir", "hydra.job.chdir", "hydra.output_subdir"):
        raise ValueError(f"{name}: has no effect here; set the folder of a run with out_dir=FOLDER")
    raise ValueError(
        f"{name}: has no effect here; of Hydra's keys only {', '.join(HYDRA_KEYS)} have an effect"
    )


def check_hydra_value(name: str, value: Value) -> None:
    """Raise ValueError for a value that Hydra would ignore: a missing folder, a launcher's name."""
    if name == "hydra.launcher":
        raise ValueError(f"{name}={spell(value)}: this is a section; write hydra/launcher=NAME")
    for path in value if name == SEARCHPATH and isinstance(value, list) else []:
        place = str(path).removeprefix("file://")
        if "://" not in place and "${" not in place and not Path(place).is_dir():
            raise ValueError(f"{name}={spell(value)}: {place}: no such folder")


def hydra_keys(section: dict[str, Value], prefix: str = "hydra") -> Iterator[str]:
    """Names of the settings in a file's section `hydra`, spelled as on the command line."""
    for name, value in section.items():
        inner = f"{prefix}.{name}"
        if isinstance(value, dict) and inner not in HYDRA_KEYS:
            yield from hydra_keys(value, inner)
        else:
            yield inner


def without_sweeper_params(overrides: list[str], multirun: bool) -> list[str]:
    """Replace hydra.sweeper.params.KEY=A,B, Hydra's other spelling of a sweep, by KEY=A,B.

    As in Hydra, a word for the key itself takes precedence. Raises ValueError without -m.
    """
    params = [word for word in overrides if word.lstrip("+").startswith(SWEPT)]
    if params and not multirun:
        raise ValueError(
            f"{params[0]}: has no effect without -m; add -m to train once with each value"
        )
    own = [word for word in overrides if word not in params]
    own_keys = {word.partition("=")[0].lstrip("+") for word in own}
    named = [word.lstrip("+").removeprefix(SWEPT) for word in params]
    return [*(word for word in named if word.partition("=")[0] not in own_keys), *own]


def check_package(name: str) -> None:
    """Raise ValueError for a package that the configuration in Hydra's ConfigStore lacks."""
    with initialize_config_dir(str(files.FOLDER), version_base=None):
        composed = compose(PRIMARY, return_hydra_config=True)
    if name != "_global_" and OmegaConf.select(composed, name, throw_on_missing=False) is None:
        raise ValueError(
            f"--package {name}: not in the configuration; name a section such as wandb"
        )


def check_option(group: str, option: Value) -> str:
    """The option, if configs/GROUP/ has its file. Raises ValueError if not."""
    return choice(group, option, files.options(group))


@cache
def scratch() -> DictConfig:
    """The schema as a config to try single values on, cached: making it takes long."""
    schema: DictConfig = OmegaConf.structured(Config)
    return schema


def check_value(name: str, value: Value) -> None:
    """Raise ValueError for an unknown key or a wrong value; a section is checked key by key."""
    known = keys(Config)
    inner = [key for key in known if key.startswith(f"{name}.")]
    if inner:
        if not isinstance(value, dict):
            raise ValueError(f"{name}={spell(value)}: {name} is a section; write {inner[0]}=VALUE")
        for inner_name, inner_value in value.items():
            check_value(f"{name}.{inner_name}", inner_value)
        return
    if name not in known:
        raise ValueError(unknown_key(name, known))
    key = known[name]
    try:
        if value == "???":  # OmegaConf's "to be given" would leave the default in force
            raise MissingMandatoryValue
        if key.kind is bool and isinstance(value, (int, float)) and value not in (0, 1):
            raise ValidationError  # OmegaConf would read 2 and 3 as true
        OmegaConf.update(scratch(), name, value)
    except OmegaConfBaseException:
        words = [f"[{word}]" for word in key.choices if key.kind is list]
        kind = " or ".join([TYPE_NAMES[key.kind], *words, *(["null"] if key.optional else [])])
        raise ValueError(f"{name}={spell(value)}: must be {kind}") from None
    if "${" not in str(value):
        valid_value(key, value)


def check_folders(jobs: list[Config]) -> None:
    """Raise ValueError for a sweep in which two jobs would write into one folder."""
    taken: dict[str, int] = {}
    for number, job in enumerate(jobs, start=1):
        first = taken.setdefault(os.path.abspath(job.out_dir), number)
        if first != number:
            both = f"jobs {first} and {number} would both write to {job.out_dir}"
            raise ValueError(f"out_dir: {both}; give the jobs different values")


def with_cure(name: str, message: str) -> str:
    """OmegaConf's message about a key, and what to write instead, if that is known."""
    if variable := re.search(r"Environment variable '([^']+)' not found", message):
        lacks = f"the environment variable {variable[1]} is not set"
        return f"{lacks}; set it, or write ${{oc.env:{variable[1]},VALUE}}"
    if "Unsupported interpolation type" in message:
        return f"{message}; write ${{KEY}} or ${{oc.env:VARIABLE}}"
    if "not in struct" in message:
        return f"{message}; to add it, write +{name}=VALUE"
    return f"{message}; --cfg hydra shows what there is" if name.startswith("hydra.") else message


def explain(error: Exception, path: Path | None) -> str:
    """One-line message about a mistake that only Hydra or OmegaConf noticed.

    Examples are a broken interpolation and a missing group.
    """
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        name = cause.full_key
        written = files.load(path).get(name.partition(".")[0]) if path else None
        place = f"{path}: " if "${" in str(written) else ""
        missing = re.search(r"Interpolation key '([^']+)' not found", str(cause))
        message = str(cause).splitlines()[0]
        near = ending(missing[1], keys(Config)) if missing else ""
        return f"{place}{name}: {with_cure(name, message)}{near}"
    text = one_line(cause).split(" Config search path:")[0]
    if option := NO_OPTION.search(text):
        text = f"{option[1]}={option[2]}: no such option; the options are {option[3]}"
    if "launcher=submitit" in text:
        text += "; install those of submitit with pip install '.[slurm]'"
    return text.replace(f"'{PRIMARY}'", PRIMARY).replace(PRIMARY, str(path or "the defaults"))
