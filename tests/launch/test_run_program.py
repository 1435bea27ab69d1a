"""python -m profiling run -- COMMAND: the program is as without it, and what is said of it."""

import gzip
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.lock import Lock
from profiling.analysis.runs.folder import read_run
from profiling.launch.any_program import seen, start
from profiling.launch.any_program.start import HOOK, HookSettings, with_hook
from profiling.shared.program_facts import read_program_facts
from profiling.verbs import report, run
from tests.helpers.forked import Forked
from tests.helpers.full_disk import files_no_larger_than
from tests.helpers.processes import read_until
from tests.paths import PROJECT

PYTHON = sys.executable
STEP_TIME = r"a step takes [\d.e-]+ ms \(median; [\d.e-]+ in the mean\); "
SETTINGS = HookSettings("out-run", ["python"], "torch")
TRAIN = """
import sys, torch
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
print(model.weight.sum().item())
"""
DDP = "torch.nn.parallel.DistributedDataParallel"


@pytest.fixture(autouse=True)
def empty_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def said_of(capfd) -> tuple[str, list[str]]:
    """Output of the program, and the lines of ours without their beginning."""
    printed = capfd.readouterr()
    beginning = "profiling run: "
    lines = [x.removeprefix(beginning) for x in printed.err.splitlines() if beginning in x]
    return printed.out, lines


def opened(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


# the program's own


def test_output_and_exit_code_are_the_programs(capfd):
    code = "import sys; print('to stdout'); sys.stderr.write('to stderr'); sys.exit(3)"
    assert run.main(["--kind", "torch", "--", PYTHON, "-c", code]) == 3
    printed = capfd.readouterr()
    assert printed.out == "to stdout\n" and "\nto stderr\nprofiling run: " in printed.err
    assert "no step was seen: the program ended with exit code 3 before one\n" in printed.err
    assert "20 steps are recorded by torch.profiler; files go to out-run" in printed.err
    assert not Path("out-run").exists(), "a program without a step leaves no folder"


def test_input_is_the_programs(tmp_path):
    words = ["-m", "profiling", "run", "--kind", "none", "--", PYTHON, "-c", "print(input())"]
    done = subprocess.run(
        [PYTHON, *words],
        input="a line\n",
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "a line\n"), done.stderr


@pytest.mark.parametrize(
    ("word", "code", "message"),
    [
        ("no-such-word", 127, "no-such-word: command not found"),
        ("A=1", 127, "A=1: command not found; env A=1 COMMAND sets a variable"),
        ("./missing", 127, "./missing: no such file"),
        ("mine.py", 127, "mine.py: command not found; python mine.py starts the file of that name"),
        ("./mine.py", 126, "./mine.py: is not executable; name the program that runs it"),
        ("./folder", 126, "./folder: is a folder"),
        ("./headless", 126, "./headless: Exec format error; name the program that runs it"),
    ],
)
def test_what_cannot_be_started_has_a_shells_exit_code(word, code, message, capfd):
    Path("mine.py").touch()
    Path("folder").mkdir()
    Path("headless").write_text("echo no first line with an interpreter\n")
    Path("headless").chmod(0o755)
    assert run.main(["--kind", "torch", "--", word]) == code
    assert said_of(capfd)[1][-1] == message
    assert not Path("out-run").exists()


@pytest.mark.parametrize(("name", "code"), [("SIGKILL", 137), ("SIGSEGV", 139)])
def test_a_signal_that_ends_the_program_is_its_exit_code(name, code):
    words = ["bash", "-c", f"kill -{name.removeprefix('SIG')} $$"]
    assert run.main(["--kind", "torch", "--", *words]) == code


def test_ctrl_c_reaches_the_program_on_its_terminal_and_the_end_is_said(tmp_path):
    code = (
        "import os, sys, time\n"
        "front = os.tcgetpgrp(0) == os.getpgrp()\n"
        "try:\n"
        "    print('ready', sys.stdin.isatty(), sys.stdout.isatty(), front, flush=True)\n"
        "    for _ in range(600): time.sleep(0.1)\n"  # one long sleep may begin behind the signal
        "except KeyboardInterrupt: print('cleaned up', flush=True); sys.exit(5)\n"
    )
    words = [PYTHON, "-m", "profiling", "run", "--kind", "none", "--", PYTHON, "-c", code]
    process, terminal = pty.fork()
    if process == 0:
        os.execve(PYTHON, words, os.environ | {"PYTHONPATH": str(PROJECT)})
    output = b""
    while not re.search(rb"ready.*\n", output):
        output += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    while b"no step was seen" not in output:
        output += os.read(terminal, 1000)
    assert b"ready True True True" in output and output.count(b"cleaned up") == 1
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 5


def test_sigterm_is_passed_on(start):
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(9)))\n"
        "print('ready', flush=True)\n"
        "for _ in range(600): time.sleep(0.1)\n"  # one long sleep may begin behind the signal
    )
    words = ["-m", "profiling", "run", "--kind", "none", "--", PYTHON, "-c", code]
    process = start(words, anew=True, PYTHONPATH=str(PROJECT))
    read_until(process, "ready")
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 9 and output.count("saved") == 1
    assert "no step was seen" in output


def test_sigusr1_asks_for_a_window_and_does_not_reach_the_program():
    file = "out-run/trigger.json"
    shell = f"kill -USR1 $PPID; until [ -f {file} ]; do sleep 0.05; done; cat {file}; exit 3"
    words = ["-m", "profiling", "run", "--kind", "none", "--", "sh", "-c", shell]
    environ = os.environ | {"PYTHONPATH": str(PROJECT)}
    done = subprocess.run([PYTHON, *words], env=environ, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (3, "{}")
    assert not Path("out-run").exists(), "which nobody took"


def test_under_nohup_a_hangup_ends_neither_the_program_nor_its_report(start):
    code = (
        "import os, signal\n"
        "os.kill(os.getppid(), signal.SIGHUP)\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('went on')\n"
    )
    begin = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    words = [PYTHON, "-m", "profiling", "run", "--kind", "none", "--", PYTHON, "-c", code]
    process = start(
        ["-c", f"{begin}os.execv(sys.argv[1], sys.argv[1:])", *words],
        anew=True,
        PYTHONPATH=str(PROJECT),
    )
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 0 and "went on" in output and "no step was seen" in output


def test_a_users_packages_of_our_names_are_no_hindrance(tmp_path):
    """The verb is started in the user's folder, which may have a package cli."""
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "__init__.py").touch()
    (tmp_path / "mine.py").write_text("import cli; print(cli.__file__)\n")
    done = subprocess.run(
        [PYTHON, "-m", "profiling", "run", "--kind", "none", "--", PYTHON, "mine.py"],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{tmp_path / 'cli' / '__init__.py'}\n", done.stderr


# the command line


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--"], "--: a command follows"),
        (["--start", "0", "--", "x"], "must be at least 1"),
        (["--steps", "0", "--", "x"], "must be at least 1"),
        (["--steps", "many", "--", "x"], "many"),
        (["--step", "optimiser", "--", "x"], "--step"),
        (["--kind", "ncu", "--", "x"], "--kind"),
        (["--stepz", "3", "--", "x"], "did you mean --step"),
        (["seed=1", "--", "x"], "seed=1: is for our training, but a program follows"),
        (["--ranks", "0", "--", "x"], "--ranks: only for our training"),
        (["--nproc-per-node", "2", "--", "x"], "start torchrun itself after --"),
        (["--kind", "torch", "--whole", "--", "x"], "--whole: only with --kind nsys"),
        (["--kind", "torch", "--preset", "full", "--", "x"], "--preset: only with --kind nsys"),
        (["--kind", "memory", "--stack", "--", "x"], "--stack: only with --kind torch or nsys"),
        (["--kind", "none", "--start", "5", "--", "x"], "--start: --kind none records no window"),
        (["--", "-t", "cuda,nvtx"], "options of nsys are given as --nsys-options='-t cuda,nvtx'"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(argv, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        run.main(argv)
    assert not Path("out-run").exists()


def test_the_dry_run_is_what_would_be_started(capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "mine")
    flags = ["--dry-run", "--kind", "torch", "--start", "7", "--step", "backward"]
    assert run.main([*flags, "--", PYTHON, "my train.py"]) == 0
    line = capsys.readouterr().out
    assert line.startswith("env ") and line.endswith(f"{PYTHON} 'my train.py'\n")
    assert f"PYTHONPATH={HOOK}:mine " in line and '"start": 7' in line
    assert not Path("out-run").exists()


def test_the_hook_reads_the_settings_as_they_are_passed(monkeypatch):
    monkeypatch.syspath_prepend(HOOK)
    from _profiling_attach import settings, step_rule

    values = ("/runs/1", ["python", "x"], "torch", 3, 4, "data", 5, True, True, "/s")
    for name, value in with_hook({"PYTHONPATH": ""}, HookSettings(*values)).items():
        monkeypatch.setenv(name, value)
    assert settings.read_settings() == values
    assert os.environ["PYTHONPATH"] == str(HOOK)
    assert start.STEP_MARKS == step_rule.CHOICES


# its folder


def test_an_earlier_run_moves_aside_and_other_files_stay(capfd):
    folder = Path("out-run")
    (folder / "profile").mkdir(parents=True)
    (folder / "facts").mkdir()
    for name in ("metrics-rank1.jsonl", "trained-rank0", "processes.jsonl", "notes.txt"):
        (folder / name).touch()
    (folder / "config.yaml").write_text("# every key of this run\n")
    before = sorted(path.name for path in folder.iterdir())
    for words, code in (([PYTHON, "-c", "exit(3)"], 3), (["no-such-word"], 127)):
        assert run.main(["--kind", "none", "--", *words]) == code
        assert sorted(path.name for path in folder.iterdir()) == before, "nothing was recorded"
    assert "nothing was recorded: the earlier run is back in out-run" in said_of(capfd)[1]
    records = "open('out-run/config.yaml', 'w').write('# every key of this run')"
    assert run.main(["--kind", "none", "--", PYTHON, "-c", records]) == 0
    assert "the earlier run in out-run is now in previous-1" in said_of(capfd)[1]
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["config.yaml", "notes.txt", "previous-1", "processes.jsonl"]
    moved = {path.name for path in (folder / "previous-1").iterdir()}
    assert {"profile", "facts", "metrics-rank1.jsonl", "trained-rank0", "config.yaml"} <= moved


def test_a_users_file_is_not_moved():
    Path("config.yaml").write_text("lr: 0.1\n")
    with pytest.raises(ValueError, match=r"^--out \.: contains config.yaml, which no run has wri"):
        run.main(["--kind", "none", "--out", ".", "--", PYTHON, "-c", ""])
    assert Path("config.yaml").read_text() == "lr: 0.1\n"


def test_a_folder_has_one_owner():
    with Lock(Path("out-run"), "X"), pytest.raises(ValueError, match="^--out out-run: in use by"):
        run.main(["--kind", "none", "--", PYTHON, "-c", ""])


# what is said


def test_a_command_that_is_no_python_is_told(capfd):
    assert run.main(["--kind", "torch", "--", "true"]) == 0
    assert said_of(capfd)[1][-1] == seen.NEVER


@pytest.mark.parametrize("flag", ["-I", "-S", "-E"])
def test_a_python_that_reads_no_hook_is_told(flag, capfd):
    assert run.main(["--kind", "torch", "--", PYTHON, flag, "-c", "print(1)"]) == 0
    out, lines = said_of(capfd)
    assert out == "1\n" and lines[-1] == seen.NEVER


def left_by_hook(folder: Path, facts: dict | None, window: dict | None = None) -> None:
    (folder / "profile").mkdir(parents=True)
    (folder / "facts").mkdir()
    (folder / "processes.jsonl").write_text('{"pid": 1, "ppid": 0}\n{"pi')
    (folder / "trained-rank0").touch()
    if facts is not None:
        known = {"rule": "a step is a backward", "steps": 50, "notes": []}
        (folder / "facts" / "rank0.json").write_text(json.dumps(known | facts))
    if window is not None:
        path = folder / "profile" / "window-1.json"
        path.write_text(json.dumps({"schema_version": 1, "window": window}))


WHOLE = {"first_iteration": 10, "steps": 20, "steps_asked": 20, "complete": True}
CUT = WHOLE | {"steps": 7, "complete": False}


@pytest.mark.parametrize(
    ("facts", "window", "told"),
    [
        ({}, WHOLE, []),
        ({"skipped_steps": 4}, WHOLE, ["4 skipped by the GradScaler"]),
        ({"notes": ["said by the hook"]}, WHOLE, ["said by the hook"]),
        ({}, None, ["made 50 steps and ended before the window; give --start 15"]),
        (
            {"steps": 12},
            None,
            ["made 12 steps and ended before the window; give --start 1 --steps 10"],
        ),
        ({"steps": 1}, None, ["made 1 step and ended before the window; let it run for longer"]),
        (
            {},
            CUT | {"ended_by": "the program started its own torch.profiler"},
            ["its own torch.profiler began in step 17: ours ended there, with 7 of 20 steps"],
        ),
        ({}, CUT | {"ended_by": "ValueError: no"}, ["ended with 7 of 20 steps: ValueError: no"]),
        ({"notes": ["no window of nsys: no GPU"]}, None, ["no window of nsys: no GPU"]),
        (None, WHOLE, ["was killed, or ended by os._exit", "last half second, and the window"]),
        (None, None, ["was killed, or ended by os._exit", "last half second, no window"]),
    ],
)
def test_what_the_hook_left_is_told(facts, window, told, tmp_path):
    left_by_hook(tmp_path / "run", facts, window)
    said = "\n".join(seen.lines(tmp_path / "run", SETTINGS))
    assert all(words in said for words in told)
    assert len(said.splitlines()) == (1 if facts is None or not told else 2) - (
        "skipped" in "".join(told)
    )
    assert ("50 steps; a step is a backward" in said) == (
        facts is not None and "steps" not in facts
    )


def test_what_another_process_did_is_told(tmp_path):
    left_by_hook(tmp_path / "run", {}, WHOLE)
    left_by_hook(
        tmp_path / "run" / "process-7", {"steps": 19, "rule": "a step is a forward of Net"}
    )
    left_by_hook(tmp_path / "run" / "process-8", None)
    left_by_hook(ranks := tmp_path / "run" / "process-9", {"steps": 89})
    shutil.copy(ranks / "facts" / "rank0.json", ranks / "facts" / "rank1.json")
    assert seen.lines(tmp_path / "run", SETTINGS)[1:] == [
        "another process of this command made 19 steps; a step is a forward of Net: "
        f"{tmp_path}/run/process-7",
        f"another process of this command made steps: {tmp_path}/run/process-8",
        f"2 ranks of another program of this command made 89 steps; a step is a backward: {ranks}",
    ]


def test_a_launcher_that_reads_the_hook_and_hides_it_is_thought_of(tmp_path):
    (tmp_path / "processes.jsonl").write_text('{"pid": 1, "ppid": 0}\n')
    [line] = seen.lines(tmp_path, SETTINGS)
    assert line.startswith("no step was seen") and "tox" in line and "PROFILING_ATTACH" in line


def test_an_error_of_the_hook_is_told_and_not_a_kill(tmp_path):
    left_by_hook(tmp_path / "run", None)
    row = {"pid": 8, "error": "OSError: [Errno 28] No space left on device"}
    (tmp_path / "run" / "processes.jsonl").write_text(json.dumps(row) + "\n")
    expected = ["the hook stopped in process 8: OSError: [Errno 28] No space left on device"]
    assert seen.lines(tmp_path / "run", SETTINGS) == expected


def test_a_full_disk_is_told_and_not_a_kill(tmp_path, monkeypatch):
    left_by_hook(tmp_path / "run", None)
    monkeypatch.setattr(seen, "free_bytes", lambda folder: 0)
    told = [f"the disk of {tmp_path / 'run'} is full: not all could be written"]
    assert seen.lines(tmp_path / "run", SETTINGS) == told


def test_a_step_that_never_comes_is_told(tmp_path):
    (tmp_path / "processes.jsonl").write_text('{"pid": 1, "ppid": 0}\n')
    asked = HookSettings("out-run", ["python"], "torch", step="replay")
    assert seen.lines(tmp_path, asked) == [seen.NO_MARK.format("replay")]
    assert seen.lines(tmp_path, SETTINGS) == [f"{seen.NO_STEP}; {seen.OTHERS}"]


# programs with torch


def test_a_second_ctrl_c_loses_nothing(capfd, forked_program):
    interrupted = TRAIN.replace(
        "import sys, torch",
        """
import os, signal, sys, torch
from _profiling_attach.run_files import RunFiles
write_end = RunFiles.write_end
def interrupted(files):
    os.kill(os.getpid(), signal.SIGINT)
    write_end(files)
RunFiles.write_end = interrupted
""",
    )
    Path("mine.py").write_text(interrupted)
    assert run.main(["--kind", "none", "--", PYTHON, "mine.py", "12"]) == 0
    assert "Traceback" not in capfd.readouterr().out, "which is where a fork writes its errors too"
    assert Path("out-run/summary.json").is_file()


def test_a_program_too_short_for_a_window_has_its_step_times_told(capfd, forked_program):
    Path("mine.py").write_text(TRAIN)
    assert run.main(["--kind", "torch", "--start", "60", "--", PYTHON, "mine.py", "45"]) == 0
    window, times = said_of(capfd)[1][-2:]
    assert window.startswith("the program made 44 steps and ended before the window")
    assert re.match(STEP_TIME + r"the host is in forward", times)


@pytest.mark.parametrize(
    ("step", "more"),
    [
        (["--step", "backward"], ""),  # of which each is followed by a mark of a higher kind
        (["--step", "forward"], ""),
        ([], 'sys.modules["_profiling_attach.own_marks"].recorder.mark("replay", model)'),
    ],
)
def test_a_window_opens_where_marks_of_a_higher_kind_come_in_each_step(
    step, more, capfd, forked_program
):
    Path("mine.py").write_text(
        TRAIN.replace("    optimizer.step()", f"    {more}\n    optimizer.step()")
    )
    words = ["--kind", "torch", "--start", "30", "--steps", "5", *step, "--", PYTHON]
    assert run.main([*words, "mine.py", "60"]) == 0
    window = seen.first_window(Path("out-run"), 0)
    assert window and (window.first_iteration, window.steps) == (30, 5)
    assert "forward" in read_program_facts(Path("out-run"), 0).host_ms


def test_a_program_with_a_clock_that_stands_has_its_steps_told(capfd, forked_program):
    Path("mine.py").write_text(f"import time\ntime.perf_counter_ns = lambda: 7\n{TRAIN}")
    assert run.main(["--kind", "none", "--", PYTHON, "mine.py", "45"]) == 0
    assert said_of(capfd)[1][-2:] == [
        "44 steps; a step ends with SGD.step()",
        "a step takes 0 ms (median; 0 in the mean)",
    ]


def test_a_fault_of_the_report_is_not_the_programs_exit_code(capfd, monkeypatch):
    monkeypatch.setattr(seen, "lines", lambda *_: 1 / 0)
    assert run.main(["--kind", "none", "--", "sh", "-c", "exit 5"]) == 5
    assert "no report: Traceback" in capfd.readouterr().err


@pytest.mark.slow
def test_a_training_ends_with_its_report_and_is_as_bare(capfd, forked_program):
    Path("mine.py").write_text(TRAIN)
    bare = Forked(["mine.py", "80"], dict(os.environ)).communicate(timeout=60)[0]
    words = ["--kind", "torch", "--start", "30", "--steps", "10", "--", PYTHON, "mine.py", "80"]
    assert run.main([*words, "--api-key=planted"]) == 0
    printed = capfd.readouterr()
    assert printed.out == bare and float(bare)
    written = [path for path in Path("out-run").rglob("*") if path.is_file()]
    assert not [path for path in written if b"planted" in opened(path)]
    assert '"--api-key=[hidden]"' in Path("out-run/config.yaml").read_text()
    told = printed.err.splitlines()
    assert "profiling run: 79 steps; a step ends with SGD.step()" in told
    assert "next    python -m profiling report out-run --html report.html" in told
    # the first step may be left out, as the profiler's start
    assert re.search(r"^(9|10) steps \(iteration 3[01] to 39\)", printed.err, re.M)
    verdict = json.loads(Path("out-run/summary.json").read_text())["verdict"]
    assert verdict.startswith("Bound by ") and verdict[:60] in printed.err
    assert Path("out-run/profile/window-1.trace.json.gz").is_file()
    assert not Path("out-run/run.lock").exists()


@pytest.mark.slow
def test_without_a_window_step_times_and_phases_are_told(capfd):
    shell = f"{PYTHON} -c '{TRAIN}' 40"
    assert run.main(["--kind", "none", "--", "bash", "-c", shell]) == 0
    printed = capfd.readouterr().err
    assert re.search(
        rf"^profiling run: {STEP_TIME}the host is in forward \d+ %, "
        r"backward \d+ %, optimizer \d+ %\n"
        r"next    python -m profiling dashboard out-run\n"
        r"        python -m profiling compare out-run OTHER\n",
        printed,
        re.M,
    )
    assert not Path("out-run/profile").exists()


# with both at 0 requests are looked for every tenth step, however fast these are
ASKS = TRAIN.replace(
    "    model(",
    """    if step in (15, 35, 55, 75):
        import sys
        files = sys.modules["_profiling_attach.run_files"]
        files.FLUSH_S = files.LOOK_S = 0
        asked = ['damaged', '{"kind": "memory"}', '{"kind": "x"}', '{"kind": "stack", "steps": 3}']
        open("out-run/trigger.json", "w").write(asked[step // 20])
        __import__("time").sleep(0.6)  # the hook looks at most twice a second
    model(""",
)


@pytest.mark.slow
def test_a_window_with_stacks_is_recorded_on_request_and_the_program_goes_on(forked_program):
    """Requests that cannot be met are said, and neither the program nor the hook ends."""
    Path("mine.py").write_text(ASKS)
    assert run.main(["--kind", "none", "--", PYTHON, "mine.py", "120"]) == 0
    notes = read_program_facts(Path("out-run"), 0).notes
    assert [note.partition(":")[0] for note in notes] == ["trigger"] * 3
    assert "damaged" in notes[0] and "memory: torch uses no GPU" in notes[1]
    assert "x: it is none of torch, memory, nsys" in notes[2]
    manifest = json.loads(Path("out-run/profile/window-1.json").read_text())
    assert manifest["kind"] == "torch" and manifest["window"]["steps"] == 3
    report.main(["out-run", "--json", "report.json"])
    places = [row["place"] for row in json.loads(Path("report.json").read_text())["lines"]["lines"]]
    assert any(place.startswith("mine.py:") for place in places)
    assert not Path("out-run/trigger.json").exists()


@pytest.mark.slow
def test_each_rank_of_torchrun_records_the_same_window(capfd):
    of_ddp = TRAIN.replace("torch.nn.Linear(16, 16)", f"{DDP}(torch.nn.Linear(16, 16))")
    of_ddp = of_ddp.replace("print(model.weight.sum().item())", "")
    Path("mine.py").write_text(
        "import sys, torch.distributed as dist\nsys.argv[1:] = ['45']\n"
        f"dist.init_process_group('gloo')\n{of_ddp}"
        "dist.destroy_process_group()\n"
    )
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "mine.py"]
    for _ in range(3):  # gloo itself aborts at the end now and then, of bare runs too
        shutil.rmtree("out-run", ignore_errors=True)
        code = run.main(["--kind", "torch", "--steps", "5", "--", PYTHON, *torchrun])
        if "terminate called without an active exception" not in capfd.readouterr().err:
            break
    assert code == 0
    files = {path.name for path in Path("out-run/profile").iterdir()}
    ranks = {f"window-1-rank{rank}.{end}" for rank in (0, 1) for end in ("json", "trace.json.gz")}
    assert files == ranks
    assert seen.lines(Path("out-run"), SETTINGS) == [
        "ranks 0, 1: 44 steps; a step ends with SGD.step()"
    ]
    windows = [seen.first_window(Path("out-run"), rank) for rank in (0, 1)]
    assert {(w.first_iteration, w.steps) for w in windows if w} == {(30, 5)}
    assert [read_program_facts(Path("out-run"), rank).steps for rank in (0, 1)] == [44, 44]
    assert read_run(Path("out-run")).in_force["ranks"] == 2
    capfd.readouterr()
    assert report.main(["out-run"]) == 0
    printed = capfd.readouterr()
    assert "ranks are compared by their GPU work" in printed.err
    assert "A step ends with SGD.step(); 44 steps in all" in printed.out


@pytest.mark.slow
def test_a_disk_that_takes_no_more_harms_no_program(capfd, forked_program):
    Path("mine.py").write_text(TRAIN)
    bare = Forked(["mine.py", "60"], dict(os.environ)).communicate(timeout=60)[0]
    forked_program("import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n")
    with files_no_larger_than(4000):
        code = run.main(["--kind", "torch", "--start", "20", "--", PYTHON, "mine.py", "60"])
    out, lines = said_of(capfd)
    assert (code, out) == (0, bare)
    assert any(
        re.match(r"the hook stopped in process \d+: OSError: .*disk full\?", x) for x in lines
    )
    assert not list(Path("out-run/profile").glob("*.tmp.*"))
