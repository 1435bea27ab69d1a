"""Sampler of GPU metrics, against a management library of our own, tests/fakes/fake_nvml.c."""

import ctypes
import json
import logging
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
import torch

from benchmarks import sampler_overhead
from configs.profiling import GpuMetricsConfig
from configs.training import WandbConfig
from profiling.recording import sampler as sampler_module
from profiling.recording.sampler import GpuSampler, NoSampler
from profiling.shared import metric_names
from training.gpu_metrics import open_gpus, sampler_for
from training.ranks.distributed import Ranks

UUIDS = [f"00000000-0000-0000-0000-00000000000{last}" for last in "ab"]
CUDA = torch.device("cuda", 0)
# the names that report-schema.md promises
PROMISED = {
    "gpu/util_percent": 90,
    "gpu/power_w": 500,
    "gpu/memory_bytes": 30e9,
    "gpu/temperature_c": 55,
    "gpu/sm_clock_mhz": 1980,
    "gpu/sm_active_percent": 2,
    "gpu/tensor_active_percent": 5,
    "gpu/dram_active_percent": 10,
}
MORE = {
    "gpu/memory_clock_mhz": 3201,
    "gpu/sm_occupancy_percent": 3,
    "gpu/pcie_tx_bytes_per_s": 20 * 2**20,
    "gpu/pcie_rx_bytes_per_s": 21 * 2**20,
    "gpu/throttle_power_percent": 100,
    "gpu/throttle_thermal_percent": 0,
    "gpu/throttle_slowdown_percent": 0,
}

HOST = {"cpu/process_percent", "cpu/threads", "cpu/memory_bytes"}  # in every row


@pytest.fixture
def nvml(fake_libraries, monkeypatch, caplog):
    """The fake in place of the driver's library; what it was not given back fails the test."""
    library = ctypes.CDLL(str(fake_libraries["fake_nvml"]))
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    caplog.set_level(logging.INFO)
    yield library
    for name in ("fake_nvml_open", "fake_nvml_samples"):
        assert ctypes.c_int.in_dll(library, name).value == 0, name


@pytest.fixture
def properties(monkeypatch):
    """PyTorch sees the fake's GPUs in the other order."""

    def of(device):
        return SimpleNamespace(uuid=UUIDS[::-1][torch.device(device).index])

    monkeypatch.setattr(torch.cuda, "get_device_properties", of)


def sampled(*uuids, seconds=0.15, interval_ms=10, **keys) -> GpuSampler:
    with GpuSampler(open_gpus(uuids), interval_ms, **keys) as sampler:
        time.sleep(seconds)
    return sampler


def test_means_of_an_interval(nvml):
    with GpuSampler(open_gpus(UUIDS), 10) as sampler:
        time.sleep(0.1)
        sampler.read(None)
        start = time.monotonic()
        time.sleep(0.2)
        row = sampler.read(1000.0)
        seconds = time.monotonic() - start
    own = {key: value for key, value in row.items() if key.startswith("gpu/")}
    energy_j = own.pop("gpu/energy_j")
    assert own == pytest.approx(PROMISED | MORE)
    assert {metric.name for metric in metric_names.GPU} <= set(row)  # what dashboards show
    assert energy_j == pytest.approx(500 * seconds, rel=0.5)  # to the nearest samples
    assert row["gpu1/util_percent"] == 89 and row["gpu1/power_w"] == 250
    assert row["gpu1/throttle_power_percent"] == 0
    assert "gpu1/sm_active_percent" not in row  # it has no GPM
    assert row["perf/energy_per_token_j"] == pytest.approx(0.75, rel=0.01)  # both: 750 W


def test_energy_of_the_rows_adds_up_to_the_run(nvml):
    rows = []
    with GpuSampler(open_gpus(UUIDS[:1]), 10) as sampler:
        for _ in range(5):
            time.sleep(0.15)  # long beside the time that a reading takes
            rows.append(sampler.read(10.0))
        started_s = sampler.meters[0].first.at_s
    rows.append(sampler.read(10.0))
    summary = sampler.summary(10.0)
    assert sum(row["gpu/energy_j"] or 0 for row in rows) == pytest.approx(summary["perf/energy_j"])
    seconds = sampler.meters[0].now.at_s - started_s
    assert summary["perf/energy_j"] == pytest.approx(500 * seconds, rel=0.01)
    assert summary["perf/energy_per_token_j"] == pytest.approx(50, rel=0.01)
    assert summary["gpu/power_w"] == 500


def test_an_interval_without_a_sample_is_null(nvml):
    with GpuSampler(open_gpus(UUIDS[:1]), 60_000) as sampler:
        while not sampler.meters:  # the thread's first sample, of which it has no other
            time.sleep(0.01)
        sampler.sample()
        sampler.sample()  # the first that tells of nothing but training
        assert sampler.read(10.0)["gpu/power_w"] == 500
        row = sampler.read(10.0)
    assert set(PROMISED) - set(row) == set()
    assert {row[name] for name in row if not name.startswith("cpu/")} == {None}


def test_what_is_no_training_counts_for_the_energy_alone(nvml):
    with GpuSampler(open_gpus(UUIDS[:1]), 10) as sampler:
        with sampler.pause("evaluate"):
            time.sleep(0.1)
        paused = sampler.read(10.0)
        start = time.monotonic()
        time.sleep(0.1)
        trained = sampler.read(10.0)
        trained_s = time.monotonic() - start
    assert paused["gpu/energy_j"] > 20 and paused["perf/energy_per_token_j"] is None
    assert paused["gpu/power_w"] is None
    assert trained["gpu/power_w"] == 500
    counted = sampler.meters[0].now
    assert 0.5 * trained_s < counted.trained_s < trained_s + 0.02
    assert counted.at_s - sampler.meters[0].first.at_s > counted.trained_s + 0.08


@pytest.mark.parametrize(
    "function, error, names",
    [
        ("nvmlDeviceGetPowerUsage", 4, {"gpu/power_w"}),
        ("nvmlDeviceGetMemoryInfo", 3, {"gpu/memory_bytes"}),
        ("nvmlGpmSampleGet", 4, {name for name in PROMISED if "active" in name}),
        ("nvmlDeviceGetTotalEnergyConsumption", 3, {"gpu/energy_j"}),
        ("nvmlDeviceGetTemperature", 999, {"gpu/temperature_c"}),
    ],
)
def test_a_refused_metric_is_lost_alone_and_said_once(
    nvml, monkeypatch, caplog, function, error, names
):
    monkeypatch.setenv("FAKE_NVML_FAIL", function)
    monkeypatch.setenv("FAKE_NVML_ERROR", str(error))
    sampler = sampled(UUIDS[0])
    row = sampler.read(10.0)
    assert {*PROMISED, "gpu/energy_j"} - set(row) == names
    assert all(row[name] is not None for name in set(PROMISED) - names)
    said = [record for record in caplog.records if "does not report" in record.message]
    assert len(said) == 1 and "Fake 0" in said[0].message
    summary = sampler.summary(10.0)
    assert (summary["perf/energy_j"] is None) == ("gpu/energy_j" in names)


@pytest.mark.slow
def test_a_gpu_that_is_lost_midway(nvml, monkeypatch, caplog):
    monkeypatch.setenv("FAKE_NVML_LOST_MS", "300")
    with GpuSampler(open_gpus(UUIDS), 10) as sampler:
        time.sleep(0.1)
        before = sampler.read(10.0)
        time.sleep(0.3)
        sampler.read(10.0)
        time.sleep(0.05)
        after = sampler.read(10.0)
    assert before["gpu1/power_w"] == 250 and before["perf/energy_per_token_j"] == pytest.approx(
        75, rel=0.05
    )
    assert after["gpu/power_w"] == 500
    assert {after[name] for name in after if name.startswith("gpu1/")} == {None}
    assert after["perf/energy_per_token_j"] is None  # no longer known for the whole run
    assert sampler.summary(10.0)["perf/energy_j"] is None
    (warning,) = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert "Fake 1 no longer answers (GPU is lost)" in warning


def test_energy_needs_all_gpus_of_the_run(nvml):
    summary = sampled(UUIDS[0], complete=False).summary(10.0)
    assert summary["gpu/power_w"] == 500
    assert summary["perf/energy_j"] is None and summary["perf/energy_per_token_j"] is None


def test_an_error_of_ours_ends_the_sampling_alone(nvml, monkeypatch, caplog):
    gpus = open_gpus(UUIDS[:1])
    monkeypatch.setattr(gpus[0], "sample", lambda: 1 / 0)
    with GpuSampler(gpus, 10) as sampler:
        time.sleep(0.03)
    assert [r.message for r in caplog.records] == [
        "gpu_metrics: ZeroDivisionError: division by zero; sampling ends here"
    ]
    row = sampler.read(1.0)
    assert row.pop("perf/energy_per_token_j") is None and set(row) == HOST


@pytest.mark.slow
def test_a_driver_that_hangs_does_not_hold_up_the_end(nvml, monkeypatch):
    monkeypatch.setattr(sampler_module, "JOIN_S", 0.1)
    gpus = open_gpus(UUIDS[:1])
    monkeypatch.setattr(gpus[0], "sample", lambda: time.sleep(2.0) or {})
    start = time.monotonic()
    with GpuSampler(gpus, 10) as sampler:
        pass
    assert time.monotonic() - start < 1.8
    sampler.thread.join()
    pynvml.nvmlShutdown()


def test_a_sample_holds_the_interpreter_for_little(nvml):
    (gpu,) = open_gpus(UUIDS[:1])
    times_s = []
    for _ in range(300):
        start = time.perf_counter()
        gpu.sample()
        times_s.append(time.perf_counter() - start)
    gpu.close()
    pynvml.nvmlShutdown()
    assert statistics.median(times_s) < 200e-6  # 0.2 % of the 100 ms between two


@pytest.mark.slow
def test_the_cost_is_measured(nvml, capsys):
    more = "n_layer=1 n_embd=16 block_size=8 batch_size=2 dtype=float32"
    keys = dict(config="shakespeare_char_cpu", more=more, rounds=2, stretch_ms=20, interval_ms=5)
    sampler_overhead.main(sampler_overhead.OverheadConfig(uuid=UUIDS[0], **keys))
    out = capsys.readouterr().out
    sample_us = float(re.search(r"a sample alone: (\d+) us", out)[1])
    ratio = float(re.search(r"on / off: ([\d.]+)", out)[1])
    assert 0 < sample_us < 5000 and 0.1 < ratio < 10
    with pytest.raises(ValueError, match="^uuid: this run is on cpu"):
        sampler_overhead.main(sampler_overhead.OverheadConfig(**keys))


def test_the_gpus_of_a_run(nvml, properties, monkeypatch):
    """PyTorch's numbers are not NVML's."""
    with sampler_for(GpuMetricsConfig(), Ranks(0, 1, CUDA)) as one:
        assert [gpu.name for gpu in one.gpus] == ["Fake 1"] and one.complete
    with sampler_for(GpuMetricsConfig(), Ranks(0, 1, torch.device("cuda", 1))) as one:
        assert [gpu.name for gpu in one.gpus] == ["Fake 0"]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with sampler_for(GpuMetricsConfig(), Ranks(0, 2, CUDA)) as both:
        assert [gpu.name for gpu in both.gpus] == ["Fake 1", "Fake 0"] and both.complete
    with sampler_for(GpuMetricsConfig(), Ranks(0, 4, CUDA)) as of_two_machines:
        assert not of_two_machines.complete
    assert isinstance(sampler_for(GpuMetricsConfig(), Ranks(1, 2, CUDA)), NoSampler)


def test_off_with_a_reason(nvml, properties, monkeypatch, caplog):
    def reason(device, enabled="auto"):
        sampler = sampler_for(GpuMetricsConfig(enabled=enabled), Ranks(0, 1, device))
        with sampler, sampler.pause("evaluate"):
            assert set(sampler.read(1.0)) == set(sampler.summary(1.0)) == HOST
        return sampler.reason

    cpu, mps = torch.device("cpu"), torch.device("mps")
    assert reason(cpu) == "off: this run is on cpu" and not caplog.records
    assert reason(mps) == "off: this run is on mps" and "not recorded" in caplog.text
    assert reason(CUDA, "false") == "off: gpu_metrics.enabled=false"
    with pytest.raises(ValueError, match="^gpu_metrics.enabled=true: this run is on cpu"):
        reason(cpu, "true")
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert reason(CUDA) == "off: this is an AMD GPU"
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setenv("FAKE_NVML_NO_INIT", "1")
    assert "library does not answer" in reason(CUDA)
    with pytest.raises(ValueError, match="^gpu_metrics.enabled=true: .*library does not answer"):
        reason(CUDA, "true")


def test_the_interval_is_checked():
    with pytest.raises(ValueError, match="^gpu_metrics.interval_ms=99: must be from 100"):
        GpuMetricsConfig(interval_ms=99)


@pytest.mark.slow
def test_a_run_with_gpus_and_one_without(nvml, run, rows, monkeypatch):
    """The loop, the rows and the summary; the device is the CPU, the GPUs are the fake's."""
    without = run(max_iters=4, eval_iters=1)
    assert not any("gpu" in key or "energy" in key for row in rows(without).values() for key in row)

    def sampler(config, ranks):
        return GpuSampler(open_gpus(UUIDS), 10)  # the fake's counters are renewed at once

    monkeypatch.setattr("train.sampler_for", sampler)
    keys = dict(max_iters=300, eval_interval=300, eval_iters=1, log_interval=50)
    wandb = WandbConfig(mode="offline", group="a group")
    out_dir = run(wandb=wandb, **keys)
    logged = list(rows(out_dir).values())
    sampled = [row for row in logged if row.get("gpu/power_w") is not None]
    assert len(sampled) >= 3
    for row in sampled:
        assert row["gpu/power_w"] == 500 and row["gpu1/power_w"] == 250
        # samples lag behind rows on a busy machine, by tenths of the time between two rows
        assert row["perf/energy_per_token_j"] == pytest.approx(750 / row["perf/tokens_per_s"], 0.5)
    summary = json.loads((out_dir / "summary.json").read_text())
    energy_j = sum(row.get(f"{gpu}/energy_j") or 0 for row in logged for gpu in ("gpu", "gpu1"))
    assert summary["perf/energy_j"] >= energy_j > 0.5 * summary["perf/energy_j"]
    expected = 750 / summary["perf/tokens_per_s"]
    assert summary["perf/energy_per_token_j"] == pytest.approx(expected, rel=0.3)
    first_line = json.loads((out_dir / "metrics.jsonl").read_text().splitlines()[0])
    assert first_line["run"]["gpu_metrics"] == "sampled every 10 ms"
    check_wandb_of_the_run(out_dir, summary)


def check_wandb_of_the_run(out_dir: Path, summary: dict) -> None:
    """Assert that what one compares runs by is there, under flat names."""
    (run_dir,) = (out_dir / "wandb").glob("offline-run-*")

    def inspect(*options: str) -> str:
        words = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", *options, str(run_dir)]
        done = subprocess.run(words, cwd=run_dir, capture_output=True, text=True, check=True)
        return done.stdout

    records = [json.loads(line) for line in inspect().splitlines()]
    assert "a group" in {record["run"].get("run_group") for record in records if "run" in record}
    record = json.loads(inspect("--summary"))
    config = record["config"]
    assert config["experiment"] == "a group" and config["compile"] is False
    assert {"attention", "dtype", "dataset"} <= set(config) and not {"name", "state"} & set(config)
    for name in ("best_val_loss", "time/step_ms", "perf/tokens_per_s", "perf/energy_per_token_j"):
        assert record["summary"][name] == summary[name]
