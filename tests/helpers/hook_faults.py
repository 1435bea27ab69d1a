"""Trains in forked processes, in each of which one method of the hook raises an error.

hook_faults.py HOOK FOLDER writes FOLDER/METHOD/{result,stderr} and the hook's files there, for each
method that a training enters.
"""

import atexit
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, sys.argv[1])
from _profiling_attach import (
    laps,
    outermost,
    patches,
    phases,
    recorder,
    run_files,
    step_rule,
    window,
)
from _profiling_attach.settings import Settings

OWNERS = (
    *(recorder.Recorder, laps.Laps, phases.Phases, run_files.RunFiles, step_rule.StepRule),
    *(window.Window, outermost.OutermostModules, patches.Patches),
)
# methods of these three catch the errors of the others
GUARDS = {
    recorder.Recorder: "__init__ begin_anew begin_in_child step_aside enter leave forward "
    "mark keep_loss optimizer_made count end yield_profiler",
    patches.Patches: "__init__ wrap_step enter_optimizer",
    outermost.OutermostModules: "phase_of",
}


def train() -> str:
    """Train for 22 steps, which have all kinds of marks, and give the sum of the weights."""
    torch.manual_seed(0)
    batches = torch.utils.data.DataLoader(torch.randn(88, 8), batch_size=4)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=2)
    for x in batches:

        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()  # noqa: B023
            loss.backward()
            return loss

        optimizer.step(closure)
    return repr(model.weight.sum().item())


def unguarded_methods() -> Iterator[tuple[type, str]]:
    """Yield (class, name) of all methods whose errors another one catches."""
    for owner in OWNERS:
        for name, value in vars(owner).items():
            if inspect.isfunction(value) and name not in GUARDS.get(owner, "").split():
                yield owner, name


def train_hooked(folder: Path) -> None:
    """Train under the hook, which writes into the folder, and run its exit handlers."""
    sys.stderr = (folder / "stderr").open("w")
    settings = Settings(str(folder), ["x"], "torch", 6, 3, None, None)
    from _profiling_attach import watch_torch

    watch_torch.attach(settings)
    (folder / "result").write_text(train())
    atexit._run_exitfuncs()
    sys.stderr.flush()


def with_calls_noted(folder: Path) -> None:
    """Train under the hook, and make the folder of each method that is entered."""

    def noted(owner: type, name: str) -> Callable:
        method, place = getattr(owner, name), folder.with_name(f"{owner.__name__}.{name}")

        def noting(*args, **kwargs):
            place.mkdir(exist_ok=True)
            return method(*args, **kwargs)

        return noting

    for owner, name in list(unguarded_methods()):
        setattr(owner, name, noted(owner, name))
    train_hooked(folder)


def with_fault(owner: type, name: str, folder: Path) -> None:
    """Train under the hook, with an error in this method."""

    def method(*args, **kwargs):
        (folder / "reached").touch()
        raise RuntimeError("planted")

    setattr(owner, name, method)
    train_hooked(folder)


def run_in_fork(call: Callable[[], None]) -> None:
    if os.fork() == 0:
        try:
            call()
        finally:
            os._exit(0)
    os.wait()


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(train())  # and what torch imports late is there for all
    for finalizer in list(weakref.finalize._registry):
        finalizer.atexit = False  # torch's own, which take a third of a process's time
    unharmed = Path(sys.argv[2], "no fault")
    unharmed.mkdir()
    run_in_fork(partial(with_calls_noted, unharmed))
    for owner, name in list(unguarded_methods()):
        folder = Path(sys.argv[2], f"{owner.__name__}.{name}")
        if folder.exists():  # the method is entered
            run_in_fork(partial(with_fault, owner, name, folder))
