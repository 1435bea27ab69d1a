"""Trackio and MLflow: the real packages where they are installed, and a tracker that hangs."""

import json
import logging
import signal
import threading
from types import SimpleNamespace

import pytest
import torch

from configs.training import WandbConfig
from training.checks import resolve_and_check
from training.metrics import threaded_sink
from training.metrics.threaded_sink import ThreadedSink

TRAINED = dict(max_iters=6, eval_interval=3, eval_iters=1, learning_rate=0.002)


def expected_numbers(rows: dict[int, dict]) -> dict[str, dict[int, float]]:
    """Numbers of metrics.jsonl by name and iteration."""
    numbers: dict[str, dict[int, float]] = {}
    for iteration, row in rows.items():
        for name, value in row.items():
            if isinstance(value, (int, float)) and name != "iter":
                numbers.setdefault(name, {})[iteration] = pytest.approx(value, rel=1e-6)
    return numbers


def test_mlflow_has_the_rows_the_results_and_the_keys(run, rows, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    out_dir = run(**TRAINED, mlflow=True, wandb=WandbConfig(mode="disabled", project="mine"))
    client = mlflow.MlflowClient()
    (made,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    logged = {
        name: {
            point.step: point.value for point in client.get_metric_history(made.info.run_id, name)
        }
        for name in made.data.metrics
    }
    expected = expected_numbers(rows(out_dir))
    assert {name: logged[name] for name in expected} == expected
    summary = json.loads((out_dir / "summary.json").read_text())
    best = logged["summary/best_val_loss"]
    assert best == {6: pytest.approx(summary["best_val_loss"])}
    assert made.data.tags["summary/verdict"] == summary["verdict"]
    assert made.data.params["learning_rate"] == "0.002" and made.info.status == "FINISHED"
    assert made.data.params["profile.kind"] == "none" and "wandb.mode" not in made.data.params
    with pytest.raises(SystemExit):
        run(**TRAINED | {"learning_rate": 1e30}, mlflow=True, keep_previous="0")
    ended = client.search_runs([client.get_experiment_by_name("profiling-nanogpt").experiment_id])
    assert [made.info.status for made in ended] == ["FAILED"]


def test_trackio_has_the_rows_the_results_and_the_keys(run, rows, tmp_path, monkeypatch):
    pytest.importorskip("trackio", reason="needs trackio")
    from trackio.sqlite_storage import SQLiteStorage

    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path)
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path)
    out_dir = run(**TRAINED, trackio=True, wandb=WandbConfig(mode="disabled", project="mine"))
    (name,) = SQLiteStorage.get_runs("mine")
    logged: dict[str, dict[int, float]] = {}
    for point in SQLiteStorage.get_logs("mine", name):
        for key, value in point.items():
            logged.setdefault(key, {})[point["step"]] = value
    expected = expected_numbers(rows(out_dir))
    assert {name: logged[name] for name in expected} == expected
    summary = json.loads((out_dir / "summary.json").read_text())
    assert logged["summary/best_val_loss"] == {6: pytest.approx(summary["best_val_loss"])}
    keys = SQLiteStorage.get_run_config("mine", name)
    assert keys["learning_rate"] == 0.002 and keys["profile.kind"] == "none"


@pytest.mark.parametrize("name", ["trackio", "mlflow"])
def test_a_missing_package_is_named(config, monkeypatch, name):
    monkeypatch.setattr(threaded_sink, "find_spec", lambda key: None)
    with pytest.raises(ValueError, match=f"^{name}=true: .*`pip install {name}`") as error:
        resolve_and_check(config(**{name: True}), torch.device("cpu"), 1)
    assert "\n" not in str(error.value)


def test_a_tracker_that_fails_or_hangs_ends_alone(monkeypatch, caplog):
    monkeypatch.setattr(threaded_sink, "SILENT_S", 0.1)
    monkeypatch.setattr(threaded_sink, "FINISH_TIMEOUT_S", 0.2)
    never = threading.Event()

    def hang(exit_code):
        never.wait()

    def refuse(values, iteration):
        raise OSError("no server\nat all")

    for run in (SimpleNamespace(log=refuse), SimpleNamespace(log=print, finish=hang)):
        sink = ThreadedSink("Tracker", lambda run=run: run)
        sink.wait_until_started()
        sink.log({"iter": 0, "train/loss": 1.0})
        sink.finish()
    failed, hung = (record.getMessage() for record in caplog.records)
    assert failed == "Tracker failed (OSError: no server at all); metrics.jsonl is still written"
    assert "Tracker failed (no answer in 0 s)" in hung
    never.set()


def test_ctrl_c_skips_the_wait_for_a_tracker(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(threaded_sink, "SILENT_S", 0.1)
    never = threading.Event()
    sink = ThreadedSink("Tracker", lambda: SimpleNamespace(finish=lambda exit_code: never.wait()))
    # as in training, where a signal ends nothing
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    waiting = threading.main_thread().ident
    impatient = threading.Timer(0.5, signal.pthread_kill, [waiting, signal.SIGINT])
    try:
        impatient.start()
        with pytest.raises(KeyboardInterrupt):
            sink.finish()
    finally:
        signal.signal(signal.SIGINT, before)
        never.set()
    assert caplog.messages == ["waiting for Tracker, at most 30 s; Ctrl-C skips"]
