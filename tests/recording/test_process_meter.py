"""CPU use, threads and memory of the training process, in its rows."""

import mmap
import threading
import time
from pathlib import Path

import pytest

from profiling.recording import process_meter
from profiling.recording.process_meter import ProcessMeter, Times
from profiling.shared import metric_names


def work(cpu_s: float) -> None:
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        pass


@pytest.fixture
def clocks(monkeypatch):
    """(CPU seconds, seconds on the wall) that the next readings give, one after the other."""
    readings: list[Times] = []
    monkeypatch.setattr(process_meter, "now", lambda: readings.pop(0))
    return readings


def test_a_row_counts_from_the_last_one_and_leaves_out_what_is_no_training(clocks):
    clocks += [Times(1, 10), Times(2, 12), Times(9, 20), Times(10, 21), Times(13, 22)]
    meter = ProcessMeter()
    meter.start()  # 1 s of CPU before it is no training
    with meter.pause("evaluate"):  # 7 s of CPU in 8
        pass
    assert meter.read()["cpu/process_percent"] == pytest.approx(100 * (1 + 1) / (2 + 1))
    assert meter.read()["cpu/process_percent"] == pytest.approx(300)  # three cores
    assert meter.summary()["cpu/process_percent"] == pytest.approx(100 * (2 + 3) / (3 + 1))


def test_no_time_no_percent(clocks):
    clocks += [Times(1, 1), Times(1, 1)]
    meter = ProcessMeter()
    meter.start()
    assert meter.read()["cpu/process_percent"] is None


def test_work_is_told_from_waiting():
    meter = ProcessMeter()
    meter.start()
    time.sleep(0.2)
    waited = meter.read()["cpu/process_percent"]
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    work(0.2)
    worked = meter.read()["cpu/process_percent"]
    expected = 100 * (time.process_time() - cpu_s) / (time.perf_counter() - wall_s)
    assert waited < 50 and worked == pytest.approx(expected, rel=0.1)


@pytest.mark.skipif(not process_meter.STAT.exists(), reason="needs /proc")
def test_threads_and_memory_are_the_system_s():
    before = process_meter.threads_and_memory()
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    with mmap.mmap(-1, 64 << 20) as memory:
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1
        held = process_meter.threads_and_memory()
    stop.set()
    for thread in threads:
        thread.join()
    assert held["cpu/threads"] == before["cpu/threads"] + 3
    grown = held["cpu/memory_bytes"] - before["cpu/memory_bytes"]
    assert grown == pytest.approx(64 << 20, rel=0.1)
    status = Path("/proc/self/status").read_text()
    assert f"\nThreads:\t{process_meter.threads_and_memory()['cpu/threads']}\n" in status


def test_without_proc_both_are_null(monkeypatch, tmp_path):
    monkeypatch.setattr(process_meter, "STAT", tmp_path / "none")
    meter = ProcessMeter()
    meter.start()
    row = meter.read()
    assert row["cpu/threads"] is None and row["cpu/memory_bytes"] is None
    assert set(row) == set(meter.summary()) <= set(metric_names.ALL)


def test_a_name_with_blanks_and_parentheses_is_no_field(monkeypatch, tmp_path):
    stat = tmp_path / "stat"
    fields = ["S", *map(str, range(4, 53))]  # each is its own number
    stat.write_text(f"7 (a b) c) {' '.join(fields)}\n")
    monkeypatch.setattr(process_meter, "STAT", stat)
    held = process_meter.threads_and_memory()
    assert held["cpu/threads"] == 20
    assert held["cpu/memory_bytes"] == 24 * mmap.PAGESIZE


def test_a_row_costs_microseconds():
    meter = ProcessMeter()
    meter.start()
    times_s = []
    for _ in range(200):
        start = time.perf_counter()
        meter.read()
        times_s.append(time.perf_counter() - start)
    assert sorted(times_s)[100] < 200e-6


@pytest.mark.slow
def test_every_row_of_a_run_has_them(run, rows):
    logged = rows(run(max_iters=4, eval_iters=1, log_interval=1))
    trained = [row for row in logged.values() if row.get("train/loss") is not None]
    assert len(trained) == 4
    for row in trained:
        assert 0 < row["cpu/process_percent"] < 100 * 1024
        assert row["cpu/threads"] >= 1 and row["cpu/memory_bytes"] > 10 << 20
