"""validation.framework_programs, frameworks and judged, without any of the frameworks."""

import ast
import gzip
import json
import shutil
from dataclasses import replace

import pytest

from profiling.shared.causes import VERDICT
from tests.helpers.clock import FakeClock
from tests.paths import PROJECT
from validation import foreign, frameworks, judged
from validation.framework_programs import session
from validation.framework_programs.program import FRAMEWORKS, Program
from validation.framework_programs.series import PROGRAMS, SERIES, SIXTH
from validation.framework_programs.session import Device, Finished, Session
from validation.frameworks import Measured
from validation.judged import Judged

FOLDER = PROJECT / "validation" / "framework_programs"
CAPTURES = PROJECT / "tests" / "captures"
PROGRAM = Program("plain", "plain_gridworld", "cpu", "data")


def functions(module: str) -> list[ast.FunctionDef]:
    """The programs of a module: functions of a fault and a mark."""
    tree = ast.parse((FOLDER / f"{module.replace('.', '/')}.py").read_text("utf-8"))
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and [given.arg for given in node.args.args] == ["fault", "mark"]
    ]


def test_the_table_has_every_program_and_each_says_what_is_planted():
    made = {(module, function.name) for module in FRAMEWORKS for function in functions(module)}
    assert made == {(program.module, program.name) for program in PROGRAMS}
    assert len({name for _, name in made}) == len(PROGRAMS)
    assert all(
        ast.get_docstring(function) for module in FRAMEWORKS for function in functions(module)
    )


@pytest.mark.parametrize("series", SERIES.values(), ids=SERIES)
def test_a_series_has_all_classes_and_controls(series):
    assert len(series) >= 26 and len({program.framework for program in series}) >= 10
    controls = [program for program in series if program.control]
    of_gpu = [each for each in controls if each.planted.startswith("gpu_")]
    assert len(controls) >= 6 and len(of_gpu) >= len(controls) - 1  # one may be bound by launches
    assert {program.planted for program in series if not program.control} == set(VERDICT) - {
        "communication", "gpu_gaps", "gpu", "host", "cpu_only", "unknown",
        "evaluation", "checkpoint", "logging",  # of runs without a GPU
    }  # fmt: skip
    assert all(set(each.debatable.split(",")) - {""} <= set(VERDICT) for each in series)


def test_a_fault_is_counted_from_a_quarter_of_the_step_since_the_ninth_series():
    assert {each.least_share for n in (9, 10, 11, 12, 13, 14, 15) for each in SERIES[n]} == {0.25}
    assert {each.least_share for n in (6, 7, 8) for each in SERIES[n]} == {0}


def conducted(commands, monkeypatch, wait=lambda result: None):
    """Answers of a session over a program whose steps take 2 ms, and the number of steps."""
    clock, answers, steps = FakeClock(), [], 0
    monkeypatch.setattr(session, "time", clock)
    told = Session(Device(wait), commands, answers.append)
    with pytest.raises(Finished):
        while True:
            clock.sleep(0.002)
            steps += 1
            told.mark(steps)
    return answers, steps


def test_a_program_runs_as_many_steps_as_it_is_told(monkeypatch):
    waited = []
    answers, steps = conducted(["time 10 3", "nsys 5", "end"], monkeypatch, waited.append)
    assert answers == ["ready", "2.000000", "2.000000"]
    assert steps == session.WARM_UP + 3 + 10 + 5
    assert waited == [6, 9, 19, 19, 24]  # with the result of the last step each time


def test_torch_profilers_first_step_is_in_no_time_of_a_capture(monkeypatch, tmp_path):
    file = tmp_path / "capture.json.gz"
    answers, steps = conducted([f"torch 4 {file}", "end"], monkeypatch)
    assert answers == ["ready", "2.000000"] and steps == session.WARM_UP + 1 + 4
    assert list(tmp_path.iterdir()) == [file]
    with gzip.open(file) as trace:
        assert json.load(trace)["traceEvents"]


def test_missing_packages_are_named_in_one_line(monkeypatch):
    monkeypatch.setattr(frameworks, "is_installed", lambda name: name in ("torch", "accelerate"))
    chosen = [each for each in SIXTH if each.module in ("plain", "with_hf_trainer", "with_jax")]
    assert frameworks.missing_packages(chosen) == "pip install transformers jax"
    with pytest.raises(ValueError, match="need more packages: pip install transformers jax$"):
        frameworks.find_nsys("", chosen)


def test_series_do_not_mix():
    config = foreign.ForeignConfig(programs="plain_control,vit_gc")
    with pytest.raises(ValueError, match="those of series 6 and later run by themselves"):
        foreign.main(config)


def test_a_stopped_command_goes_on_and_tries_again_what_failed(monkeypatch, tmp_path, capsys):
    timed, captured = [], []

    def time_and_capture(program, rounds, out, on_gpu):
        timed.append(program.name)
        return Measured([4.0] * rounds, [3.0] * rounds, 5.0)

    def capture_by_nsys(program, out, nsys):
        captured.append(program.name)
        if len(captured) == 1:
            raise ValueError(f"{program.name}-nsys: no report")
        return 6.0

    monkeypatch.setattr(frameworks, "time_and_capture", time_and_capture)
    monkeypatch.setattr(frameworks, "capture_by_nsys", capture_by_nsys)
    nsys = frameworks.Nsys("/bin/nsys", "2025.3.1", {}, {})
    chosen = [PROGRAM, Program("plain", "plain_control", "gpu_compute", control=True)]
    assert frameworks.record(chosen, 2, tmp_path, nsys) == ["plain_gridworld"]
    assert "plain_gridworld-nsys: no report" in capsys.readouterr().err
    assert frameworks.record(chosen, 2, tmp_path, nsys) == []
    assert timed == ["plain_gridworld", "plain_control"]
    assert captured == ["plain_gridworld", "plain_control", "plain_gridworld"]
    known = frameworks.read_measured(SIXTH, tmp_path)
    assert known == dict.fromkeys(timed, Measured([4.0, 4.0], [3.0, 3.0], 5.0, 6.0))


@pytest.mark.slow
def test_both_sides_take_turns_in_processes_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(frameworks, "BLOCK_MS", 10.0)
    for folder in ("own", "logs"):
        (tmp_path / folder).mkdir()
    measured = frameworks.time_and_capture(PROGRAM, 2, tmp_path, on_gpu=False)
    assert len(measured.with_ms) == len(measured.without_ms) == 2
    assert min(*measured.with_ms, *measured.without_ms, measured.own_ms) > 0
    assert (tmp_path / "own" / "plain_gridworld-1.json.gz").exists()


def test_a_process_that_ends_is_named_with_its_log(monkeypatch, tmp_path):
    (tmp_path / "logs").mkdir()
    unknown = replace(PROGRAM, name="no_such_program")
    with (
        frameworks.asked_process(unknown, "fault", tmp_path, on_gpu=False) as child,
        pytest.raises(ValueError, match=r"no_such_program-fault \(.*\.log\) ended with 1 and no"),
    ):
        child.answer()


@pytest.mark.parametrize(
    "verdict, planted, grade",
    [
        ("cpu", "cpu", "right"),
        ("data", "cpu", "debatable"),
        ("host", "cpu", "vague"),
        ("unknown", "cpu", "vague"),
        ("gpu", "cpu", "wrong"),
        ("host", "gpu_memory", "wrong"),
        ("gpu", "gpu_memory", "vague"),
        (None, "cpu", "none"),
    ],
)
def test_grades(verdict, planted, grade):
    assert judged.grade_of(verdict, replace(PROGRAM, planted=planted)) == grade


def test_a_capture_is_judged_beside_what_was_measured(tmp_path):
    """Ten of the capture's steps are one of the program's; a missing file is no verdict."""
    (tmp_path / "nsys").mkdir()
    shutil.copy(CAPTURES / "slow_eager.sqlite.gz", tmp_path / "nsys" / "plain_gridworld-1.sqlite")
    (once,) = judged.judge_all([PROGRAM], {}, tmp_path, by_nsys=True)[:1]
    report_ms = judged.open_report(tmp_path / "nsys" / "plain_gridworld-1.sqlite").report.window
    captured_ms = 10 * report_ms.step_ms.mean
    known = {PROGRAM.name: Measured([captured_ms - 1] * 3, [2.0] * 3, None, captured_ms)}
    by_nsys, by_own = judged.judge_all([PROGRAM], known, tmp_path, by_nsys=True)
    assert (once.scale, once.real_cost_ms, once.gain_ms) == (1, None, None)
    assert by_nsys.scale == pytest.approx(10) and by_nsys.real_cost_ms == pytest.approx(1)
    assert by_nsys.gain_ms == pytest.approx(captured_ms - 3)
    assert by_nsys.promised_ms == pytest.approx(10 * once.promised_ms)
    assert (by_own.tool, by_own.grade) == ("torch.profiler", "none") and by_own.problem


ROW = Judged(
    "plain_gridworld", "PyTorch", "cpu", False, True, "nsys", None, "cpu", "right", 10.0, 6.0, 5.0,
    4.0, 1, 0.5, 1.0, None,
)  # fmt: skip


def test_the_table_has_both_gains_and_both_costs(capsys):
    judged.print_table(
        [ROW, replace(ROW, verdict=None, grade="none", problem="no events", scale=2)]
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == (
        "| plain_gridworld | PyTorch | cpu | nsys | cpu | right | 10, 6 | 4 | 5 | 1.25 | 0.5 | 1 |"
    )
    assert " | – | none | 10, 6 | 4 | 5 (x 2) | – |" in lines[4]
    assert lines[5] == "plain_gridworld, nsys: no events"


def test_a_fault_of_little_of_the_step_is_in_the_table_but_not_in_the_counts(capsys):
    small = replace(ROW, program="small", with_ms=7.9, grade="wrong", least_share=0.25)
    enough = replace(small, program="enough", with_ms=8.0)
    control = replace(small, program="control", control=True)
    unmeasured = replace(small, program="unmeasured", with_ms=None)
    rows = [small, enough, control, unmeasured]
    assert [row.counted for row in rows] == [False, True, True, True]
    judged.print_table(rows)
    table = capsys.readouterr().out.splitlines()
    assert " | wrong, not counted | 7.9, 6 | " in table[3] and " | wrong | 8, 6 | " in table[4]
    judged.print_counts(rows)
    counts = capsys.readouterr().out.splitlines()
    assert "| nsys | 0 | 0 | 0 | 3 | 0 | 1 |" in counts
    assert "not counted, as the fault takes too little of the step: small" in counts


def test_grades_and_gains_are_counted(capsys):
    control = replace(ROW, control=True, planted="gpu_compute", verdict="data", grade="wrong")
    rows = [ROW, replace(ROW, promised_ms=4.2), control, replace(ROW, same_work=False)]
    judged.print_counts(rows)
    lines = capsys.readouterr().out.splitlines()
    assert "| nsys | 3 | 0 | 0 | 1 | 0 | 1 |" in lines
    assert (
        "gains, waits: off by 15 % in the median, 23 % at the 90th percentile; median ratio 1.15; "
        "1 of 2 within 12 %"
    ) in lines
    assert "gains, GPU: 0 known" in lines
    informed = next(line for line in lines if "waits, with the step's time" in line)
    assert "off by 0 % in the median" in informed and "2 of 2 within" in informed
