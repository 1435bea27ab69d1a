"""Programs of others and the hook that runs in them."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.forked import HOOKED, Forked
from tests.paths import PROJECT

HOOK = PROJECT / "profiling" / "attach" / "hook"
MODEL = """
import sys, torch; from torch import nn
torch.manual_seed(0); torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16))
x = torch.randn(8, 16)
"""
PROGRAMS = {
    "plain": MODEL
    + """
o = torch.optim.AdamW(model.parameters())
for i in range(120):
    loss = (model(x) - x).square().mean(); loss.backward(); o.step(); o.zero_grad()
print(loss.item())
""",
    "gan": MODEL
    + """
critic = nn.Linear(16, 1)
a, b = torch.optim.Adam(model.parameters()), torch.optim.RMSprop(critic.parameters())
for i in range(60):
    for _ in range(2):
        loss = critic(model(x).detach()).mean() - critic(x).mean()
        b.zero_grad(); loss.backward(); b.step()
    loss = -critic(model(x)).mean(); a.zero_grad(); loss.backward(); a.step()
print(loss.item())
""",
    "lbfgs": MODEL
    + """
o = torch.optim.LBFGS(model.parameters(), max_iter=3)
def closure():
    o.zero_grad(); loss = (model(x) - x).square().mean(); loss.backward(); return loss
for i in range(60): loss = o.step(closure)
print(loss.item())
""",
    "inference": MODEL
    + """
with torch.no_grad():
    for i in range(120): x = model(x)
print(x.sum().item())
""",
    "ends": MODEL
    + """
o = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(50):
    model(x).square().mean().backward(); o.step(); o.zero_grad()
print(model[0].weight.sum().item()); sys.exit(3)
""",
}
STEPS = {"plain": 119, "gan": 59, "lbfgs": 59, "inference": 119, "ends": 49}


def run_program(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, hooked, with `folder` as its run's.

    The window of torch.profiler opens behind 30 steps and has ten. It is forked from a process that
    has torch, and what it writes to stderr is in stdout.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder.with_name(f"{folder.name}.py")
    program.write_text(source)
    command = [sys.executable, str(program)]
    settings = {
        **{"folder": str(folder), "command": command, "kind": "torch", "start": 30},
        **{"steps": 10, "step": None, "stop_after": None},
    }
    paths = [str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {"PROFILING_ATTACH": json.dumps(settings), "PYTHONPATH": os.pathsep.join(paths)}
    forked = Forked(["-c", HOOKED, str(program)], {**os.environ, **environ})
    output = forked.communicate(timeout=150)[0]
    return subprocess.CompletedProcess(command, forked.wait(), output)
