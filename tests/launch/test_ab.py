"""`python -m profiling ab`: its runs, their order, its conclusions, and going on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from msgspec import to_builtins
from msgspec.structs import replace as with_fields
from omegaconf import OmegaConf

from cli.interrupts import unwind
from cli.lock import Lock
from configs.command_line import compose_one
from configs.compose import compose_jobs
from profiling.analysis.difference.comparison_records import Experiment, Factor, ProcessRun
from profiling.analysis.difference.experiment import analyse, conclude
from profiling.launch.experiment.captures import missing_captures
from profiling.launch.experiment.plan import order, plan_experiment, quote_path, timed_words
from profiling.launch.experiment.processes import open_experiment, time_process
from profiling.report.comparison import tables
from profiling.verbs import ab
from profiling.verbs.gate import gate
from tests.helpers.pace import paces
from tests.paths import FAKES, PROJECT
from validation.aa_trials import TrialsConfig, count_called, read_processes
from validation.aa_trials import main as aa_trials

FAKE = FAKES / "fake_trainer.py"
CPU = "config/shakespeare_char_cpu.yaml"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Runs `ab` in an empty folder over the fake trainer; returns (exit code, starts so far)."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "starts.log"
    log.touch()
    monkeypatch.setenv("FAKE_LOG", str(log))
    monkeypatch.setattr(ab, "check_on_this_machine", paces)

    def run(*words: str) -> tuple[int, list[str]]:
        code = ab.main([CPU, *words, "--no-capture", "--steps", "40"], FAKE)
        return code, log.read_text().splitlines()

    return run


def results(folder: str) -> dict:
    return json.loads(Path(folder, "results.json").read_text())


def experiment(labels: dict[str, list[float]]) -> Experiment:
    """One whose processes have these median step times."""
    runs = [process(label, ms) for label, times in labels.items() for ms in times]
    factor = Factor("attention", list(labels), list(labels))
    return Experiment(1, factor, [CPU], steps=30, warm_up=50, log_interval=10, runs=runs)


def process(label: str, ms: float) -> ProcessRun:
    step_ms = [ms * 0.99, ms, ms * 1.01]
    return ProcessRun(0, label, [], "runs/01", 20.0, 128, [60, 70, 80], step_ms, step_ms)


@pytest.mark.slow
def test_processes_are_interleaved_and_a_difference_is_found(fake, capsys):
    code, starts = fake("attention=slow,flash", "--repeats", "3")
    assert code == 0
    values = [word for start in starts for word in start.split() if word.startswith("attention=")]
    assert [value[10:] for value in values] == ["slow", "flash", "flash", "slow", "slow", "flash"]
    out, err = capsys.readouterr()
    assert err == ""
    assert "flash is 1.25x faster than slow" in " ".join(out.split())
    assert "folder  out-ab/attention-slow-flash" in out
    assert out.index("it takes about") < out.index("  1/6  slow")
    found = results("out-ab/attention-slow-flash")
    assert found["result"]["comparisons"][0]["verdict"] == "faster"
    low, high = found["result"]["comparisons"][0]["ci95"]
    assert 0.78 < low < 0.8 < high < 0.82


@pytest.mark.slow
def test_what_the_machine_refuses_is_known_before_the_first_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "starts.log"))
    with pytest.raises(ValueError, match="^cudnn: attention=cudnn: runs only on CUDA"):
        ab.main([CPU, "attention=slow,cudnn", "dropout=0", "--steps", "40"], FAKE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_experiment_that_runs_is_left_alone(fake):
    folder = Path("out")
    with Lock(folder, "X"), pytest.raises(ValueError, match="^--out out: in use by process"):
        fake("attention=slow,flash", "--repeats", "2", "--out", "out")
    assert fake("attention=slow,flash", "--repeats", "2", "--out", "out")[0] == 0
    assert not (folder / "run.lock").exists()


@pytest.mark.slow
def test_the_record_holds_every_step_time_behind_the_warm_up(fake):
    fake("attention=slow,flash", "--repeats", "2")
    found = results("out-ab/attention-slow-flash")
    for run in found["runs"]:
        assert run["iterations"] == [60, 70, 80, 90]
        assert len(run["step_ms"]) == 4 and max(run["step_ms"]) < 11  # 50 in the warm-up
        assert not Path("out-ab/attention-slow-flash", run["folder"], "ckpt.pt").exists()
    assert found["configs"]["flash"]["attention"] == "flash"
    assert found["in_force"]["slow"] == {"device": "cpu"}
    assert found["words"] == [CPU]


@pytest.mark.slow
def test_timed_processes_are_neither_profiled_nor_evaluated_nor_mirrored(fake):
    _, starts = fake("attention=slow,flash", "--repeats", "2")
    for start in starts:
        words = dict(word.split("=") for word in start.split()[1:])
        assert words["max_iters"] == "91" and words["log_interval"] == "10"
        assert int(words["eval_interval"]) > 91 and words["wandb.mode"] == "disabled"
        assert words["profile"] == "none"


@pytest.mark.slow
def test_equal_values_are_an_experiment_of_a_against_a(fake, capsys):
    code, _ = fake("attention=slow,slow", "--repeats", "5")
    assert code == 0
    assert "slow (2) and slow are equal within 2 %" in " ".join(capsys.readouterr().out.split())
    trials = TrialsConfig(records="out-ab/attention-slow-slow/results.json", trials=200)
    aa_trials(trials)
    assert "| attention=slow | 10 |" in capsys.readouterr().out.replace(f"{CPU} ", "")
    ((_, processes),) = read_processes([Path(trials.records)]).items()
    by_ab, by_interval, by_steps = count_called(processes, 200, 5, 0)
    assert by_ab <= 10 and by_ab <= by_interval < by_steps


@pytest.mark.slow
def test_more_than_two_values_are_compared_with_the_first(fake, capsys):
    fake("attention=slow,flash,math", "--repeats", "3", "--markdown", "t.md", "--html", "t.html")
    out = " ".join(capsys.readouterr().out.split())
    assert "flash is 1.25x faster than slow" in out
    assert "math and slow are equal within 2 %" in out
    text = Path("t.md").read_text()
    assert "| `flash / slow` |" in text and "| `math / slow` |" in text
    page = Path("t.html").read_text()
    assert "flash is 1.25x faster" in page and '"processes"' in page


@pytest.mark.slow
def test_sizes_of_a_batch_are_compared_by_the_token(fake, capsys):
    fake("batch_size=4,8", "attention=slow", "--repeats", "3")
    found = results("out-ab/batch_size-4-8")["result"]
    assert found["unit"] == "ns per token"
    assert found["comparisons"][0]["verdict"] == "equal"  # twice as long, twice the tokens
    out = capsys.readouterr().out
    assert "ns per token" in out
    assert "not alike: batch_size 4 against 8" in out


@pytest.mark.slow
def test_a_process_that_fails_shows_its_end_and_the_rest_goes_on(fake, monkeypatch, capsys):
    monkeypatch.setenv("FAKE_FAIL", "3")
    with pytest.raises(
        ValueError, match=r"flash: .* exit code 1.*train.*attention=flash"
    ) as caught:
        fake("attention=slow,flash", "--repeats", "2", "--out", "exp")
    assert "\n" not in str(caught.value)
    assert "the GPU has left the building" in capsys.readouterr().out
    assert len(results("exp")["runs"]) == 2
    monkeypatch.delenv("FAKE_FAIL")
    code, starts = fake("attention=slow,flash", "--repeats", "2", "--out", "exp")
    assert code == 0 and len(starts) == 5  # two, the failed one, and the two that were missing
    assert sorted(run["number"] for run in results("exp")["runs"]) == [0, 1, 2, 3]
    _, starts = fake("attention=slow,flash", "--repeats", "3", "--out", "exp")
    assert len(starts) == 7  # more repeats of the same experiment


@pytest.mark.slow
def test_a_folder_of_another_experiment_is_not_mixed_with(fake):
    fake("attention=slow,flash", "--repeats", "2", "--out", "exp")
    with pytest.raises(ValueError, match="--out exp: contains an experiment with other keys"):
        fake("attention=slow,flash", "n_layer=1", "--repeats", "2", "--out", "exp")


@pytest.mark.slow
def test_a_damaged_record_is_named_with_its_field(fake):
    fake("attention=slow,flash", "--repeats", "2", "--out", "exp")
    path = Path("exp/results.json")
    path.write_text(path.read_text().replace('"number": 2', '"number": "two"'))
    with pytest.raises(ValueError, match=r"exp/results.json: .* `str` - at `\$.runs\[2\].number`"):
        fake("attention=slow,flash", "--repeats", "2", "--out", "exp")


@pytest.mark.slow
def test_iterations_are_told_side_by_side_with_what_came_before_them(fake, capsys):
    code, _ = fake("attention=slow,flash", "--repeats", "3", "--iterations", "3")
    assert code == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Iteration by iteration" in out and "Before the first iteration" in out
    assert "flash reaches its speed 2.6 s after slow" in out
    found = results("out-ab/attention-slow-flash")["first_iterations"]
    slow, flash = found["values"]
    assert [len(value["ms"]) for value in (slow, flash)] == [3, 3]
    assert slow["ms"][0] == pytest.approx(50, rel=0.02) and flash["median_ms"] < 8.1
    assert slow["start"]["compile_s"] is None and flash["start"]["compile_s"] == 3.0
    assert flash["later_start"]["compile_s"] == 1.0
    first, later = found["evened"]
    # 3 s of compiling, less the 50 slow iterations, which are shorter by 4 x (10 - 8) ms each
    assert first["later_s"] == pytest.approx(3 - 50 * 4 * 2e-3, abs=0.05)
    assert first["iterations"] == pytest.approx(first["later_s"] / 2e-3, rel=0.05)
    assert later["iterations"] == pytest.approx((1 - 0.4) / 2e-3, rel=0.1)


@pytest.mark.slow
def test_without_iterations_nothing_is_told_of_them(fake, capsys):
    fake("attention=slow,flash", "--repeats", "2", "--iterations", "0")
    assert "Iteration by iteration" not in capsys.readouterr().out
    assert "first_iterations" not in results("out-ab/attention-slow-flash")


def test_help_has_examples_and_exit_codes(capsys):
    with pytest.raises(SystemExit) as ended:
        ab.main(["--help"])
    out = capsys.readouterr().out
    assert not ended.value.code
    assert "--repeats N" in out and "examples" in out and "exit code" in out


@pytest.mark.slow
def test_a_second_experiment_gets_a_folder_of_its_own(fake):
    fake("attention=slow,flash", "--repeats", "2")
    fake("attention=slow,flash", "--repeats", "2")
    assert results("out-ab/attention-slow-flash-2")["runs"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_ctrl_c_keeps_what_was_measured_and_says_how_to_go_on(number, status, tmp_path):
    log = tmp_path / "starts.log"
    environ = os.environ | {"FAKE_LOG": str(log), "FAKE_HANG": "3", "PYTHONPATH": str(PROJECT)}
    program = f"import sys; from pathlib import Path; from profiling.verbs import ab; \
from tests.helpers.pace import paces; ab.check_on_this_machine = paces; \
sys.exit(ab.main(sys.argv[1:], Path({str(FAKE)!r})))"
    words = [CPU, "attention=slow,flash", "--repeats", "2", "--steps", "20", "--no-capture"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    folder = tmp_path / "out-ab" / "attention-slow-flash"
    deadline = time.monotonic() + 90
    while not any("hanging" in p.read_text() for p in folder.glob("runs/*.log")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == status
    assert "stopped; 2 of 4 processes are in out-ab/attention-slow-flash" in out
    assert "--out out-ab/attention-slow-flash" in out
    assert len(results(str(folder))["runs"]) == 2


@pytest.mark.slow
def test_a_signal_between_processes_is_answered_alike(fake, monkeypatch, capsys):
    monkeypatch.setattr(ab, "measure", lambda *_: unwind(signal.SIGTERM))
    assert fake("attention=slow,flash", "--repeats", "2")[0] == 143
    assert "stopped; 0 of 4 processes are in" in capsys.readouterr().out


@pytest.mark.slow
def test_a_gate_knows_a_regression_and_says_nothing_of_a_gain(fake, capsys):
    gate_of_5 = ("--repeats", "3", "--fail-on-regression", "5")
    assert fake("attention=flash,slow", *gate_of_5)[0] == 1
    assert "\nregression: slower by more than 5 %\n" in capsys.readouterr().out
    assert fake("attention=slow,flash", *gate_of_5)[0] == 0
    assert "slower by more than" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("values", "limit", "code", "said"),
    [
        ({"b": [9.0, 12.0]}, None, 0, ""),
        ({"b": [9.0, 12.0]}, 5, 3, "no answer: whether it is slower by more than 5 % is"),
        ({"b": [9.0, 12.0], "c": [20.0, 20.1]}, 5, 1, "c: regression: slower by more than 5 %"),
        ({"b": [9.0, 12.0], "c": [20.0, 20.1]}, 5, 1, "b: no answer: whether it is slower"),
        ({"b": [10.0, 10.01], "c": [9.0, 9.01]}, 5, 0, ""),
    ],
)
def test_the_gate_of_several_values_is_that_of_the_worst(values, limit, code, said, capsys):
    found = experiment({"a": [10.0, 10.01], **values})
    empty: dict = dict.fromkeys(["a", *values], {})
    found = conclude(with_fields(found, configs=empty, in_force=empty), [None] * len(values))
    assert gate(found.comparisons, limit) == code
    out = capsys.readouterr().out
    assert said in out if said else not out


@pytest.mark.slow
def test_dry_run_prints_the_commands_and_starts_nothing(fake, capsys):
    code, starts = fake("attention=slow,flash", "--repeats", "2", "--dry-run")
    assert code == 0 and not starts and not Path("out-ab").exists()
    lines = [line for line in capsys.readouterr().out.splitlines() if "attention=" in line]
    assert len(lines) == 4 and all("max_iters=91" in line for line in lines)
    assert "out_dir=out-ab/attention-slow-flash/runs/01-slow" in lines[0].split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["attention=slow"], "no key with several values; give exactly one"),
        (["attention=slow,flash", "compile=true,false"], "2 keys with several values"),
        (["profile.ranks=[0,1]", "attention=slow"], "profile.ranks: ab sets it itself"),
        (
            ["wandb.tags=[a,b]", "attention=slow,flash"],
            "wandb.tags: ab sets it itself; leave it out: W&B is off",
        ),
        (["max_iters=5", "attention=slow,flash"], "max_iters: ab sets it itself; use --steps"),
        (["attention=slow,flahs"], "attention=flahs: no such choice; did you mean flash"),
        (["atention=slow,flash"], "atention: no such key; did you mean attention"),
        (["n_head=3,4"], "n_embd=128: not divisible by n_head=3"),
        (["attention=slow,flash", "--repeats", "1"], "--repeats: 1: must be at least 2"),
        (["attention=slow,flash", "--steps", "25"], "--steps 25: must be a multiple of 10"),
        (["attention=slow,flash", "--steps", "10"], "--steps: 10: must be at least 20"),
        (["attention=slow,flash", "--stesp", "20"], "arguments: --stesp; did you mean --steps"),
        (
            ["attention=slow,flash", "--json", "nowhere/x.json"],
            "nowhere/x.json: the folder nowhere does not exist",
        ),
        (["nowhere.yaml", "attention=slow,flash"], "nowhere.yaml.*no such file|one config file"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        ab.main([CPU, *words], FAKE)
    assert not list(tmp_path.iterdir())


def test_the_config_of_a_run_that_was_captured_and_resumed_is_a_file_like_any(tmp_path):
    """The file is given as `compare` proposes it: what is timed is neither captured nor resumed."""
    (job,) = compose_jobs(PROJECT / "configs/shakespeare_char_cpu.yaml", ["profile=torch"], False)
    file = tmp_path / "config.yaml"
    file.write_text(OmegaConf.to_yaml(OmegaConf.structured(job)))
    text = file.read_text()
    assert "kind: torch" in text and "init_from: scratch" in text
    assert plan_experiment([str(file), "attention=slow,flash"], 20).words == [str(file)]
    file.write_text(text.replace("init_from: scratch", "init_from: resume"))
    planned = plan_experiment([str(file), "attention=slow,flash"], 20)
    assert planned.words == [str(file), "init_from=scratch"]
    timed = compose_one(timed_words(planned, 1, tmp_path / "out"))
    assert (timed.init_from, timed.profile.kind) == ("scratch", "none")
    assert (timed.attention, timed.out_dir) == ("flash", str(tmp_path / "out"))


@pytest.mark.slow
def test_the_factor_is_what_hydra_reads_as_several_values():
    assert plan_experiment(["compile=false,true"], 20).factor.values == ["false", "true"]
    labels = plan_experiment(["learning_rate=choice(1e-3,2e-3)"], 20).factor.labels
    assert labels == ["learning_rate=0.001", "learning_rate=0.002"]


def test_order_repeats_forth_and_back():
    assert order(values=3, repeats=3) == [0, 1, 2, 2, 1, 0, 0, 1, 2]


def test_a_folder_of_any_name_reaches_the_trainer():
    assert quote_path(Path("out-ab/a b")) == "'out-ab/a b'"


def test_noise_between_processes_is_no_answer_however_steady_their_steps():
    random = np.random.default_rng(2)
    levels = 10 * np.exp(random.normal(0, 0.02, 10))
    found = analyse(experiment({"slow": list(levels[:5]), "flash": list(levels[5:])}))
    (comparison,) = found.comparisons
    assert comparison.verdict == "cannot_tell" and comparison.processes_to_tell > 5
    assert 0.3 < comparison.noise_percent < 3
    assert found.values[0].spread_within_percent == pytest.approx(1.0, abs=0.1)


def test_what_cannot_be_told_says_how_many_repeats_would_tell():
    asked = experiment({"slow": [10.0, 10.3, 9.8], "flash": [10.1, 10.5, 9.9]})
    configs = {label: {"attention": label} for label in asked.factor.labels}
    asked = with_fields(asked, configs=configs, in_force=configs)
    found = conclude(asked, [None])
    (pair,), (comparison,) = found.result.comparisons, found.comparisons
    assert pair.verdict == comparison.verdict == "cannot_tell" and pair.processes_to_tell > 3
    assert f"--repeats {pair.processes_to_tell}" in comparison.sentence
    assert found.result.equal_within_percent == comparison.equal_within_percent == 2.0
    (wide,) = conclude(asked, [None], equal_within_percent=20).comparisons
    assert wide.verdict == "equal" and "equal within 20 %" in wide.sentence


def test_headline_table_and_ratio_are_of_one_mean():
    asked = experiment({"slow": [10.0, 11.0, 15.0], "flash": [9.0, 12.0, 16.0]})
    configs = {label: {"attention": label} for label in asked.factor.labels}
    found = conclude(with_fields(asked, configs=configs, in_force=configs), [None])
    (comparison,), values = found.comparisons, found.result.values
    step = comparison.step_ms
    assert step.candidate / step.baseline == pytest.approx(step.ratio, rel=1e-12)
    assert [row.middle for row in values] == [step.baseline, step.candidate]
    shown = tables.values("attention", found.result)
    cells = [column.value_of(row) for row in values for column in shown.columns]
    assert step.baseline in cells and step.candidate in cells


def test_a_record_of_before_there_were_four_answers_goes_on(tmp_path):
    asked = experiment({"slow": [10.0, 10.3], "flash": [10.1, 10.5]})
    old = to_builtins(with_fields(asked, result=analyse(asked)))
    (pair,) = old["result"]["comparisons"]
    pair["verdict"] = "no_difference"
    del pair["processes_to_tell"], old["result"]["equal_within_percent"]
    for row in old["result"]["values"]:
        del row["geometric_mean"]
    (tmp_path / "results.json").write_text(json.dumps(old))
    assert open_experiment(tmp_path, asked) == asked


def test_a_process_that_did_not_run_alone_is_named():
    found = analyse(experiment({"slow": [1.0, 1.01, 3.0], "flash": [1.0, 1.0, 1.01]}))
    (warning,) = found.warnings
    assert warning.startswith("a process of slow took 3.000 ms per step, the middle one 1.010")
    found = analyse(experiment({"slow": [1.0, 1.0, 1.0, 2.0, 3.0], "flash": [1.0, 1.0]}))
    assert found.warnings[0].startswith("2 of 5 processes of slow took 2.000, 3.000 ms per step")


def test_a_value_with_one_process_has_no_interval():
    with pytest.raises(ValueError, match="flash: 1 finished processes"):
        analyse(experiment({"slow": [1.0, 1.1], "flash": [1.0]}))


TINY = ["n_layer=1", "n_embd=16", "n_head=1", "block_size=8", "batch_size=2"]


@pytest.mark.slow
def test_a_process_of_the_real_trainer_is_timed(tmp_path, forked):
    """Rows of the process lie where the plan expects them, none of the warm-up among them."""
    asked = plan_experiment([CPU, "attention=slow,flash", *TINY], steps=40)
    process, run = time_process(asked, ab.TRAINER, tmp_path, number=0, value=1)
    assert process.label == "flash" and process.tokens_per_iteration == 16
    assert process.iterations == [60, 70, 80, 90]
    assert all(0 < ms < 1000 for ms in [*process.step_ms, *process.mean_ms])
    assert run.config["attention"] == "flash" and run.in_force["device"] == "cpu"
    assert "torch" in run.environment["packages"]
    assert not list(tmp_path.rglob("ckpt.pt"))
    assert "val loss" in (tmp_path / "runs" / "01-flash.log").read_text()


@pytest.mark.slow
def test_captures_of_the_real_trainer_explain(fake, forked):
    """Timed by the fake, captured for real: the same folder goes on."""
    words = ["attention=slow,flash", *TINY, "--repeats", "2", "--out", "exp"]
    fake(*words)
    assert ab.main([CPU, *words, "--steps", "40"]) == 0
    (comparison,) = results("exp")["comparisons"]
    assert comparison["verdict"] == "faster" and comparison["differs"] == ["attention"]
    assert {row["name"] for row in comparison["ranges"]} >= {"data", "forward", "backward"}
    assert "host_forward" in {row["bucket"] for row in comparison["buckets"]}
    captured, step = comparison["captured_step_ms"], comparison["step_ms"]
    # a slow first step, in which the profiler's start may lie, is left out
    assert len(captured["baseline_values"]) in (19, 20) and len(step["baseline_values"]) == 2
    whole = sum(row["delta_ms"] for row in comparison["buckets"])
    means = captured["candidate_mean"] - captured["baseline_mean"]
    assert whole == pytest.approx(means, abs=1e-9)
    assert "forward" in Path("exp/report.html").read_text()
    assert not list(Path("exp").rglob("ckpt.pt"))
    experiment = plan_experiment([CPU, "attention=slow,flash", *TINY], 40)
    assert missing_captures(experiment, Path("exp")) == []
    assert missing_captures(experiment, Path("elsewhere")) == [0, 1]
