"""`profile=` around generation: a window of tokens, captured and read back."""

import gzip
import json
import logging
import sys
from pathlib import Path

import pytest

import sample as program
from cli.help import read_keys
from configs.sampling import HELP, SampleConfig
from data.standin import stand_in_text
from data.tokenizers import CharTokenizer
from profiling.analysis.open_report import open_report
from profiling.analysis.steps.find import find_steps
from profiling.recording.nsys import how_to_attach
from profiling.timeline.opening import iterations_of
from tests.helpers.checkpoints import write_checkpoint
from tests.helpers.programs import GEMM, MS, Builder

KEYS = ["device=cpu", "num_samples=3", "max_new_tokens=20", "start=To be"]


@pytest.fixture
def out_dir(tmp_path) -> Path:
    write_checkpoint(tmp_path, CharTokenizer(stand_in_text(length=20_000)))
    return tmp_path


@pytest.fixture
def run(monkeypatch, capsys, out_dir):
    """Runs sample.py in this process; returns (exit code, stdout, stderr)."""
    monkeypatch.setattr(logging.root, "handlers", [])

    def call(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["sample.py", f"out_dir={out_dir}", *KEYS, *words])
        code: object = 0
        try:
            program.main(read_keys(HELP, SampleConfig))
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return call


def ranges_of(trace: Path) -> list[str]:
    """Names of the ranges in the order of their beginnings."""
    with gzip.open(trace, "rt") as file:
        events = json.load(file)["traceEvents"]
    ranges = [event for event in events if event.get("cat") == "user_annotation"]
    names = [event["name"] for event in sorted(ranges, key=lambda e: (e["ts"], -e["dur"]))]
    return [name for name in names if not name.startswith("PyTorch Profiler")]


@pytest.mark.slow
def test_the_last_sample_is_captured_from_its_prompt_on(run, out_dir):
    plain = run()
    code, out, err = run("profile=torch", "profile.steps=4", "profile.shapes=true")
    assert code == 0 and (code, out) == plain[:2]  # the same text
    assert "profile=torch: tokens 40 to 43" in err and "4 tokens from 40 on" in err
    assert f"next: python -m profiling report {out_dir}/sample" in err
    folder = out_dir / "sample" / "profile"
    names = ranges_of(folder / "window-1.trace.json.gz")
    decoded = [name for number in (41, 42, 43) for name in (f"token {number}", "decode", "read")]
    assert names == ["token 40", "prefill", "read", *decoded]
    manifest = json.loads((folder / "window-1.json").read_text())
    assert manifest["window"]["complete"] and manifest["window"]["first_iteration"] == 40
    laps = {which: len(manifest["step_ms"][which]["laps"]) for which in manifest["step_ms"]}
    assert laps == {"before": 20, "captured": 4, "after": 16}
    assert manifest["config"]["n_embd"] == 32 and manifest["config"]["max_new_tokens"] == 20


@pytest.mark.slow
def test_lines_about_the_window_come_behind_the_text_and_not_into_it(run, monkeypatch):
    monkeypatch.setattr(sys, "stderr", sys.stdout)  # as on a terminal
    _, out, _ = run("profile=torch", "profile.steps=2", "profile.start=3", "num_samples=1")
    text, facts = out.split(program.SEPARATOR)
    assert "profile:" not in text and "2 tokens from 3 on" in facts


@pytest.mark.slow
def test_its_report_has_a_token_for_a_step(run, out_dir):
    run("profile=torch", "profile.steps=4", "profile.start=33")
    report = open_report(out_dir / "sample").report
    slow_first = report.window.left_out_ms is not None  # the profiler's start may lie in it
    assert report.window.step_name == "token" and report.window.steps + slow_first == 4
    assert report.window.first_iteration == 33 + slow_first
    assert report.window.phases_from == "ranges"
    assert {row.name for row in report.ranges if row.depth == 0} == {"decode", "read"}
    assert report.health.free_step_ms is not None
    assert report.run.config["profile"]["steps"] == 4
    assert report.roofline is None
    assert not any("profile=" in line or "batch_size" in line for line in report.bottleneck.next)


@pytest.mark.slow
def test_a_window_goes_on_in_the_next_sample(run, out_dir):
    run("profile=torch", "profile.steps=3", "profile.start=19")
    names = ranges_of(out_dir / "sample" / "profile" / "window-1.trace.json.gz")
    assert names == [
        *("token 19", "decode", "read"),
        *("token 20", "prefill", "read"),
        *("token 21", "decode", "read"),
    ]


@pytest.mark.slow
def test_a_token_of_each_text_of_a_batch_is_one_step(run, out_dir):
    code, _, err = run("profile=torch", "profile.steps=3", "batch_size=2")
    assert code == 0 and "tokens 20 to 22" in err  # the second batch has the third text alone
    names = ranges_of(out_dir / "sample" / "profile" / "window-1.trace.json.gz")
    assert names[:3] == ["token 20", "prefill", "read"] and len(names) == 9


@pytest.mark.slow
def test_a_full_context_is_read_again_by_prefill(run, out_dir):
    run("profile=torch", "profile.steps=20", "profile.start=0")
    names = ranges_of(out_dir / "sample" / "profile" / "window-1.trace.json.gz")
    # 5 of the prompt and 11 more fill the 16 places; the last 8 are read again, and 8 tokens later
    assert [names[i - 1] for i, name in enumerate(names) if name == "prefill"] == [
        *("token 0", "token 12"),
    ]


def test_without_a_profile_nothing_is_left(run, out_dir):
    code, _, err = run()
    assert code == 0 and "profile=" not in err and not (out_dir / "sample").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["profile=torch", "profile.steps=21"], "profile.steps=21: the window would be tokens 40 "),
        (
            ["profile=torch", "batch_size=3", "profile.start=1"],
            "max_new_tokens=20, 3 at once, are 20",
        ),
        (["profile=torch", "profile.start=55"], "profile.steps=20: the window would be tokens 55 "),
        (["profile=torch", "profile.start=soon"], "profile.start=soon: must be auto or"),
        (["profile=torch", "profile.steps=0"], "profile.steps=0: must be at least 1"),
        (["profile=torch", "profile.stesp=3"], "profile.stesp: no such key; did you mean profile."),
        (["profile=nsis"], "profile=nsis: no such choice; did you mean nsys"),
        (["profile=nsys"], "profile=nsys: needs a CUDA GPU, but this run is on cpu"),
        (["profile=memory"], "profile=memory: needs a CUDA GPU"),
    ],
)
def test_mistakes_are_told_in_one_line(run, words, message):
    code, out, err = run(*words)
    assert code == 2 and out == ""
    last = err.strip().splitlines()[-1]
    assert message in last, err


def test_nsys_is_attached_to_what_runs(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sample.py", "num_samples=3", "profile=nsys"])
    config = SampleConfig()
    said = how_to_attach(config.window())
    assert said.startswith("python -m profiling run sample.py num_samples=3 profile=nsys, or")


def test_tokens_of_an_nsys_capture_are_its_steps():
    """Builds a trace as nsys sees it: its domain, the launches inside; the manifest is found by
    their numbers."""
    build = Builder()
    for number in range(3):
        at = number * 10 * MS
        build.range(at, at + 9 * MS, f"token {number + 7}")
        build.range(at, at + 4 * MS, "decode" if number else "prefill")
        build.launched(at + MS, at + 2 * MS, at + 3 * MS, GEMM)
    trace = build.trace()
    steps = find_steps(trace)
    assert (steps.name, steps.first_iteration, len(steps.start_ns)) == ("token", 7, 3)
    assert steps.phases_from == "ranges"
    assert {trace.names[name] for name in steps.ranges.name.tolist()} == {"prefill", "decode"}
    assert iterations_of(trace) == {7, 8, 9}
