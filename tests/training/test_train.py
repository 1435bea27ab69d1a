"""train.py as a whole: files that a run writes, and how it ends."""

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml

from configs.compose import compose_jobs
from configs.profiling import ProfileConfig
from configs.schema import Config
from configs.training import WandbConfig
from data.dataset import STAND_IN
from data.prepare import prepare
from data.source_text import URL_VARIABLE
from tests.helpers.spoilt_gradient import spoil_gradient
from tests.paths import PROJECT
from training.machine.device import check_attention, reasons, resolve
from training.machine.memory_fit import explain_out_of_memory
from training.metrics.tracker import Tracker, open_tracker

CPU = torch.device("cpu")


def lines(out_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (out_dir / "metrics.jsonl").read_text().splitlines()]


def test_a_run_s_folder(run, config, capsys):
    out_dir = run()
    assert "profiling report" not in capsys.readouterr().out, "there is not a capture"
    assert {path.name for path in out_dir.iterdir()} == {
        "ckpt.pt",
        "config.yaml",
        "environment.json",
        "metrics.jsonl",
        "step_times.json",
        "summary.json",
    }
    environment = json.loads((out_dir / "environment.json").read_text())
    assert environment["packages"]["torch"] == torch.__version__
    assert environment["python"].count(".") == 2 and environment["cpu_cores"] >= 1
    assert environment["usable_cores"] == len(os.sched_getaffinity(0))
    assert environment["compute_threads"] == torch.get_num_threads()
    assert {"command", "platform", "git", "cuda", "gpus"} <= set(environment)
    summary = json.loads((out_dir / "summary.json").read_text())
    assert summary["iterations"] == 8 and summary["time/step_ms"] > 0
    assert summary["best_val_loss"] == min(row.get("val/loss", 9) for row in lines(out_dir))


def test_metrics_have_the_documented_fields(run, text_file):
    first, *rows = lines(run(log_interval=2))
    assert first["iter"] == 0 and first["run"]["attention"] == "flash"
    training = [row for row in rows if "train/loss" in row]
    evaluations = [row for row in rows if "val/loss" in row]
    assert len(training) + len(evaluations) == len(rows)
    assert [row["iter"] for row in training] == [0, 2, 4, 6]
    assert [row["iter"] for row in evaluations] == [0, 4, 8]
    for row in training:
        assert row["time/step_ms"] > 0 and row["perf/tokens_per_s"] > 0
        assert row["perf/mfu"] is None and row["memory/peak_bytes"] is None  # unknown on a CPU
        assert {"iter", "train/loss", "lr", "time/elapsed_s"} < set(row)
    documented = {"iter", "val/loss", "eval/train_loss", "time/elapsed_s"}
    assert all(documented < set(row) for row in evaluations)
    assert {row["data"] for row in rows} == {first["run"]["data"]} == {text_file.name}


@pytest.mark.slow
def test_time_counts_from_the_beginning_and_goes_on_after_a_resume(run):
    def seconds(out_dir):
        return [row["time/elapsed_s"] for row in lines(out_dir) if "run" not in row]

    out_dir = run(max_iters=4)
    before = seconds(out_dir)
    summary = json.loads((out_dir / "summary.json").read_text())
    assert len(before) == 6 and before == sorted(before) and before[0] > 0.01
    assert before[-1] < summary["wall_s"] < before[-1] + 2
    after = seconds(run(init_from="resume", max_iters=8))[6:]
    assert len(after) == 6 and after == sorted(after) and after[0] > before[-1]
    again = seconds(run(max_iters=4))
    assert again[0] < after[-1], "a run from scratch counts from zero"


@pytest.mark.parametrize("attention, told", [("auto", "flash"), ("math", "math")])
def test_wandb_is_told_the_backend_that_auto_came_to(run, monkeypatch, attention, told):
    seen = {}

    def opened(out_dir, facts, *rest):
        seen["facts"] = facts
        return open_tracker(out_dir, facts, *rest)

    monkeypatch.setattr("training.metrics.record.open_tracker", opened)
    out_dir = run(attention=attention, max_iters=1)
    assert seen["facts"].config["attention"] == told and f"-{told}-eager" in seen["facts"].name
    assert yaml.safe_load((out_dir / "config.yaml").read_text())["attention"] == attention


def test_the_loss_is_that_of_a_uniform_guess_at_first_and_falls(run, rows):
    by_iteration = rows(run(max_iters=40, eval_interval=40))
    vocab_size = 64
    assert by_iteration[0]["val/loss"] == pytest.approx(math.log(vocab_size), abs=0.1)
    assert by_iteration[40]["val/loss"] < by_iteration[0]["val/loss"] - 0.7


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_and_another_seed_another(run, losses, tmp_path):
    keys = dict(dropout=0.1)
    a, b, c = (
        losses(run(out_dir=str(tmp_path / name), seed=seed, **keys))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert a == b != c


@pytest.mark.slow
def test_config_yaml_gives_the_run_again(run, config, losses, tmp_path):
    out_dir = run(dropout=0.1, wandb=WandbConfig(mode="disabled", tags=["a", "b c"]))
    written = yaml.safe_load((out_dir / "config.yaml").read_text())
    in_force = written.pop("in_force")
    (again,) = compose_jobs(out_dir / "config.yaml", [], multirun=False)
    assert asdict(again) == written
    assert in_force["parameters"] > 0 and in_force["attention"] == "math"
    assert in_force["token_storage"] == "device"
    # left at auto
    settled = {"parallel", "kernels", "cuda_graphs", "compile_scope"}
    assert set(in_force["reasons"]) == settled | {"all_reduce", "shard_update"}
    assert "auto" not in {getattr(again, key) for key in (*settled, "device", "dtype")}
    elsewhere = f"out_dir={tmp_path}/again"
    (longer,) = compose_jobs(out_dir / "config.yaml", [elsewhere, "max_iters=9"], multirun=False)
    assert asdict(longer) == {**written, "out_dir": f"{tmp_path}/again", "max_iters": 9}
    import train  # whose prepare() is the tests' own, set by `run`

    train.train(longer)
    before, after = losses(out_dir), losses(tmp_path / "again")
    assert {i: after[i][0] for i in range(8)} == {i: before[i][0] for i in range(8)}


@pytest.mark.parametrize("saved", [True, False])
def test_a_run_that_saved_nothing_says_so(run, capsys, saved):
    """No validation loss is better than the first at learning rate 0."""
    out_dir = run(learning_rate=0.0, min_lr=0.0, always_save_checkpoint=saved)
    assert (out_dir / "ckpt.pt").exists() == saved
    said = "".join(capsys.readouterr())
    assert ("no checkpoint: the validation loss was never better" in said) != saved
    assert ("next: python sample.py" in said) == saved


@pytest.mark.slow
def test_the_command_line_trains_from_a_finished_run_s_file(run, start, tmp_path, project_data):
    out_dir = run()
    words = ["max_iters=3", f"out_dir={tmp_path}/again"]
    process = start([str(PROJECT / "train.py"), str(out_dir / "config.yaml"), *words])
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 0, output
    assert f"\nnext: python sample.py out_dir={tmp_path}/again" in output
    assert lines(tmp_path / "again")[-1]["iter"] == 3


@pytest.mark.slow
def test_a_finished_run_is_moved_aside(run):
    out_dir = run(seed=1)
    files = {path.name: path.read_bytes() for path in out_dir.iterdir()}
    (out_dir / "notes.txt").write_text("the user's own")
    run(seed=2)
    run(seed=3)
    first, second = out_dir / "previous-1", out_dir / "previous-2"
    assert {path.name: path.read_bytes() for path in first.iterdir()} == files
    assert "seed: 2" in (second / "config.yaml").read_text()
    assert "seed: 3" in (out_dir / "config.yaml").read_text()
    assert (out_dir / "notes.txt").exists()


def test_a_refused_run_moves_nothing(run):
    out_dir = run()
    before = {path.name: path.read_bytes() for path in out_dir.iterdir()}
    with pytest.raises(ValueError, match="attention=cudnn"):
        run(attention="cudnn")
    assert {path.name: path.read_bytes() for path in out_dir.iterdir()} == before


def test_an_unwritable_folder_is_refused_by_name(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^out_dir=.*/file/out: cannot write to this folder"):
        run(out_dir=str(tmp_path / "file" / "out"))


def test_nan_stops_the_run_and_the_good_checkpoint_stays(run, monkeypatch):
    out_dir = run(max_iters=4, always_save_checkpoint=True)
    good = torch.load(out_dir / "ckpt.pt", weights_only=True)
    keys = dict(learning_rate=1e30, max_iters=50, always_save_checkpoint=True)
    alerts = []
    monkeypatch.setattr(Tracker, "alert", lambda self, alert: alerts.append(alert))
    with pytest.raises(SystemExit) as end:
        run(init_from="resume", **keys)
    (alert,) = alerts
    assert alert.level == "ERROR" and alert.text.startswith("training loss is nan at iteration ")
    assert "ckpt.pt" not in alert.text, "no folder leaves the machine"
    message = end.value.code  # a text: Python prints it and exits with 1
    assert isinstance(message, str) and "\n" not in message
    for part in ("loss is nan", "last good checkpoint", "lower learning_rate", "ckpt.pt"):
        assert part in message
    kept = torch.load(out_dir / "ckpt.pt", weights_only=True)
    assert kept["iter_num"] == 4
    torch.testing.assert_close(kept["model"], good["model"], rtol=0, atol=0)
    assert lines(out_dir)[-1]["train/loss"] is None  # JSON has no NaN
    run(init_from="resume", max_iters=6)


@pytest.mark.parametrize("log_interval", [1, 1000])
def test_nan_before_any_checkpoint_is_found_at_a_log_or_an_evaluation(run, log_interval):
    with pytest.raises(SystemExit, match="loss is nan at iteration .*nothing has been saved yet"):
        run(learning_rate=1e30, log_interval=log_interval, always_save_checkpoint=True)


@pytest.mark.slow
@pytest.mark.parametrize("log_interval", [1, 7, 1000])
def test_a_gradient_that_is_no_number_costs_no_weight_and_names_its_iteration(
    run, monkeypatch, tmp_path, log_interval
):
    """Found at the next row or evaluation: what is saved and what is in memory is of before."""
    keys = dict(eval_interval=8, always_save_checkpoint=True)
    straight = run(max_iters=10, out_dir=str(tmp_path / "straight"), **keys)
    expected = torch.load(straight / "ckpt.pt", weights_only=True)
    steps = spoil_gradient(monkeypatch, call=11)
    words = r"gradients are not finite since iteration 10; .*ckpt.pt is the last good checkpoint"
    with pytest.raises(SystemExit, match=words):
        run(max_iters=24, log_interval=log_interval, **keys)
    kept = torch.load(tmp_path / "out" / "ckpt.pt", weights_only=True)
    assert kept["iter_num"] == 8
    last = steps[-1]
    torch.testing.assert_close(last.model.state_dict(), expected["model"], rtol=0, atol=0)
    moments = last.optimizer.state_dict()["state"]
    torch.testing.assert_close(moments, expected["optimizer"], rtol=0, atol=0)
    assert len(steps) == {1: 11, 7: 15, 1000: 16}[log_interval]  # until a host looked


@pytest.mark.slow
def test_nan_is_exit_code_1(command, start, tmp_path):
    process = start(command(learning_rate=1e30, max_iters=50))
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 1 and "Traceback" not in output
    assert output.splitlines()[-1].startswith("train.py: training loss is nan at iteration ")
    assert not (tmp_path / "out" / "ckpt.pt").exists()


def test_eval_only_evaluates_once(run, rows):
    out_dir = run(max_iters=4)
    trained = torch.load(out_dir / "ckpt.pt", weights_only=True)
    expected = rows(out_dir)[4]["val/loss"]
    run(init_from="resume", eval_only=True)
    assert lines(out_dir)[-1]["iter"] == 4 and lines(out_dir)[-1]["val/loss"] == expected
    kept = torch.load(out_dir / "ckpt.pt", weights_only=True)
    torch.testing.assert_close(kept["model"], trained["model"], rtol=0, atol=0)


@pytest.mark.slow
def test_the_stand_in_is_named_everywhere(config, monkeypatch, tmp_path, capsys):
    """No network: the invented play takes the text's place, and nobody can overlook it."""
    import train

    monkeypatch.setenv(URL_VARIABLE, "http://127.0.0.1:9/input.txt")
    monkeypatch.setattr(train, "prepare", partial(prepare, data_dir=tmp_path / "data"))
    wandb = WandbConfig(mode="offline")
    made = config(data_source=None, wandb=wandb, eval_iters=1, max_iters=2, eval_interval=2)
    train.train(made)
    out_dir = Path(made.out_dir)
    output = capsys.readouterr().out
    assert "THIS IS NOT SHAKESPEARE" in output and f"{STAND_IN}: 65 tokens" in output
    in_force = yaml.safe_load((out_dir / "config.yaml").read_text())["in_force"]
    assert in_force["data"] == STAND_IN and in_force["is_tiny_shakespeare"] is False
    first, *rows = lines(out_dir)
    assert first["run"]["data"] == STAND_IN and {row["data"] for row in rows} == {STAND_IN}
    (run_dir,) = (out_dir / "wandb").glob("offline-run-*")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", "--summary", run_dir]
    inspected = subprocess.run(command, cwd=run_dir, capture_output=True, text=True, check=True)
    assert json.loads(inspected.stdout)["tags"] == [STAND_IN]
    with pytest.raises(ValueError, match="^offline_fallback=false: "):
        made.offline_fallback = False
        train.prepare.func(made, tmp_path / "other data")


@pytest.mark.parametrize("path", sorted((PROJECT / "configs").glob("*.yaml")), ids=lambda p: p.stem)
@pytest.mark.parametrize("attention", ["slow", "math", "flash", "auto"])
def test_every_experiment_can_be_settled_for_a_cpu(path, attention):
    overrides = ["device=cpu", f"attention={attention}"]
    (config,) = compose_jobs(path, overrides, multirun=False)
    settled = resolve(config, CPU)
    check_attention(settled, CPU, settled.dtype)
    assert (settled.device, settled.dtype, settled.cuda_graphs) == ("cpu", "float32", "false")
    assert settled.compile_scope == "model" and settled.kernels == "compiled"
    assert settled.compile is (config.compile is not False)
    unsettled = {"device", "dtype", "parallel", "cuda_graphs", "compile_scope"}
    unsettled |= {"kernels", "compile", "all_reduce", "shard_update"}
    kept = {key: value for key, value in asdict(settled).items() if key not in unsettled}
    assert kept == {key: value for key, value in asdict(config).items() if key not in unsettled}
    assert resolve(settled, CPU) == settled


@pytest.mark.parametrize(
    "capability, expected",
    [((9, 0), ("bfloat16", "true", "block")), ((7, 5), ("float16", "false", "model"))],
)
def test_auto_on_a_gpu_and_its_reasons(config, monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    device = torch.device("cuda", 0)
    asked = config(device="auto", dtype="auto", compile=True)
    settled = resolve(asked, device)
    assert (settled.dtype, settled.cuda_graphs, settled.compile_scope) == expected
    assert settled.device == "cuda", "without a number: a resume may have several ranks"
    assert resolve(config(device="cuda:0"), device).device == "cuda:0"
    told = reasons(asked, device)
    scopes = {"parallel", "cuda_graphs", "compile_scope", "all_reduce", "shard_update"}
    assert set(told) == {"device", "dtype", "kernels", *scopes}
    assert all(told.values())
    assert reasons(settled, device) == {}


@pytest.mark.parametrize(
    "keys, message",
    [
        (dict(dtype="float16"), "dtype=float16: needs a CUDA GPU"),
        (dict(device="auto", cuda_graphs="true"), "cuda_graphs=true: not with device=cpu"),
    ],
)
def test_what_a_cpu_cannot_do_is_refused_by_name(config, keys, message):
    with pytest.raises(ValueError, match=message):
        resolve(config(**keys), CPU)


@pytest.mark.slow
def test_a_start_does_without_the_compiler_and_what_other_runs_need(start):
    """Dynamo takes as long to import as all of PyTorch; a mistyped key need not wait for it."""
    other = {"torch._dynamo", "nvtx", "tokenizers", "data.prepare_files", "wandb"}
    code = "import sys, train; from profiling.recording.dynamo import compile_counts as counts"
    code += f"; print(counts()); found = {other} & {{*sys.modules}}; assert not found, found"
    process = start(["-c", code], anew=True)
    output = process.communicate(timeout=100)[0]
    assert process.returncode == 0 and output == "CompileCounts(graphs=0, graph_breaks=0)\n", output


def test_a_job_of_a_sweep_counts_its_own_compilation_alone(run):
    from torch._dynamo.utils import counters

    counters["stats"]["unique_graphs"] = 7  # what an earlier job of this process left behind
    counters["inductor"]["fuse_attention"] = 1
    out_dir = run(attention="slow", max_iters=1)
    assert json.loads((out_dir / "summary.json").read_text())["compile/graphs"] == 0


def test_out_of_memory_is_one_line_that_names_the_key():
    config = Config(batch_size=4096)
    with (
        pytest.raises(ValueError, match=r"^batch_size=4096: .*Tried to allocate 48.00 GiB\.\)"),
        explain_out_of_memory(config),
    ):
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 48.00 GiB. GPU 0 has a total capacity of ..."
        )


@pytest.mark.slow
def test_the_time_of_every_iteration_is_written(run, rows):
    profile = ProfileConfig(kind="torch", start="10", steps=5)
    keys = dict(max_iters=20, eval_interval=20, eval_iters=1, log_interval=5, profile=profile)
    out_dir = run(**keys)
    times = json.loads((out_dir / "step_times.json").read_text())
    assert times["first_iteration"] == 0
    assert len(times["ms"]) == 16  # the last logged iteration is 15
    free = [number for number, ms in enumerate(times["ms"]) if ms is not None]
    assert free == list(range(6))  # the tracer is on from 7 on, and rows 10 and 15 have it in them
    assert times["ms"][0] == rows(out_dir)[0]["time/step_ms"]
