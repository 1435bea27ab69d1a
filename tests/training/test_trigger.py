"""`python -m profiling trigger`: a window requested from a real run that is under way."""

import json
import time
from pathlib import Path

import pytest

from cli.lock import Lock
from profiling.recording.spans import NOTHING, NoSpans
from profiling.shared.run_files import TRIGGER
from profiling.verbs import trigger
from tests.helpers.ranks import TORCHRUN

WORDS = "compile=false n_layer=1 n_head=2 n_embd=16 block_size=16 batch_size=2 eval_iters=1"
WORDS += " log_interval=5 eval_interval=1000000 dropout=0 wandb.mode=disabled profile.steps=4"


def under_way(start, folder: Path, *words: str):
    """A training that has logged rows, and does not end by itself."""
    out_dir = folder / "out"
    command = ["train.py", "config/shakespeare_char_cpu.yaml", *WORDS.split(), *words]
    process = start([*command, "max_iters=1000000", f"out_dir={out_dir}"])
    deadline = time.monotonic() + 60
    while not (path := out_dir / "metrics.jsonl").exists() or path.read_text().count("\n") < 4:
        assert time.monotonic() < deadline and process.poll() is None, process.stdout.read()
        time.sleep(0.1)
    return process, out_dir


def end(process) -> str:
    process.terminate()
    return process.communicate(timeout=60)[0]


def window(out_dir: Path, number: int = 1) -> dict:
    path = out_dir / "profile" / f"window-{number}.json"
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, "no window"
        time.sleep(0.1)
    return json.loads(path.read_text())


def refused(*words) -> str:
    with pytest.raises(ValueError) as error:
        trigger.main([str(word) for word in words])
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.slow
def test_a_run_under_way_captures_when_it_is_asked_and_asked_again(start, tmp_path, capsys):
    process, out_dir = under_way(start, tmp_path)
    assert trigger.main([str(out_dir)]) == 0
    assert "the run has accepted the request" in capsys.readouterr().out
    first = window(out_dir)
    assert first["kind"] == "torch" and first["config"]["profile"]["kind"] == "torch"
    assert first["window"]["complete"] and first["window"]["steps"] == 4
    assert len(first["step_ms"]["before"]["laps"]) > 3, "the run's own steps before it"
    assert trigger.main([str(out_dir), "--steps", "2", "--kind", "stack"]) == 0
    second = window(out_dir, 2)
    assert second["window"]["steps"] == 2 and second["config"]["profile"]["stack"]
    assert refused(out_dir, "--kind", "memory").startswith("--kind memory: needs a CUDA GPU")
    said = end(process)
    assert "profile=torch: iterations " in said and "Traceback" not in said
    from profiling.analysis.open_report import open_report

    report = open_report(out_dir / "profile" / "window-1.trace.json.gz").report
    assert {"forward", "backward", "optimizer"} <= {phase.name for phase in report.phases}
    assert not (out_dir / TRIGGER).exists()
    assert refused(out_dir).startswith(f"{out_dir}: no run is in progress in this folder")


@pytest.mark.slow
def test_what_cannot_be_is_said_by_the_run_and_it_goes_on(start, tmp_path):
    process, out_dir = under_way(start, tmp_path, "eval_interval=10")
    for asked in ('{"kind": "nsys"}', "damaged", '{"kind": "torch", "steps": 11}'):
        (out_dir / "asked").write_text(asked)
        (out_dir / "asked").rename(out_dir / TRIGGER)
        deadline = time.monotonic() + 30
        while (out_dir / TRIGGER).exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    rows = (out_dir / "metrics.jsonl").read_text().count("\n")
    time.sleep(1)
    assert (out_dir / "metrics.jsonl").read_text().count("\n") > rows
    said = end(process)
    assert "trigger: no window: profile=nsys: needs a CUDA GPU" in said
    assert "trigger.json: is damaged" in said
    assert "trigger: no window: profile.steps=11: an evaluation" in said
    assert not list(out_dir.glob("profile/*"))


def test_the_next_command_works_for_a_folder_with_spaces(tmp_path, monkeypatch, capsys):
    for name in ("check_alive", "check_kind", "wait_until_taken"):
        monkeypatch.setattr(trigger, name, lambda *_: None)
    monkeypatch.chdir(tmp_path)
    Path("my run").mkdir()
    assert trigger.main(["my run"]) == 0
    assert capsys.readouterr().out.endswith("report 'my run'\n")


def test_nobody_is_asked_where_no_run_is(tmp_path):
    assert "no such folder" in refused(tmp_path / "no")
    assert "no run is in progress in this folder" in refused(tmp_path)
    (tmp_path / "run.lock").write_text("process 1 on host here since 2026-01-01 00:00:00+00:00")
    assert "no run is in progress in this folder" in refused(tmp_path), "it was killed"
    assert not (tmp_path / TRIGGER).exists()


def test_a_program_without_a_step_is_not_asked(tmp_path):
    with Lock(tmp_path, "here"):
        assert "has made no step yet; ask again once it has" in refused(tmp_path)


@pytest.mark.slow
def test_several_ranks_open_it_together(start, tmp_path):
    torchrun = [*TORCHRUN, "--standalone", "--nproc_per_node=2"]
    out_dir, words = tmp_path / "out", [*WORDS.split(), "gradient_accumulation_steps=2"]
    words += ["max_iters=1000000", "profile.ranks=[0,1]", f"out_dir={out_dir}"]
    start([*torchrun, "train.py", "config/shakespeare_char_cpu.yaml", *words], OMP_NUM_THREADS="1")
    deadline = time.monotonic() + 90
    while not (path := out_dir / "metrics.jsonl").exists() or path.read_text().count("\n") < 4:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert trigger.main([str(out_dir)]) == 0
    found = [out_dir / "profile" / f"window-1-rank{rank}.json" for rank in (0, 1)]
    deadline = time.monotonic() + 60
    while not all(path.exists() for path in found):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    windows = [json.loads(path.read_text())["window"] for path in found]
    assert windows[0] == windows[1] and windows[0]["complete"]


def test_ranges_cost_nothing_until_they_are_woken():
    spans = NoSpans()
    assert spans.phase("forward") is spans.iteration(1) is spans.micro_step(0, of=2) is NOTHING
    spans.now = 7
    awake = spans.wake()
    assert spans.phase("forward") is awake.phases["forward"] and awake.now == 7
    spans.sleep()
    assert spans.phase("forward") is NOTHING
