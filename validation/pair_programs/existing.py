"""Programs of the other folders, started with a plain change in them.

Those of foreign_programs take their parts by name from their modules, where a change puts other
ones while the step is made. The trainer's plants run in the real loop, which is marked.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from profiling.recording.spans import Spans
from validation.foreign_programs import parts as foreign_parts
from validation.foreign_programs.parts import Step
from validation.foreign_programs.series import PROGRAMS as FOREIGN
from validation.framework_programs.parts import Mark, size

WORKERS = 8
ENDLESS = "max_iters=1000000000 eval_interval=1000000000 eval_iters=1 log_interval=10"
ENDLESS += " wandb.mode=disabled checkpoint_interval_s=0"
ON_CPU = "device=cpu compile=false cuda_graphs=false kernels=compiled attention=math dtype=float32"
ON_CPU += " n_layer=1 n_head=2 n_embd=16 block_size=16 batch_size=2"


def with_options(of: Callable[..., Any], **given: object) -> Callable[..., Any]:
    """The function with these options, whatever its caller says of them."""
    return lambda *arguments, **options: of(*arguments, **{**options, **given})


def to_channels_last(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    def made(*arguments: Any, **options: Any) -> nn.Module:
        return make(*arguments, **options).to(memory_format=torch.channels_last)  # type: ignore[no-any-return, call-overload]

    return made


Replaced = dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]]
# plain change -> what it makes of the names that a program finds in its module
CHANGES: dict[str, Replaced] = {
    "fused_optimizer": {"AdamW": partial(with_options, fused=True)},
    "channels_last": {"torchvision_model": to_channels_last, "timm_model": to_channels_last},
    "workers": {"DataLoader": partial(with_options, num_workers=WORKERS)},
    "pinned": {
        "DataLoader": partial(with_options, pin_memory=True),
        "loader_step": partial(with_options, non_blocking=True),
    },
}


@contextmanager
def changed(modules: list[ModuleType], change: str) -> Iterator[None]:
    """Put the change's functions into the modules that have these names, within the block."""
    with ExitStack() as patches:
        for module in modules:
            for name, replaced in CHANGES[change].items():
                if hasattr(module, name):
                    patches.enter_context(
                        patch.object(module, name, replaced(getattr(module, name)))
                    )
        yield


def foreign_step(name: str, variant: str) -> Step:
    """Step of a foreign program as it is, without its fault, or with a change."""
    make = FOREIGN[name].make
    if variant not in CHANGES:
        return make(variant != "without")
    with changed([import_module(make.__module__), foreign_parts], variant):
        return make(True)


def run_framework(module: str, name: str, variant: str, mark: Mark) -> None:
    """Run a framework's program without end; its loader is the one that a change is put into."""
    of = import_module(f"validation.framework_programs.{module}")
    run = getattr(of, name)
    if variant not in CHANGES:
        return run(variant != "without", mark)  # type: ignore[no-any-return]
    with changed([of, torch.optim], variant):
        run(True, mark)


def run_trainer(words: str, put: Callable[[], None], mark: Mark) -> None:
    """Train by these keys without end, with a fault put into the trainer, in a folder of its own.

    `mark` is called as each iteration begins. The phases have their ranges, as in each capture of
    the trainer.
    """
    import train
    from configs import command_line
    from training import profiler

    put()
    accumulate = train.accumulate

    def accumulate_marked(*given: Any) -> None:
        mark()
        accumulate(*given)

    given = f"{ENDLESS} {words} {size('', ON_CPU)}".split()
    keys = dict(word.split("=", 1) for word in given)  # the last of each
    with (
        TemporaryDirectory(prefix="trained-") as folder,
        patch.object(train, "accumulate", accumulate_marked),
        patch.object(profiler, "spans_for", lambda kind: Spans(recording=True)),
    ):
        keys["out_dir"] = f"{folder}/run"
        sys.argv = ["train.py", "shakespeare_char", *(f"{k}={v}" for k, v in keys.items())]
        command_line.run(train.train)
