"""`python -m profiling ab -- A ::: B`: two commands of any program, in turns."""

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profiling.analysis.difference.command_labels import LONGEST, command_labels
from profiling.analysis.difference.comparison import names_of
from profiling.analysis.difference.comparison_records import Pair, SeenWork
from profiling.analysis.difference.seen_work import seen_differences
from profiling.launch.any_program import start
from profiling.launch.experiment import commands
from profiling.launch.process import Ended
from profiling.verbs import ab
from tests.paths import PROJECT

PROCESSES = "processes.jsonl"  # of the hook

A, B = ["python", "a.py"], ["python", "b.py"]
WORK = SeenWork("a step ends with AdamW.step()", 300, 74_112, ["float32:32x192"], 1, 1.0)


def results(folder: str | Path) -> dict:
    return json.loads(Path(folder, "results.json").read_text())


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Runs `ab` in an empty folder over programs that leave only the files of the hook.

    Each has a behaviour by its script's name: step time in ms, number of steps, facts. Returns
    (function of the words of `ab`, behaviours, starts so far: (script, variable X, stop_after)).
    """
    monkeypatch.chdir(tmp_path)
    behaviours: dict[str, dict] = {"a.py": {}, "b.py": {"ms": 8.0}}
    starts: list[tuple[str, str | None, int | None]] = []

    def stream(words, environ, to=None, folder=None):
        script = words[-1]
        settings = json.loads(environ["PROFILING_ATTACH"])
        starts.append((script, environ.get("X"), settings["stop_after"]))
        does = {"ms": 10.0, "steps": 300, "status": 0, "facts": {}} | behaviours[script]
        if len(starts) == does.get("stopped_at"):
            return Ended(143, "", signal.SIGTERM)
        steps = min(does["steps"], settings["stop_after"] or does["steps"])
        if steps:
            ms = does["ms"] * (1 + 0.002 * (len(starts) % 3))
            write_hooked(Path(settings["folder"]), [50.0] * 10 + [ms] * (steps - 10), does["facts"])
        elif does.get("python", True):
            Path(settings["folder"], PROCESSES).write_text('{"pid": 1, "ppid": 0}\n')
        to.write(does.get("prints", b""))
        return Ended(does["status"], "", None)

    monkeypatch.setattr(commands, "stream", stream)
    return lambda *words: ab.main([*words]), behaviours, starts


def write_hooked(folder: Path, ms: list[float], facts: dict) -> None:
    """Writes the files of the hook that `ab` reads."""
    (folder / "facts").mkdir()
    seen = {"rule": WORK.rule, "steps": len(ms), "parameters": 74_112, "world_size": 1, "notes": []}
    seen |= {"shapes": WORK.shapes, "backwards_per_step": 1.0, "losses": {"10": 2.5}} | facts
    files = {
        PROCESSES: {"pid": 1},
        "config.yaml": {"command": A, "in_force": {"device": "cpu"}},
        "environment.json": {"torch": "2.13.0"},
        "step_times.json": {"first_iteration": 0, "ms": ms},
        "facts/rank0.json": seen,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


def test_commands_run_in_turns_and_a_difference_is_found(fake, capsys):
    run, _, starts = fake
    assert run("--repeats", "3", "--json", "r.json", "--", *A, ":::", *B) == 0
    assert [script[0] for script, _, _ in starts] == list("abbaab")
    assert {stop for _, _, stop in starts} == {None}
    out = " ".join(capsys.readouterr().out.split())
    assert "b.py is 1.25x faster than a.py (10.03 -> 8.01 ms per step; nothing seen from" in out
    assert "it takes about" in out and out.index("2/6") < out.index("it takes about")
    assert " command processes ms per step between within " in out  # whole headings, 80 wide
    found = results("out-ab/command-a.py-b.py")
    assert found["factor"]["values"] == ["python a.py", "python b.py"]
    run_of_b = found["runs"][1]
    assert run_of_b["iterations"] == list(range(29, 300, 10)) and run_of_b["label"] == "b.py"
    assert max(run_of_b["step_ms"]) < 9  # 50 in the warm-up
    assert json.loads(Path("r.json").read_text())["comparisons"][0]["seen"]["work"] == []
    page = Path("out-ab/command-a.py-b.py/report.html").read_text()
    assert "b.py is 1.25x faster than a.py" in page and "nothing seen from outside differs" in page


def test_steps_end_a_process_by_force_behind_the_warm_up(fake, capsys):
    run, _, starts = fake
    run("--repeats", "2", "--steps", "40", "--warm-up", "30", "--", *A, ":::", *B)
    told = "4 processes as A B B A, each of 30 warm-up steps and 40 timed ones, then stopped by"
    assert told in capsys.readouterr().out
    assert {stop for _, _, stop in starts} == {70}
    assert results("out-ab/command-a.py-b.py")["runs"][0]["iterations"] == [39, 49, 59, 69]


def test_other_work_is_said_with_the_answer_and_never_that_it_is_the_same(fake, capsys):
    run, behaviours, _ = fake
    behaviours["b.py"]["facts"] = {"parameters": 131_584}
    assert run("--repeats", "3", "--", *A, ":::", *B) == 0
    out = " ".join(capsys.readouterr().out.split())
    differs = "not the same work: A optimizes 74,112 parameters, B 131,584)"
    assert "b.py is 1.25x faster than a.py (10.03 -> 8.01 ms per step; " + differs in out
    assert "nothing seen" not in out and out.count("131,584") == 2  # the answer, first and last
    (comparison,) = results("out-ab/command-a.py-b.py")["comparisons"]
    assert not comparison["comparability"]["comparable"]


def test_leading_words_are_variables_of_one_side(fake, capsys):
    run, _, starts = fake
    key = "MY_API_KEY=planted"
    run("--repeats", "2", "--", "X=1 2", key, *A, ":::", "X=", key, *A)
    assert [(script, x) for script, x, _ in starts] == [
        ("a.py", "1 2"),
        ("a.py", ""),
        ("a.py", ""),
        ("a.py", "1 2"),
    ]
    assert "X= against X=1 2" in capsys.readouterr().out
    (kept,) = Path("out-ab").glob("*/results.json")
    assert "planted" not in kept.read_text() and "'MY_API_KEY=[hidden]'" in kept.read_text()


def test_equal_commands_are_equal(fake, capsys):
    run, _, _ = fake
    run("--repeats", "4", "--", *A, ":::", *A)
    out = " ".join(capsys.readouterr().out.split())
    assert "python a.py (2) and python a.py are equal within 2 %" in out


def test_a_stopped_experiment_keeps_what_has_ended_and_goes_on(fake, capsys):
    run, behaviours, starts = fake
    behaviours["b.py"]["stopped_at"] = 3
    words = ["--repeats", "2", "--", *A, ":::", *B]
    assert run(*words) == 143
    out = capsys.readouterr().out
    assert "stopped; 2 of 4 processes are in out-ab/command-a.py-b.py" in out
    assert "ab --out out-ab/command-a.py-b.py --repeats 2 -- python a.py ::: python b.py" in out
    left = Path("out-ab/command-a.py-b.py/runs/03-B")  # by the process that was stopped
    (left / PROCESSES).write_text("{}")
    (left / "trained-rank0").touch()
    assert run("--out", "out-ab/command-a.py-b.py", *words) == 0
    assert [script[0] for script, _, _ in starts] == list("abbba")
    with pytest.raises(ValueError, match="contains an experiment with other values or commands"):
        run("--out", "out-ab/command-a.py-b.py", "--", *A, ":::", *A)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ({"status": 3}, r"^B ended with exit code 3; see \S+/runs/02-B\.log$"),
        (
            {"status": 1, "prints": b"one\nValueError: no \x1b[31mX_TOKEN=abc123xyz here\n\n"},
            r"^B ended with exit code 1: ValueError: no \[31mX_TOKEN=\[hidden\] here; see \S+log$",
        ),
        ({"status": 137}, r"^B was killed by SIGKILL; see \S+/02-B\.log$"),
        (
            {"steps": 32},
            r"^B made 12 steps behind the warm-up of 20, .* at least 20 are needed: ",
        ),
        ({"steps": 0}, r"^B: no step was seen: no process imported torch and trained"),
        ({"steps": 0, "python": False}, r"^B: no Python process of this command read the hook: "),
    ],
)
def test_what_a_program_did_is_said_in_one_line(fake, does, said):
    run, behaviours, _ = fake
    behaviours["b.py"] |= does
    with pytest.raises(ValueError, match=said) as caught:
        run("--repeats", "2", "--", *A, ":::", *B)
    assert "\n" not in str(caught.value)
    assert len(results("out-ab/command-a.py-b.py")["runs"]) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--", *A], "there is no ::: between two commands: give two commands"),
        (["--", *A, ":::"], "B is empty: give two commands with ::: between them"),
        (["--", ":::", *A], "A is empty: give two commands"),
        (["--", *A, ":::", *B, ":::", *A], "3 sides: give two commands"),
        (["--", "X=1", ":::", *A], "A sets variables for no command: X=1"),
        (["--steps", "10", "--", *A, ":::", *B], "--steps: 10: must be at least 20"),
        (["--steps", "25", "--", *A, ":::", *B], "--steps 25: must be a multiple of 10"),
        (["mine.yaml", "--", *A, ":::", *B], "mine.yaml: before -- are only flags"),
        (["--no-capture", "--", *A, ":::", *B], "--no-capture: two commands are captured only"),
        (["--capture", "attention=slow,flash"], "--capture: only for two commands"),
        (["--warm-up", "5", "attention=slow,flash"], "--warm-up: only for two commands"),
        ([*A, ":::", *B], r"a\.py: without -- ab only starts this project's train\.py; "),
    ],
)
def test_mistakes_are_refused_before_anything_runs(fake, words, said):
    run, _, starts = fake
    with pytest.raises(ValueError, match=said) as caught:
        run(*words)
    assert "\n" not in str(caught.value) and not starts and not Path("out-ab").exists()


def test_a_command_that_is_not_found_has_the_exit_code_of_a_shell(fake, capsys):
    run, _, starts = fake
    assert run("--", *A, ":::", "no-such-program", "b.py") == 127
    assert "no-such-program: command not found\n" in capsys.readouterr().err
    assert run("--", *A, ":::", "PATH=/nowhere", "python", "b.py") == 127
    assert not starts


def test_dry_run_prints_both_commands_in_turns(fake, capsys):
    run, _, starts = fake
    assert run("--dry-run", "--repeats", "2", "--", "X=1", *A, ":::", *B) == 0
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert lines == ["X=1 python a.py", "python b.py", "python b.py", "X=1 python a.py"]
    assert not starts


@pytest.mark.parametrize(
    ("one", "other", "labels"),
    [
        ("python t.py --lr 1", "python t.py --lr 2", ("--lr 1", "--lr 2")),
        ("python --a 1 -b --c 2", "python --a 2 -b --c 3", ("--a 1 --c 2", "--a 2 --c 3")),
        ("python t.py", "python t.py --compile", ("python t.py", "--compile")),
        ("python /x/y/old/t.py", "python /x/y/new/t.py", ("old/t.py", "new/t.py")),
        ("F=1 python t.py", "F=2 python t.py", ("F=1", "F=2")),
        ("python t.py", "python t.py", ("python t.py", "python t.py (2)")),
        ("python t.py", "torchrun --nproc 2 t.py", ("python", "torchrun --nproc 2")),
    ],
)
def test_labels_are_the_words_that_differ(one, other, labels):
    assert command_labels(one.split(), other.split()) == labels


def test_a_long_label_is_cut_and_two_that_become_alike_are_numbered():
    one, other = command_labels(["x" * 90 + "1"], ["x" * 90 + "2"])
    assert one == "x" * (LONGEST - 3) + "..." and other == f"{one} (2)"


def test_compare_names_two_programs_by_what_differs():
    differences = {"command": Pair(*(shlex.join([*A, "--lr", rate]) for rate in "12"))}
    assert names_of(None, None, differences) == ("--lr 1", "--lr 2")


def work(**changes: object) -> SeenWork:
    fields = {name: getattr(WORK, name) for name in WORK.__dataclass_fields__}
    return SeenWork(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"parameters": 5}, "A optimizes 74,112 parameters, B 5"),
        ({"world_size": 2}, "A trains on 1 rank, B on 2 ranks"),
        ({"shapes": ["int64:8"]}, "the inputs of A are float32:32x192, those of B int64:8"),
        ({"backwards_per_step": 4.0}, "A goes backward 1 times per step, B 4 times"),
    ],
)
def test_other_work_is_seen_from_outside(changes, line):
    seen = seen_differences([WORK, WORK], [work(**changes)] * 2)
    assert seen.work == [line] and seen.other == []


def test_how_a_step_is_found_and_its_loss_are_no_work():
    rule = "a step ends with SGD.step(), of 2 optimizers; per step: Adam 4.98 times"
    other = [work(rule=rule, steps=90, losses={"10": 2.0, "20": 1.0}) for _ in range(2)]
    seen = seen_differences([work(losses={"10": 2.1})] * 2, other)
    assert seen.work == []
    assert seen.other == [
        "in A a step ends with AdamW.step(), in B a step ends with SGD.step(), of 2 optimizers",
        "A makes 300 steps, B 90",
        "the loss of step 10 is 2.1 in A and 2 in B",
    ]
    per_step = [work(rule=rule.replace("4.98", "5.01"), steps=90) for _ in range(2)]
    assert seen_differences(other, per_step).other == []  # nothing but the mean count differs


def test_what_varies_from_start_to_start_tells_nothing():
    """Shapes and losses of a program without a seed."""
    one = [work(shapes=[f"int64:{i}"], losses={"40": 2.0 + i}) for i in range(3)]
    other = [work(shapes=["int64:9"], losses={"40": 9.0})] * 3
    seen = seen_differences(one, other)
    assert seen.work == seen.other == []
    rounded = [work(losses={"40": 2.0})], [work(losses={"40": 2.01})]
    assert seen_differences(*rounded).other == []


def test_the_settings_are_those_that_the_hook_reads():
    path = start.HOOK / "_profiling_attach" / "settings.py"
    spec = importlib.util.spec_from_file_location("hook_settings", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert tuple(start.HookSettings.__dataclass_fields__) == module.Settings._fields
    assert start.VARIABLE == module.VARIABLE
    settings = start.HookSettings("/f", A, "none")
    environ = start.with_hook({"PYTHONPATH": "/mine", "X": "1"}, settings)
    assert environ["PYTHONPATH"] == f"{start.HOOK}{os.pathsep}/mine" and environ["X"] == "1"
    assert module.Settings(**json.loads(environ[module.VARIABLE])).command == A


PROGRAM = """
import os, sys, time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
width, ms, steps = int(sys.argv[1]), float(os.environ.get("MS", sys.argv[2])), int(sys.argv[3])
model = torch.nn.Linear(width, width)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(steps):
    model(torch.randn(4, width)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(ms / 1e3)
open("ended", "a").write("x")
"""
SLEEP = "import time; open('started', 'w').close(); time.sleep(99)"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A small program of torch, `python mine.py WIDTH MS STEPS`, in the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PROGRAM)
    return [sys.executable, "mine.py"]


@pytest.mark.slow
def test_a_planted_difference_in_a_variable_is_found(program, forked, capsys):
    words = [*program, "16", "4", "60"]
    assert ab.main(["--repeats", "3", "--", "MS=6", *words, ":::", "MS=4", *words]) == 0
    out = " ".join(capsys.readouterr().out.split())
    found = results("out-ab/command-MS-6-MS-4")
    assert found["comparisons"][0]["seen"] == {"work": [], "other": []}
    (pair,) = found["result"]["comparisons"]
    assert pair["verdict"] == "faster" and 0.5 < pair["ratio"] < 0.9  # 2 : 3 on a quiet machine
    assert "MS=4 is 1." in out and "nothing seen from outside differs" in out
    assert Path("ended").read_text() == "x" * 6


@pytest.mark.slow
def test_other_work_of_a_real_program_is_named_and_steps_end_it(program, forked):
    sides = [*program, "16", "4", "9999", ":::", *program, "32", "4", "9999"]
    words = ["--repeats", "2", "--steps", "20", "--capture", "--out", "exp"]
    assert ab.main([*words, "--", *sides]) == 0
    (comparison,) = results("exp")["comparisons"]
    assert comparison["seen"]["work"] == [
        "A optimizes 272 parameters, B 1,056",
        "the inputs of A are float32:4x16, those of B float32:4x32",
    ]
    assert "not the same work: A optimizes 272 parameters, B 1,056; " in comparison["sentence"]
    assert {row["name"] for row in comparison["ranges"]} >= {"forward", "backward"}
    assert not Path("ended").exists()  # the end of the program was cut off
    assert [run["iterations"] for run in results("exp")["runs"]] == [[29, 39]] * 4


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_program_under_way(program, number, status):
    """The program gets SIGINT of both, so it is enough that it trains with one of them."""
    trains = number == signal.SIGINT
    one = [*program, "16", "4", "999999"] if trains else [sys.executable, "-c", SLEEP]
    words = ["-m", "profiling", "ab", "--out", "exp", "--", *one, ":::", *one]
    process = subprocess.Popen(
        [sys.executable, *words],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 90
    hooked = Path("exp/runs/01-A", PROCESSES)
    under_way = hooked.with_name("metrics.jsonl") if trains else Path("started")
    while not under_way.exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == status
    assert "stopped; 0 of 10 processes are in exp" in out
    pid = json.loads(hooked.read_text().splitlines()[0])["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_capture_by_nsys_gets_no_secrets(monkeypatch, tmp_path):
    """A report of nsys holds the environment, and is passed on."""
    environs = []

    def stream(words, environ, file, folder):
        environs.append(environ)
        return Ended(0, "", None)

    monkeypatch.setenv("MY_API_TOKEN", "of the shell")
    monkeypatch.setattr(commands, "stream", stream)
    monkeypatch.setattr(commands.nsys_tool, "find", lambda _: None)
    monkeypatch.setattr(commands, "nsys_options", lambda *_: ([], []))
    monkeypatch.setattr(commands, "whole_command", lambda *_: ["nsys"])
    monkeypatch.setattr(commands.reports, "finish", lambda *_: True)
    command = commands.command_of(["MY_PASSWORD=typed", "LR=1", "python", "mine.py"])
    settings = start.HookSettings(str(tmp_path / "A"), command.words, "nsys")
    commands.run_under_nsys(command, settings, tmp_path / "A", "A")
    (environ,) = environs
    assert "MY_PASSWORD" not in environ and "MY_API_TOKEN" not in environ
    assert environ["LR"] == "1" and start.VARIABLE in environ
