"""Trains in forked processes, in each of which one method of the hook raises an error.

hook_faults.py HOOK FOLDER writes FOLDER/METHOD/{result,stderr} and the hook's files there.
"""

import atexit
import inspect
import os
import sys
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
# methods of these two catch the errors of the others
GUARDS = {
    recorder.Recorder: "__init__ begin_anew begin_in_child step_aside enter leave forward "
    "mark keep_loss optimizer_made count end yield_profiler",
    patches.Patches: "__init__ before_step after_step",
}


def train() -> str:
    """Train for 25 steps, which have all kinds of marks, and give the sum of the weights."""
    torch.manual_seed(0)
    batches = torch.utils.data.DataLoader(torch.randn(100, 8), batch_size=4)
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


def with_fault(owner: type, name: str, folder: Path) -> None:
    """Train under the hook, with an error in this method."""

    def method(*args, **kwargs):
        (folder / "reached").touch()
        raise RuntimeError("planted")

    setattr(owner, name, method)
    sys.stderr = (folder / "stderr").open("w")
    settings = Settings(str(folder), ["x"], "torch", 12, 5, None, None)
    from _profiling_attach import watch_torch

    watch_torch.attach(settings)
    (folder / "result").write_text(train())
    atexit._run_exitfuncs()
    sys.stderr.flush()


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(train())  # and what torch imports late is there for all
    for owner in OWNERS:
        for name, value in list(vars(owner).items()):
            if not inspect.isfunction(value) or name in GUARDS.get(owner, "").split():
                continue
            folder = Path(sys.argv[2], f"{owner.__name__}.{name}")
            folder.mkdir()
            if os.fork() == 0:
                try:
                    with_fault(owner, name, folder)
                finally:
                    os._exit(0)
            os.wait()
