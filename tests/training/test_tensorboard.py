"""TensorBoard files beside metrics.jsonl, read back with TensorBoard's own reader."""

import json
import logging
import sys
import time
from pathlib import Path

import pytest

from training.metrics.tensorboard import TensorBoard, check_tensorboard


def read_back(folder: Path) -> dict[str, dict[int, float]]:
    """{name: {step: value}} of all event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        name: {event.step: event.value for event in events.Scalars(name)}
        for name in events.Tags()["scalars"]
    }


def test_a_run_has_the_same_names_and_numbers(run, rows):
    """TensorBoard's are those of the run's rows, and of its summary at the last iteration."""
    out_dir = run(max_iters=6, eval_interval=3, eval_iters=1, tensorboard=True)
    written = read_back(out_dir / "tensorboard")
    expected: dict[str, dict[int, float]] = {}
    for iteration, row in rows(out_dir).items():
        for name, value in row.items():
            if isinstance(value, float) or (isinstance(value, int) and name != "iter"):
                expected.setdefault(name, {})[iteration] = pytest.approx(value, rel=1e-6)
    for name, value in json.loads((out_dir / "summary.json").read_text()).items():
        if isinstance(value, (int, float)):
            expected[f"summary/{name}"] = {6: pytest.approx(value, rel=1e-6)}
    assert written == expected
    assert {"summary/best_val_loss", "summary/wall_s"} <= set(written)
    assert {"train/loss", "val/loss", "lr", "time/step_ms", "perf/tokens_per_s"} <= set(written)


def test_the_configuration_is_a_text_and_the_keys_are_hparams(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    out_dir = run(max_iters=2, eval_iters=1, tensorboard=True, learning_rate=0.002)
    events = EventAccumulator(str(out_dir / "tensorboard"))
    events.Reload()
    assert [path.name for path in (out_dir / "tensorboard").iterdir() if path.is_dir()] == []
    texts = {
        name: events.Tensors(f"{name}/text_summary")[0].tensor_proto.string_val[0].decode()
        for name in ("config", "run", "environment")
    }
    assert '"learning_rate": 0.002' in texts["config"] and '"git"' in texts["environment"]
    plugin = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    begin = plugin_data_pb2.HParamsPluginData.FromString(plugin).session_start_info
    assert begin.hparams["learning_rate"].number_value == 0.002
    assert begin.hparams["profile.kind"].string_value == "none"
    plugin = events.SummaryMetadata("_hparams_/experiment").plugin_data.content
    experiment = plugin_data_pb2.HParamsPluginData.FromString(plugin).experiment
    compared = {metric.name.tag for metric in experiment.metric_infos}
    assert compared == {"summary/best_val_loss", "summary/perf/tokens_per_s"}
    assert compared <= set(events.Tags()["scalars"])
    assert events.SummaryMetadata("_hparams_/session_end_info")


def test_off_by_default(run):
    assert not (run(max_iters=2, eval_iters=1) / "tensorboard").exists()


@pytest.mark.slow
def test_a_resumed_run_goes_on(tmp_path):
    for first in (0, 2):
        board = TensorBoard(tmp_path)
        board.log({"iter": first, "train/loss": 1.0, "none": None, "word": "x"})
        board.finish()
        time.sleep(1.1)  # the files are named by the second, and read in that order
    assert read_back(tmp_path) == {"train/loss": {0: 1.0, 2: 1.0}}


def test_a_full_disk_ends_it_alone(tmp_path, monkeypatch, caplog):
    from tensorboard.summary.writer.record_writer import RecordWriter

    board = TensorBoard(tmp_path)

    def refuse(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RecordWriter, "write", refuse)
    monkeypatch.setattr("threading.excepthook", lambda arguments: None)
    for i in range(50):
        board.log({"iter": i, "train/loss": 1.0})
        time.sleep(0.002)
    board.finish()
    (warning,) = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert "TensorBoard failed" in warning and "No space left on device" in warning


def test_a_folder_that_cannot_be_made_ends_it_alone(tmp_path, caplog):
    (tmp_path / "file").touch()
    board = TensorBoard(tmp_path / "file" / "tensorboard")
    board.log({"iter": 0, "train/loss": 1.0})
    board.finish()
    assert len(caplog.records) == 1 and "TensorBoard failed" in caplog.text


def test_a_missing_package_is_named(monkeypatch, config):
    for name in [
        n for n in sys.modules if n.startswith(("tensorboard", "torch.utils.tensorboard"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ValueError, match="^tensorboard=true: .*`pip install tensorboard`") as error:
        check_tensorboard()
    assert "\n" not in str(error.value)
    import torch

    from training.checks import resolve_and_check

    cpu = torch.device("cpu")
    resolve_and_check(config(), cpu, 1)  # nobody asked
    with pytest.raises(ValueError, match="^tensorboard=true"):
        resolve_and_check(config(tensorboard=True), cpu, 1)
