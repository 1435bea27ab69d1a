"""Timer of the lab: its samples, their order, and the figures made from them."""

import itertools
import random
import time
from contextlib import nullcontext
from math import comb
from statistics import median
from types import SimpleNamespace

import pytest
import torch

from profiling.lab import timer
from profiling.lab.timer import interval_rank, measure, median_interval
from tests.helpers.clock import FakeClock

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)
L2_BYTES = 4096


def busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@pytest.mark.parametrize("count", (6, 7, 20, 51, 200))
def test_the_interval_of_the_median_is_the_narrowest_with_95_percent(count):
    def coverage(rank):
        return 1 - 2 * sum(comb(count, i) for i in range(rank + 1)) / 2**count

    rank = interval_rank(count)
    assert coverage(rank) >= 0.95 > coverage(rank + 1)


def test_the_interval_holds_the_true_median_about_as_often_as_it_says():
    draw = random.Random(1)
    held = 0
    for _ in range(400):
        low, high = median_interval([draw.expovariate(1.0) for _ in range(30)])
        held += low <= 0.6931 <= high
    assert 0.93 <= held / 400 <= 0.99


@pytest.fixture
def clock(monkeypatch):
    """The timer's, which moves only when a test moves it: no load on the machine is in a sample."""
    fake = FakeClock()
    monkeypatch.setattr(timer, "time", fake)
    return fake


def test_a_call_of_known_length(clock):
    lengths_s = itertools.cycle((0.001, 0.002, 0.003))
    timing = measure(lambda: clock.sleep(next(lengths_s)), CPU, max_s=0.1)
    assert timing.median_ms == pytest.approx(2.0)
    assert timing.quartiles_ms == pytest.approx((1.0, 3.0))
    assert timing.ci95_ms[0] <= timing.median_ms <= timing.ci95_ms[1]
    assert timing.launch_ms is None


def test_a_call_takes_no_less_than_its_length_by_the_real_clock():
    assert measure(lambda: busy(0.002), CPU, max_s=0.05).median_ms >= 2.0


def test_preparation_comes_before_each_sample_and_is_not_timed(clock):
    order = []

    def prepare():
        clock.sleep(0.005)
        order.append("prepare")

    def call():
        clock.sleep(0.001)
        order.append("call")

    timing = measure(call, CPU, prepare=prepare, max_s=0.05)
    assert order[::2] == ["prepare"] * (len(order) // 2)
    assert order[1::2] == ["call"] * (len(order) // 2)
    assert timing.median_ms == pytest.approx(1.0)


def test_time_is_bounded_and_a_slow_call_still_gets_an_interval():
    start = time.perf_counter()
    timing = measure(lambda: time.sleep(0.02), CPU, max_s=0.02)
    assert 6 <= timing.samples <= 12
    assert time.perf_counter() - start < 3.0


def test_noise_beyond_the_precision_is_admitted():
    draw = random.Random(0)
    timing = measure(lambda: busy(draw.choice((0.0002, 0.002))), CPU, precision=1e-6, max_s=0.03)
    assert not timing.precise


def test_an_error_of_the_call_passes():
    with pytest.raises(ZeroDivisionError):
        measure(lambda: 1 / 0, CPU)


@pytest.fixture
def fake_cuda(monkeypatch):
    """A log of what would have been queued, in order; each sample takes a millisecond."""
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("event")

        def elapsed_time(self, _):
            return 1.0

    real_empty = torch.empty

    def empty(count, dtype, device):
        buffer = real_empty(count, dtype=dtype)
        return SimpleNamespace(
            zero_=lambda: log.append(("flush", buffer.numel() * buffer.element_size()))
        )

    properties = SimpleNamespace(L2_cache_size=L2_BYTES)
    monkeypatch.setattr(timer.torch, "empty", empty)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: log.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: log.append(("hold", cycles)))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(timer, "spin_cycles_per_ms", lambda _: 1000.0)
    return log


def kinds(log):
    return [entry if isinstance(entry, str) else entry[0] for entry in log]


def test_on_cuda_a_sample_holds_flushes_and_records_and_a_batch_waits_once(fake_cuda):
    stopwatch = timer.CudaStopwatch(CUDA)
    samples = stopwatch.batch(lambda: fake_cuda.append("call"), None, 3)
    assert samples == [1.0, 1.0, 1.0]
    assert kinds(fake_cuda) == ["hold", "flush", "event", "call", "event"] * 3 + ["synchronize"]
    assert min(size for kind, size in fake_cuda[1:2]) >= L2_BYTES


def test_the_gpu_is_held_for_longer_than_the_host_needs_to_queue_the_call(fake_cuda):
    timing = measure(lambda: busy(0.003), CUDA, max_s=0.1)
    assert timing.launch_ms == pytest.approx(3, rel=0.2)
    held = [entry[1] for entry in fake_cuda if entry[0] == "hold"]
    assert held[0] == 0 and held[-1] / 1000.0 > timing.launch_ms
    assert timing.median_ms == 1.0 and timing.stable and timing.precise


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.mark.gpu
@pytest.mark.alone
@needs_gpu
def test_small_kernels_are_timed_at_the_pace_of_the_gpu_not_of_python():
    a = torch.zeros(1024, device=CUDA)

    def call():
        for _ in range(50):
            a.add_(1)
        busy(0.001)

    timing = measure(call, CUDA)
    assert timing.launch_ms > 1.0 and timing.median_ms < timing.launch_ms / 2


@pytest.mark.gpu
@pytest.mark.alone
@needs_gpu
def test_it_agrees_with_triton_and_with_itself():
    do_bench = pytest.importorskip("triton.testing").do_bench
    a = torch.randn(64 * 2**18, device=CUDA)
    b = torch.empty_like(a)
    ours = [measure(lambda: b.copy_(a), CUDA).median_ms for _ in range(5)]
    theirs = do_bench(lambda: b.copy_(a), return_mode="median")
    assert median(ours) == pytest.approx(theirs, rel=0.05)
    assert (max(ours) - min(ours)) / median(ours) < 0.02
    assert 0 < timer.empty_launch(CUDA).median_ms < 0.02
