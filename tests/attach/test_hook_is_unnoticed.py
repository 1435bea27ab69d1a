"""The hook inside a program: its faults, another sitecustomize, children, forks, torch.compile."""

import json
import sys
import venv

import pytest

from profiling.launch.any_program.start import HOOK
from tests.helpers.hooked import bare_environment, hooked, output
from tests.paths import PROJECT

PYTHON = sys.executable
OURS = {path.stem for path in PROJECT.iterdir() if path.is_dir() or path.suffix == ".py"}
TRAINING = """
import torch
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
"""


# other sitecustomizes

ASKED = (
    "import sys; module = sys.modules.get('sitecustomize');"
    "print(module and module.__file__, sys.path, getattr(sys, 'planted', None),"
    "[name for name in sys.modules if 'profiling' in name and not name.startswith('_prof')])"
)


@pytest.mark.parametrize(
    "body",
    [
        None,
        "import sys; sys.planted = 'by hand'; print('hello')",
        "print('a'); raise KeyError('b')",
    ],
    ids=["absent", "good", "raising"],
)
def test_another_sitecustomize_runs_as_before(body, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    if body:
        (theirs / "sitecustomize.py").write_text(body)
    environ = bare_environment() | {"PYTHONPATH": str(theirs)}
    bare = output([PYTHON, "-c", ASKED], environ)
    assert output([PYTHON, "-c", ASKED], hooked(tmp_path / "run", environ)) == bare
    assert (tmp_path / "run" / "processes.jsonl").read_text().count("pid") == 2  # and its parent's


def test_one_in_a_virtual_environment_runs_as_before(tmp_path):
    venv.create(tmp_path / "venv", with_pip=False)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "sitecustomize.py").write_text("import sys; sys.planted = 'in venv'; print('hi')")
    python = str(tmp_path / "venv" / "bin" / "python")
    bare = output([python, "-c", ASKED], bare_environment())
    assert "in venv" in bare[1]
    assert output([python, "-c", ASKED], hooked(tmp_path / "run")) == bare


@pytest.mark.parametrize("settings", ["not JSON", "{}", '{"folder": "/nowhere"}'])
def test_settings_that_cannot_be_read_harm_nobody(settings):
    environ = bare_environment() | {"PYTHONPATH": str(HOOK), "PROFILING_ATTACH": settings}
    assert output([PYTHON, "-c", "print(1)"], environ) == (0, "1\n", "")


# programs with torch


@pytest.mark.slow
def test_a_fault_in_any_method_leaves_the_program_unharmed(tmp_path, start):
    helper = str(PROJECT / "tests" / "helpers" / "hook_faults.py")
    process = start([helper, str(HOOK), str(tmp_path)])
    bare = process.communicate(timeout=90)[0]
    assert process.returncode == 0, bare
    reached = [folder for folder in tmp_path.iterdir() if (folder / "reached").exists()]
    assert len(reached) > 55
    for folder in sorted(tmp_path.iterdir()):
        result = folder / "result"
        assert result.exists() and result.read_text() == bare.strip(), folder.name
        assert (folder / "stderr").read_text() == "", folder.name
    for folder in reached:
        assert '"error": ' in (folder / "processes.jsonl").read_text(), folder.name


@pytest.mark.slow
def test_a_training_and_its_children_notice_nothing(tmp_path, start):
    """A window is open at the forks. A child that does not train leaves no trace but its start, one
    that trains has a folder of its own, and neither frees what the parent holds: a CUDA event that
    a forked process frees ends it by abort()."""
    child = "import torch; print(torch.ones(1), file=__import__('sys').stderr)"
    program = tmp_path / "mine.py"
    program.write_text(
        "import os, subprocess, sys\n" + TRAINING + "class Event:\n"
        "    maker = os.getpid()\n"
        "    def __del__(self):\n"
        "        if os.getpid() != self.maker: os.abort()\n"
        "for i in range(50):\n"
        "    step()\n"
        "    if i == 35:\n"
        "        hook = sys.modules.get('_profiling_attach.own_marks')\n"
        "        if hook: hook.recorder.laps.of_gpu = Event()\n"
        "        for steps in (0, 30):\n"
        "            sys.stdout.flush()\n"
        "            child = os.fork()\n"
        "            if child == 0:\n"
        "                for _ in range(steps): step()\n"
        "                print(model.weight.sum().item()); sys.exit(4)\n"
        "            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        f"        if hook: subprocess.run([sys.executable, '-c', {child!r}])\n"
        "print(model.weight.sum().item())\n"
        "if hook: print(sys.path[0], sorted("
        f"{OURS} & {{name.split('.')[0] for name in sys.modules}}), file=sys.stderr)\n"
    )
    bare = start([str(program)])  # a process that has torch already
    status, ours, said = output(
        [PYTHON, str(program)], hooked(tmp_path / "run", start=30, steps=10)
    )
    theirs = bare.communicate(timeout=90)[0]
    assert (status, ours) == (bare.returncode, theirs) and theirs.count("\n4\n") == 2
    assert (status, said) == (0, f"tensor([1.])\n{tmp_path} []\n")
    left = sorted(path.name for path in (tmp_path / "run").iterdir())
    of_child, own = [name for name in left if "rank" in name or "process-" in name]
    assert of_child.startswith("process-") and own == "trained-rank0"
    steps = [
        json.loads((tmp_path / "run" / folder / "facts" / "rank0.json").read_text())["steps"]
        for folder in (".", of_child)
    ]
    assert steps == [49, 29]
    assert (tmp_path / "run" / "processes.jsonl").read_text().count('"ppid"') == 2
    window = json.loads((tmp_path / "run" / "profile" / "window-1.json").read_text())["window"]
    assert (window["steps"], window["complete"]) == (10, True)


STAGES = ("model ", "full ", "loss ", "update ", "whole ")


@pytest.mark.slow
def test_torch_compile_sees_the_same_program(tmp_path, start):
    """Frames, graphs and breaks; of a step that is compiled whole, graphs and breaks."""
    code = TRAINING + (
        "from torch._dynamo.utils import counters\n"
        "def seen():\n"
        "    found = dict(counters['frames']), counters['stats']['unique_graphs']\n"
        "    breaks = sum(counters['graph_break'].values())\n"
        "    counters.clear(); torch._dynamo.reset()\n"
        "    return found, breaks\n"
        "def train(f):\n"
        "    for _ in range(25):\n"
        "        f(torch.randn(8, 16)).square().mean().backward(); optimizer.step()\n"
        "train(torch.compile(model, backend='eager')); print('model', seen())\n"
        "train(torch.compile(model, backend='eager', fullgraph=True)); print('full', seen())\n"
        "train(model)\n"  # its class is marked now
        "loss = torch.compile(lambda x: model(x).square(), backend='eager', fullgraph=True)\n"
        "train(loss); print('loss', seen())\n"
        "update = torch.compile(optimizer.step, backend='eager')\n"
        "for _ in range(25): model(torch.randn(8, 16)).square().mean().backward(); update()\n"
        "print('update', seen())\n"
        "whole = torch.compile(step, backend='eager')\n"
        "for _ in range(25): whole()\n"
        "print('whole', seen()[0][1], sum(p.sum().item() for p in model.parameters()))\n"
    )
    bare = start(["-c", code])  # a process that has torch._dynamo already, for its import takes 3 s
    status, ours, _ = output([PYTHON, "-c", code], hooked(tmp_path / "run", start=10, steps=5))
    said = bare.communicate(timeout=90)[0].splitlines()  # and torch's warnings
    said = [line for line in said if line.startswith(STAGES)]
    assert (status, ours.splitlines()) == (bare.returncode, said) and (status, len(said)) == (0, 5)
