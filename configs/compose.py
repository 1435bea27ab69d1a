"""Defaults <- YAML file <- command line -> Config: composed by Hydra, checked before anything runs.

Called by configs.command_line. What a user writes is checked piece by piece against the schema,
so that a message can say which piece is wrong; Hydra's own exceptions are the rare rest.
"""

import itertools
import os
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from cli.errors import one_line, suggestion
from cli.keys import TYPE_NAMES, choice, keys, spell, unknown_key
from configs import files
from configs.schema import Config

# names in Hydra's ConfigStore; no file of configs/ may bear them
PRIMARY, SCHEMA = "_primary", "_schema"

# Hydra composes and sweeps; folders, logging and records belong to the trainer
HYDRA_SETTINGS = {
    "job": {"name": "train", "chdir": False},
    "run": {"dir": "."},
    "sweep": {"dir": "${out_dir}", "subdir": "${hydra.job.override_dirname}"},
    "output_subdir": None,
    "job_logging": {"root": None},
    "hydra_logging": {"root": None},
}


def compose_jobs(path: Path | None, arguments: list[str], multirun: bool) -> list[Config]:
    """The configuration of every job: one, or with `multirun` one for each swept combination.

    `arguments` are Hydra overrides. The primary config is left in Hydra's ConfigStore under
    PRIMARY. Raises ValueError.
    """
    values = load(path)
    try:
        with initialize_config_dir(str(files.FOLDER), version_base=None):
            parser = OverridesParser.create(GlobalHydra.instance().config_loader())
            overrides = [parse_override(parser, text, multirun) for text in arguments]
            store_primary(values, overrides)
            lines = [arguments]
            if multirun:
                (lines,) = BasicSweeper.split_arguments(overrides, None)
            for text in dict.fromkeys(itertools.chain(*lines)):
                check_override(parser.parse_override(text))
            composed = [compose(PRIMARY, list(line), return_hydra_config=True) for line in lines]
            jobs = [to_config(c, c.hydra.sweep.subdir if multirun else None) for c in composed]
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(explain(error, path)) from error
    check_folders(jobs)
    return jobs


def to_config(composed: DictConfig, subdir: str | None) -> Config:
    """The typed object of what Hydra composed.

    A job of a sweep writes into its own `subdir`; in W&B the jobs share a group, which has the
    name of the folder around theirs.
    """
    values = OmegaConf.masked_copy(composed, [key for key in composed if key != "hydra"])
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), values))
    if subdir:
        config.wandb.group = config.wandb.group or os.path.basename(os.path.abspath(config.out_dir))
        config.out_dir = os.path.join(config.out_dir, subdir)
    return config


def load(path: Path | None) -> dict[str, Any]:
    """What the file sets, each key and value checked against the schema."""
    values = files.load(path) if path else {}
    for name, value in values.items():
        try:
            if name == "defaults" and not isinstance(value, list):
                raise ValueError("defaults: must be a list")
            if name == "hydra" and not isinstance(value, dict):
                raise ValueError("hydra: must be a mapping")
            if "." in str(name):
                raise ValueError(f"{name}: in a file, write the key under its section")
            if name not in ("defaults", "hydra"):
                check_value(str(name), value)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return values


def store_primary(values: dict[str, Any], overrides: list[Override]) -> None:
    """Puts the file's values over the schema, with the project's settings of Hydra between.

    A defaults list of the file's own stays, its groups come from configs/. A group's option comes
    below the file's section of that name; the file names the option itself by `kind`. The folder
    of a job in a sweep is named by the swept keys alone.
    """
    swept = {o.key_or_group: o.is_sweep_override() for o in overrides}  # the last one counts
    unnamed = ["out_dir", *(key for key in swept if not swept[key])]
    folders = {"job": {"config": {"override_dirname": {"exclude_keys": unnamed}}}}
    defaults = values.get("defaults") or []
    if "_self_" not in defaults:
        # Hydra wants the entries "override GROUP: OPTION" last
        last = [d for d in defaults if isinstance(d, dict) and any("override " in key for key in d)]
        defaults = [d for d in defaults if d not in last] + ["_self_"] + last
    groups = []
    for group in files.groups():
        section = dict(values.get(group) or {})
        option = check_option(group, section.pop("kind", files.DEFAULT_OPTION))
        if not any(isinstance(d, dict) and group in d for d in defaults):
            groups.append({group: option})
        if section or group in values:
            values = {**values, group: section}
    hydra = OmegaConf.merge(HYDRA_SETTINGS, folders, values.get("hydra") or {})
    store = ConfigStore.instance()
    store.store(SCHEMA, Config)
    store.store(PRIMARY, {**values, "defaults": [SCHEMA, *groups, *defaults], "hydra": hydra})


def parse_override(parser: OverridesParser, text: str, multirun: bool) -> Override:
    """One argument by Hydra's grammar, several values only under -m."""
    if text.startswith("="):
        raise ValueError(f"{text}: no key before the '='; write key=value")
    try:
        override = parser.parse_override(text)
    except HydraException as error:
        raise ValueError(
            f"{text}: not understood ({one_line(error).split(' expecting ')[0]}); "
            f"put a value with special characters in quotes of its own: 'key=\"value\"'"
        ) from error
    if override.is_sweep_override() and not multirun:
        raise ValueError(
            f"{text}: several values; add -m to train once with each "
            f"(or write [a,b] for a list, 'key=\"a,b\"' for a text)"
        )
    if override.is_sweep_override() and not override.is_discrete_sweep():
        raise ValueError(f"{text}: an interval has no end of values; write range(START,STOP,STEP)")
    return override


def check_override(override: Override) -> None:
    """Refuses what the schema does not know; Hydra's own settings and groups are Hydra's matter."""
    name = override.key_or_group
    if override.is_hydra_override():
        return
    known = {*keys(Config), *files.groups()}
    if override.type in (OverrideType.ADD, OverrideType.DEL) and name in known:
        raise ValueError(
            f"{override.input_line}: keys are neither added nor deleted; write {name}=VALUE"
        )
    if name in files.groups():
        check_option(name, override.value())
        return
    section, _, key = name.partition(".")
    if section in files.groups() and key == "kind":
        option = check_option(section, override.value())
        raise ValueError(f"{override.input_line}: write {section}={option}")
    check_value(name, override.value())


def check_option(group: str, option: Any) -> str:
    """The option, if configs/GROUP/ has its file."""
    options = files.options(group)
    if option in options:
        return option
    near = suggestion(spell(option), options)
    raise ValueError(f"{group}={spell(option)}: no such choice{near} ({', '.join(options)})")


def check_value(name: str, value: Any) -> None:
    """Refuses an unknown key and a value of another type; a section is checked key by key."""
    known = keys(Config)
    inner = [key for key in known if key.startswith(f"{name}.")]
    if inner and not isinstance(value, dict):
        raise ValueError(f"{name}={spell(value)}: {name} is a section; write {inner[0]}=VALUE")
    if inner:
        for key, inner_value in value.items():
            check_value(f"{name}.{key}", inner_value)
        return
    if name not in known:
        raise ValueError(unknown_key(name, known))
    key = known[name]
    try:
        if value == "???":  # OmegaConf's "to be given" would leave the default in force
            raise MissingMandatoryValue
        OmegaConf.update(OmegaConf.structured(Config), name, value)
    except OmegaConfBaseException:
        null = " or null" if key.optional else ""
        kind = TYPE_NAMES[key.type] + null
        raise ValueError(f"{name}={spell(value)}: must be {kind}") from None
    if "${" not in str(value):
        choice(key, value)


def check_folders(jobs: list[Config]) -> None:
    """Refuses a sweep in which two jobs would write into one folder."""
    taken: dict[str, int] = {}
    for number, job in enumerate(jobs, start=1):
        first = taken.setdefault(os.path.abspath(job.out_dir), number)
        if first != number:
            raise ValueError(
                f"out_dir: jobs {first} and {number} would both write to {job.out_dir}; "
                f"sweep over different values"
            )


def explain(error: Exception, path: Path | None) -> str:
    """One line for what only Hydra or OmegaConf noticed: an interpolation, a missing group."""
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        return f"{cause.full_key}: {str(cause).splitlines()[0]}"
    text = one_line(cause).split(" Config search path:")[0]
    return text.replace(f"'{PRIMARY}'", PRIMARY).replace(PRIMARY, str(path or "the defaults"))
