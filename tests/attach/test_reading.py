"""Files that the hook leaves of a program of others, as the project's own readers have them."""

import json
import os
import pickle
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from _profiling_attach import recorder as recorder_module
from _profiling_attach.recorder import Recorder
from _profiling_attach.settings import Settings

from profiling.analysis.open_report import open_report
from profiling.analysis.runs.folder import read_run
from profiling.analysis.runs.groups import program_name, sections_of
from profiling.analysis.runs.program import step_times_ms
from profiling.report.dashboard.document import dashboard_page
from profiling.report.single.document import steps_of_program
from profiling.shared.metric_names import STEP_MS, STEPS_PER_S, TOKENS_PER_S
from profiling.shared.program_facts import read_program_facts
from profiling.shared.run_files import check_output
from profiling.verbs import compare, dashboard, log, report, scale
from tests.helpers.programs_of_others import MODEL, PROGRAMS, STEPS, run_program

COMMAND = ["python", "my train.py", "--width", "8"]


@pytest.fixture
def play(tmp_path, monkeypatch):
    """A function that lets the hook's recorder write the run of a made-up loop."""
    monkeypatch.setattr(recorder_module, "write_at_end_of_process", lambda end: None)

    def run(name="run", steps=120, command=COMMAND, kind="none", start=40, stack=False):
        folder = tmp_path / name
        folder.mkdir()
        settings = Settings(str(folder), command, kind, start, 10, None, None, stack)
        recorder = Recorder(settings, torch)
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=0.1)
        recorder.optimizer_made(optimizer)
        for _ in range(steps + 1):
            for phase in ("data", "forward"):
                recorder.enter(phase)
                torch.zeros(64).sum()
                recorder.leave(phase)
            recorder.mark("optimizer", optimizer)
        recorder.end()
        return folder

    return run


def test_a_run_without_tokens_has_step_times_and_steps_per_second(play):
    run = read_run(play())
    assert run.tokens is None and run.command == "python 'my train.py' --width 8"
    assert run.in_force["ranks"] == 1 and run.on_cpu
    assert run.summary["iterations"] == 120 and run.iterations == 119
    assert len(run.step_ms) == 7  # twelve rows, of which five settle
    assert np.all(run.steps.mean_ms > 0)
    rate, ms = run.columns[STEPS_PER_S.name].value, run.columns["time/mean_step_ms"].value
    assert rate == pytest.approx(1e3 / ms)
    assert TOKENS_PER_S.name not in run.columns
    assert np.all(np.diff(run.columns[STEP_MS.name].elapsed_s) > 0), "each row has its own time"
    assert {"batch_size", "block_size", "dataset"}.isdisjoint(run.config)


def test_the_summary_has_the_median_and_the_mean_of_the_steps(play):
    folder = play()
    summary = json.loads((folder / "summary.json").read_text())
    steps_ms = json.loads((folder / "step_times.json").read_text())["ms"]
    assert summary["time/step_ms"] == pytest.approx(np.median(steps_ms))
    assert summary["time/mean_step_ms"] == pytest.approx(np.mean(steps_ms))
    assert np.mean(steps_ms) != np.median(steps_ms)


def test_facts_are_read_back_and_belong_to_the_run(play):
    folder = play()
    facts = read_program_facts(folder, 0)
    assert (facts.rule, facts.steps) == ("a step ends with SGD.step()", 120)
    assert facts.parameters == 3 and set(facts.host_ms) == {"data", "forward"}
    assert read_program_facts(folder, 1) is None
    for name in ("facts/rank0.json", "metrics-rank1.jsonl", "step_times-rank3.json"):
        with pytest.raises(ValueError, match="belongs to the run"):
            check_output(folder / name)
    (folder / "facts" / "rank0.json").write_text('{"rule": 7}')
    with pytest.raises(ValueError, match=r"rank0\.json: is damaged"):
        read_program_facts(folder, 0)


def test_the_report_says_how_steps_were_recognised(play, capsys):
    folder = play(kind="torch")
    times = json.loads((folder / "step_times.json").read_text())
    times["ms"][100:102] = [1e4, 1e4]
    (folder / "step_times.json").write_text(json.dumps(times))
    found = open_report(folder).report
    assert found.run.program_steps.steps == 120 and found.run.config is None
    known = [ms for ms in times["ms"] if ms is not None]
    long = sum(ms > 3 * np.median(known) for ms in known)
    assert found.run.program_steps.long == long >= 2
    line = f"A step ends with SGD.step(); 120 steps in all, {long} longer than three medians"
    assert steps_of_program(found) == [line]
    assert found.window.steps in (9, 10)  # a slow first one is left out
    assert found.window.step_name == "iteration"
    assert [row.name for row in found.phases] == ["data", "forward"]
    assert report.main([str(folder)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert line in printed
    assert "compile=true" not in printed and "batch_size" not in printed, "keys of our trainer"


def test_skipped_steps_and_notes_are_said_and_times_that_nobody_wrote_are_not(tmp_path):
    program = SimpleNamespace(
        rule="a step ends with AdamW.step()", steps=1299, skipped=4, notes=["no nvtx"]
    )
    facts = "A step ends with AdamW.step(); 1,299 steps in all, 4 skipped by a GradScaler"
    report = SimpleNamespace(run=SimpleNamespace(program_steps=program))
    program.timed = program.long = None
    assert steps_of_program(report) == [facts, "no nvtx"]
    program.timed, program.long = 300, 2
    timed = "300 of them timed, 2 longer than three medians"
    assert steps_of_program(report) == [f"{facts}, {timed}", "no nvtx"]
    assert step_times_ms(tmp_path / "step_times.json") == []


def test_damaged_facts_are_said_and_the_rest_is_reported(play):
    folder = play(kind="torch")
    (folder / "facts" / "rank0.json").write_text("{")
    found = open_report(folder).report
    assert found.run.program_steps is None
    said = [each.what for each in found.health.findings]
    assert any("rank0.json: is damaged" in what for what in said)


def test_two_commands_are_compared_and_the_next_step_is_an_experiment_of_them(play, capsys):
    one, other = (play(f"run{width}", command=["python", "t.py", width]) for width in "48")
    assert compare.main([str(one), str(other)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "ab -- python t.py 4 ::: python t.py 8" in printed
    assert printed.startswith("8 against 4 ")  # what differs between them
    assert "command=" not in printed and "run it with --kind torch" in printed


def test_the_dashboard_has_a_part_for_each_program_and_steps_per_second(play, tmp_path):
    commands = {"a": ["python", "a.py", "1"], "b": ["python", "a.py", "2"], "c": ["c"]}
    runs = [read_run(play(name, command=command)) for name, command in commands.items()]
    sections = sections_of(runs)
    assert [section.name for section in sections] == ["a.py", "c"]
    assert [group.label for group in sections[0].groups] == ["python a.py 1", "python a.py 2"]
    page = dashboard_page(runs)
    assert "steps/s" in page and "tokens/s</" not in page
    assert "validation loss over iterations" not in page
    out = tmp_path / "page.html"
    assert dashboard.main([str(tmp_path), "-o", str(out)]) == 0 and out.is_file()


@pytest.mark.parametrize(
    "command, program",
    [
        ("python -u train.py x.py", "train.py"),
        ("torchrun --nproc-per-node 2 -m pkg.mod", "pkg.mod"),
        ("python -m torch.distributed.run 'my train.py'", "my train.py"),
        ("deepspeed", "deepspeed"),
    ],
)
def test_the_program_in_a_command(command, program):
    assert program_name(command) == program


def test_verbs_that_need_this_trainer_refuse_in_a_line(play):
    folder = play(kind="torch")
    for words in ([str(folder)], ["--metrics", str(folder)]):
        with pytest.raises(ValueError, match=r"^[^\n]+W&B[^\n]+$"):
            log.main(words)
    with pytest.raises(ValueError, match=r"^[^\n]+give a capture of this trainer[^\n]+$"):
        scale.main([str(folder)])


def test_a_config_that_is_neither_is_refused(play):
    folder = play()
    (folder / "config.yaml").write_text("command: python train.py\n")
    with pytest.raises(ValueError, match=r"config.yaml: Expected `array`"):
        read_run(folder)


def test_stacks_tell_the_line_of_the_program(play):
    lines = open_report(play(kind="torch", stack=True)).report.lines
    source = Path(__file__).read_text("utf-8").splitlines()
    places = {row.place.rpartition("/")[2]: row for row in lines.lines if row.function == "run"}
    assert any("zeros(64).sum()" in source[int(place.split(":")[1]) - 1] for place in places)
    assert lines.percent > 95


def test_a_second_program_of_a_command_has_a_folder_of_its_own(play, capsys):
    folder = play(kind="torch")
    recorder = SimpleNamespace(settings=Settings(str(folder), [], "none", None, 1, None, None))
    from _profiling_attach.run_files import RunFiles

    files = RunFiles.__new__(RunFiles)
    files.recorder, files.rank, files.world_size = recorder, 0, 1
    inside = files.own_folder(str(folder))
    assert inside.startswith(f"{folder}/process-")
    assert report.main([str(folder)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"1 more program trained in this command: python -m profiling report {inside}" in said


def test_ranks_that_are_started_again_have_a_folder_together(tmp_path):
    from _profiling_attach.run_files import RunFiles

    files, places = RunFiles.__new__(RunFiles), []
    for rank in (0, 1, 0, 1, 0):  # three lives of rank 0, started by one process
        files.rank, files.world_size = rank, 2
        places.append(files.own_folder(str(tmp_path)))
    again = f"{tmp_path}/process-{os.getppid()}"
    last = f"{tmp_path}/process-{os.getpid()}"
    assert places == [str(tmp_path), str(tmp_path), again, again, last]


def test_marks_of_a_program_itself_do_nothing_without_the_hook(monkeypatch):
    from _profiling_attach import own_marks

    from profiling import attach

    monkeypatch.delitem(attach.sys.modules, attach.HOOK)
    assert isinstance(attach.step(), nullcontext) and attach.phase("data") is attach.step()
    seen = []
    own = SimpleNamespace(
        mark=seen.append, enter=lambda name: seen.append(f"+{name}"), leave=seen.remove
    )
    monkeypatch.setitem(attach.sys.modules, attach.HOOK, own_marks)
    monkeypatch.setattr(own_marks, "recorder", None)
    with attach.step(), attach.phase("before torch"):
        pass
    monkeypatch.setattr(own_marks, "recorder", own)
    own.leave = lambda name: seen.append(f"-{name}")
    with attach.step(), attach.phase("data"):
        pass
    with pytest.raises(RuntimeError), attach.step():
        raise RuntimeError
    assert seen == ["+data", "-data", "own"], "a block that an error ends is no step"


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hooked_program_prints_and_ends_as_without(tmp_path, name, start):
    """One that is started anew is in test_hook_is_unnoticed.py."""
    bare = start(["-c", PROGRAMS[name]])
    hooked = run_program(PROGRAMS[name], tmp_path / "hooked")
    output = bare.communicate(timeout=90)[0]
    assert hooked.stdout == output and output.strip()
    assert hooked.returncode == bare.returncode
    run, facts = read_run(tmp_path / "hooked"), read_program_facts(tmp_path / "hooked", 0)
    assert facts.steps == STEPS[name] == run.summary["iterations"]
    found = open_report(tmp_path / "hooked").report
    assert found.window.steps + found.window.first_iteration == 40
    assert found.window.first_iteration in (30, 31)  # a slow first one is left out
    phases = ["forward"] if name == "inference" else ["forward", "backward", "optimizer"]
    assert sorted({row.name for row in found.phases}) == sorted(phases)
    assert found.run.program_steps.rule == facts.rule


RESTORED = """
import pickle
optimizer = pickle.loads(bytes.fromhex("{}"))
(weight,) = optimizer.param_groups[0]["params"]
for _ in range(60):
    weight.square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_an_optimizer_that_was_unpickled_ends_the_steps(tmp_path):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], lr=0.1)
    done = run_program(RESTORED.format(pickle.dumps(optimizer).hex()), tmp_path / "hooked")
    assert done.returncode == 0, done.stdout
    facts = read_program_facts(tmp_path / "hooked", 0)
    assert facts.steps == 59 and facts.rule.endswith(".step()"), facts.rule


TRANSFORMED = (
    MODEL
    + """
from torch.utils.data import DataLoader, Dataset
class Samples(Dataset):
    transform = nn.Sequential(nn.ReLU())
    def __len__(self): return 40
    def __getitem__(self, i): return self.transform(torch.full((16,), float(i)))
o = torch.optim.SGD(model.parameters(), lr=1e-4)
for epoch in range(3):
    for x in DataLoader(Samples(), 2, num_workers=1):
        model(x).square().mean().backward(); o.step(); o.zero_grad()
"""
)


@pytest.mark.slow
def test_modules_that_a_loader_calls_in_its_workers_are_no_steps(tmp_path):
    folder = tmp_path / "hooked"
    done = run_program(TRANSFORMED, folder)
    assert done.returncode == 0, done.stdout
    facts = read_program_facts(folder, 0)
    assert facts.steps == 59 and facts.rule.endswith("SGD.step()"), facts.rule
    assert not list(folder.glob("process-*")), "a worker was taken for a program that trains"


EVALUATED = (
    MODEL
    + """
import io, pickle, threading
o = torch.optim.AdamW(model.parameters())
teacher = nn.Linear(16, 16).eval()
for i in range(60):
    with torch.no_grad(): y = teacher(x)
    (model(x) - y).square().mean().backward(); o.step(); o.zero_grad()
    model.eval()
    with torch.no_grad():
        for _ in range(3): model(x)
    model.train()
    torch.save(o.state_dict(), io.BytesIO())
    other = threading.Thread(target=torch.save, args=(x, io.BytesIO())); other.start(); other.join()
pickle.dumps(torch.save)
"""
)


def test_evaluations_and_checkpoints_are_phases_but_a_teacher_is_a_forward(tmp_path):
    done = run_program(EVALUATED, tmp_path / "hooked")
    assert done.returncode == 0, done.stdout
    found = open_report(tmp_path / "hooked").report
    steps = found.window.steps
    counts = {row.name: row.count / steps for row in found.phases}
    assert counts.pop("forward") == 2 and counts.pop("evaluation") == 3
    assert counts == {"backward": 1, "optimizer": 1, "checkpoint": 1}
