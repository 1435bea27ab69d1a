"""Warnings about keys on the command line that change nothing beside the others given there.

They are warnings and not errors, since users turn a switch off for one run and on for the next.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from cli.errors import note_once
from configs.sampling import SampleConfig
from configs.schema import Config

C = TypeVar("C", contravariant=True)


@dataclass(frozen=True)
class Rule(Generic[C]):
    patterns: tuple[str, ...]  # shell patterns of keys' names
    is_idle: Callable[[C], bool]  # whether these keys change nothing in this configuration
    without: str  # the reason, after "no effect"


def compiles(config: Config) -> bool:
    """Whether the run may use torch.compile."""
    return config.compile is not False


def has_one_rank(config: Config) -> bool:
    """Whether no other process shares the run, as torchrun and Slurm say in the environment."""
    return os.environ.get("WORLD_SIZE", "1") == "1"


OF_TORCH = ("profile.shapes", "profile.memory")
STACK = Rule[Config | SampleConfig](
    ("profile.stack",),
    lambda c: c.profile.kind not in ("torch", "nsys"),
    "without profile=torch|nsys",
)
TRAINING: tuple[Rule[Config], ...] = (
    Rule(
        ("profile.*",),
        lambda c: c.profile.kind == "none",
        "without profile=nsys|torch|memory, or a trigger",
    ),
    Rule(
        ("profile.warmup", *OF_TORCH),
        lambda c: c.profile.kind != "torch",
        "without profile=torch",
    ),
    STACK,
    Rule(
        ("profile.every",), lambda c: c.profile.windows == 1, "with one window; add profile.windows"
    ),
    Rule(("compile_*",), lambda c: not compiles(c), "without compile"),
    Rule(
        ("bucket_mb", "all_reduce", "shard_ranks", "parallel"),
        has_one_rank,
        "on one rank; start several with torchrun",
    ),
    Rule(
        ("warmup_iters", "lr_decay", "lr_decay_iters", "min_lr"),
        lambda c: not c.decay_lr,
        "with decay_lr=false",
    ),
    Rule(
        ("exact_resume",),
        lambda c: c.init_from != "resume" and not c.go_on,
        "without init_from=resume or go_on=true",
    ),
    Rule(
        ("gpu_metrics.interval_ms",),
        lambda c: c.gpu_metrics.enabled == "false",
        "with gpu_metrics.enabled=false",
    ),
    Rule(("wandb.*",), lambda c: c.wandb.mode == "disabled", "with wandb.mode=disabled"),
)
SAMPLING: tuple[Rule[SampleConfig], ...] = (
    Rule(("profile.*",), lambda c: c.profile.kind == "none", "without profile=nsys|torch|memory"),
    Rule(OF_TORCH, lambda c: c.profile.kind != "torch", "without profile=torch"),
    STACK,
    Rule(("top_k",), lambda c: c.temperature == 0, "with temperature=0"),
)
SWITCHES = ("profile.kind", "wandb.mode")  # never idle, although a section's pattern matches them
OF_SWEEPS = ("hydra.sweep", "hydra.launcher", "hydra/launcher")  # prefixes of Hydra's own keys


def idle_keys(rules: tuple[Rule[C], ...], typed: Iterable[str], configs: list[C]) -> Iterator[str]:
    """Lines about the `typed` keys that change nothing in any of the `configs`."""
    for name in dict.fromkeys(typed):
        for rule in rules:
            matches = name not in SWITCHES and any(fnmatchcase(name, p) for p in rule.patterns)
            if matches and all(rule.is_idle(config) for config in configs):
                yield f"{name}: has no effect {rule.without}"
                break


def say_idle_keys(rules: tuple[Rule[C], ...], words: list[str], configs: list[C]) -> None:
    """Print a line on stderr, on the first rank, about each key of `words` that changes nothing."""
    typed = (word.partition("=")[0].lstrip("-+") for word in words)
    for line in idle_keys(rules, typed, configs):
        note_once(f"warning: {line}")


def say_idle_sweep(words: list[str]) -> None:
    """Print a line about each of Hydra's keys that only a sweep reads; to be called without one."""
    typed = (word.partition("=")[0].lstrip("-+") for word in words)
    for name in typed:
        if name.startswith(OF_SWEEPS):
            note_once(f"warning: {name}: has no effect without -m")
