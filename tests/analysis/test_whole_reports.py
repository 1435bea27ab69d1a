"""Reports of real captures of every kind: counters, torch.profiler, backward on its own thread.

tests/timeline/test_captures.py says what each of them is. Expected values are what the same run
wrote down by itself (its manifest), or what SQL alone gives on the whole export, before it was cut.
"""

import pytest

from profiling.shared.causes import CAUSES, PART
from profiling.timeline.opening import read_manifest
from tests.helpers.captures import MANIFESTS, report_of
from tests.paths import CAPTURES

PHASES = ("data", "forward", "backward", "optimizer")
ATTENTION_KERNELS = 6 * 4  # a step: in each block one of forward, three of backward


def gpu_ms(name: str) -> dict[str, float]:
    """Phase -> kernel time a step."""
    report = report_of(name)
    steps = report.window.steps
    return {row.name: row.gpu_ms / steps for row in report.ranges}


def test_hardware_counters_are_those_of_the_samples():
    rows = {row.name: row for row in report_of("flash_metrics").gpu_metrics}
    busy = {name: row.mean_busy for name, row in rows.items()}
    assert busy["SMs Active [Throughput %]"] == pytest.approx(79.4, abs=1)
    assert busy["Tensor Active [Throughput %]"] == pytest.approx(23.3, abs=0.5)
    assert busy["DRAM Read Bandwidth [Throughput %]"] == pytest.approx(22.4, abs=0.5)
    assert busy["DRAM Write Bandwidth [Throughput %]"] == pytest.approx(15.8, abs=0.5)
    assert 1800 < busy["GPC Clock Frequency [MHz]"] <= 1980  # an H200 boosts to 1980 MHz
    idle = rows["GR Active [Throughput %]"]
    assert idle.mean_window < idle.mean_busy > 99  # nsys sees the same busy time


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_manifest_agrees_with_its_capture(name):
    """Two clocks: CUDA events between the steps, and the profiler's time stamps."""
    report = report_of(name)
    manifest = read_manifest(CAPTURES / MANIFESTS[name])
    assert report.window.steps == manifest.window.steps
    captured = manifest.step_ms.captured.median
    assert report.window.step_ms.median == pytest.approx(captured, rel=0.005)
    assert report.health.overhead_percent == manifest.overhead_percent
    free = report.health.free_step_ms
    assert 100 * (captured / free - 1) == pytest.approx(manifest.overhead_percent)
    assert report.attention_backend == manifest.attention.ran == "flash"


def test_the_roofline_of_a_real_run():
    roofline = report_of("flash_metrics").roofline
    assert (roofline.peak_tflops, roofline.peak_gbps) == (989.4, 4800.0)
    tokens_per_s = 64 * 256 / report_of("flash_metrics").health.free_step_ms * 1e3
    flops_per_token = 6 * 10.65e6 + 12 * 6 * 384 * 256  # 10.65 million parameters
    assert roofline.mfu == pytest.approx(flops_per_token * tokens_per_s / 989.4e12, rel=0.01)
    gemm = next(row for row in roofline.families if row.family == "gemm")
    assert gemm.bound == "compute" and 30 < gemm.percent_of_bound < 100


def test_what_a_compiled_run_is_told():
    bottleneck = report_of("flash_metrics").bottleneck
    assert bottleneck.verdict == "gpu_compute"
    text = " ".join(bottleneck.next)
    for setting in ("compile=true", "cuda_graphs=true", "attention=flash", "dtype=bfloat16"):
        assert setting not in text
    assert "of their roof" in text and "profiling ncu" in text


def test_a_trace_of_torch_profiler_has_our_names_and_loses_no_kernel():
    report = report_of("flash_eager.trace")
    assert report.capture.kind == "kineto" and not report.capture.personal
    assert report.window.phases_from == "ranges"
    assert report.window.first_iteration == 100
    assert report.attribution.coverage == 1.0
    assert report.attribution.by_time_ns > report.attribution.same_thread_ns
    counts = {row.name: row.count for row in report.ranges}
    assert [counts[name] for name in PHASES] == [5] * 4
    flash = sum(row.count for row in report.families if row.family == "attention")
    assert flash == 5 * ATTENTION_KERNELS


@pytest.mark.parametrize("other", ["flash_attr_false", "flash_eager", "flash_eager.trace"])
def test_phases_are_the_same_by_thread_and_by_time(other):
    """The range's thread launches all with attribute_backward: what is right is known."""
    by_thread = report_of("flash_attr_true")
    assert by_thread.attribution.by_time_ns == 0
    assert report_of(other).attribution.coverage == 1.0
    expected, found = gpu_ms("flash_attr_true"), gpu_ms(other)
    for phase in ("forward", "backward", "optimizer"):
        assert found[phase] == pytest.approx(expected[phase], rel=0.03)
    counts = [
        {row.name: row.kernels / each.window.steps for row in each.ranges}
        for each in (by_thread, report_of(other))
    ]
    assert all(counts[0][phase] == counts[1][phase] for phase in PHASES)


def test_without_the_switch_backward_is_launched_by_another_thread():
    covered = report_of("flash_attr_false").attribution
    assert covered.by_time_ns > covered.same_thread_ns > 0


@pytest.mark.parametrize(
    "name",
    sorted(
        path.name.partition(ending)[0]
        for ending in (".sqlite.gz", ".json.gz")
        for path in CAPTURES.glob(f"*{ending}")
    ),
)
def test_the_parts_of_every_capture_add_up_to_its_mean_step(name):
    report = report_of(name)
    assert set(report.parts_ms) == {"compute", "communication", "copy", *CAUSES} <= set(PART)
    assert sum(report.parts_ms.values()) == pytest.approx(report.window.step_ms.mean, rel=1e-9)
    for phase, causes in report.idle.by_phase.items():
        assert set(causes) <= set(CAUSES), phase
