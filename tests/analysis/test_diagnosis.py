"""Programs with one known bottleneck each, which the verdict names."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.records import Bottleneck, Report
from profiling.analysis.sum_records import OperatorWork
from profiling.analysis.summary import summarize
from profiling.analysis.verdict import gpu
from profiling.analysis.verdict.diagnosis import reasons_of_host, waiting_verdict
from profiling.analysis.whatif.whatif_records import FreeStep, Gates, WhatIf
from profiling.report.renderers.markdown import markdown
from profiling.report.single.document import report_document
from profiling.shared.causes import PARTS, VERDICT
from profiling.shared.json_records import to_json
from profiling.shared.manifest import CapturedWindow, Laps, Manifest, WindowSteps
from profiling.timeline.trace import CounterSamples
from tests.helpers.captures import own, report_of
from tests.helpers.programs import GEMM, MS, TO_HOST, US, Program

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def step_of(program: Program, data=None, inside=None, before_update=None, name=GEMM, eager=False):
    """A training step of 5.5 ms GPU time, with faults put where they are named."""
    program.dispatch_ns = 10 * US if eager else 6 * US
    with program.phase("data"):
        program.launch(4 * US, 2)
        if data:
            data(program)
    for phase in ("forward", "backward"):
        with program.phase(phase):
            for _ in range(6 if eager else 1):
                if eager:
                    program.launch(27 * US, 16, name=name)
                else:
                    program.graph(27 * US, 96, name=name)
                if inside:
                    inside(program)
    if before_update:
        before_update(program)
    with program.phase("optimizer"):
        program.launch(40 * US, 4, name=name)


def reported(steps=12, make_step=step_of, **faults) -> Report:
    program = Program()
    for _ in range(steps):
        with program.step():
            make_step(program, **faults)
    report = summarize(Analysis(program.trace()))
    assert to_json(report)
    return report


def diagnosed(**faults) -> Bottleneck:
    return reported(**faults).bottleneck


def tiny(program: Program) -> None:
    with program.phase("forward"):
        program.launch(3 * US, 200)
    with program.phase("backward"):
        program.launch(3 * US, 300)


def tiny_graphs(program: Program) -> None:
    with program.phase("forward"):
        program.graph(2500, 200, gap_ns=1200, blocks=8)
    with program.phase("backward"):
        program.graph(2500, 300, gap_ns=1200, blocks=8)


def all_reduced(program: Program) -> None:
    step_of(program)
    with program.phase("gradient_sync"):
        program.launch(4 * MS, name=NCCL)


def items(program: Program, count: int = 60) -> None:
    for _ in range(count):
        program.launch(3 * US)
        program.item()


def snapshot(program: Program) -> None:
    """The host takes longer over the bytes than the link does, and for its own work between."""
    for _ in range(20):
        program.work(100 * US)
        program.pageable_copy(80 * US, TO_HOST, behind_ns=70 * US, bytes=1 << 19)


def allocating(program: Program) -> None:
    with program.phase("forward"):
        for _ in range(10):
            program.call(80 * US, "cudaMalloc")
            program.launch(3 * US, 15)


def paused(program: Program) -> None:
    with program.phase("forward"):
        program.graph(100 * US, 40, gap_ns=40 * US)


PLANTS = {
    "slow_loader": ("data", dict(data=lambda p: p.work(8 * MS))),
    "pageable_copies": ("copies", dict(data=lambda p: p.pageable_copy(12 * MS))),
    "small_pageable_copies": ("copies", dict(data=lambda p: p.pageable_copy(2 * MS))),
    "results_brought_home": ("copies", dict(before_update=snapshot)),
    "item_in_every_step": ("synchronization", dict(before_update=items)),
    "item_in_every_layer": (
        "synchronization",
        dict(inside=lambda p: [p.item() or p.launch(3 * US) for _ in range(6)], eager=True),
    ),
    "malloc_in_every_step": (
        "allocation",
        dict(inside=lambda p: p.call(4 * MS, "cudaMalloc"), eager=True),
    ),
    "malloc_between_many_launches": ("allocation", dict(make_step=allocating)),
    "python_and_a_loader": (
        "host",
        dict(data=lambda p: p.work(3 * MS), before_update=lambda p: p.work(8 * MS)),
    ),
    "kernels_without_a_family": ("gpu", dict(name="mystery")),
    "one_kernel_waits_for_another": ("gpu_gaps", dict(make_step=paused)),
    "tiny_batch": ("launch", dict(make_step=tiny)),
    "python_stall": ("cpu", dict(before_update=lambda p: p.work(8 * MS))),
    "unfused": ("gpu_memory", dict(name=ADD, eager=True)),
    "large_matmuls": ("gpu_compute", {}),
    "tiny_graphs": ("gpu_latency", dict(make_step=tiny_graphs)),
    "slow_link": ("communication", dict(make_step=all_reduced)),
    "a_long_wait_for_a_busy_gpu": ("gpu_compute", dict(before_update=lambda p: p.wait())),
}


def test_every_verdict_is_planted():
    """Every bottleneck that a part of the step can be is planted too.

    What has no GPU is in test_cpu_verdict.py.
    """
    planted = {verdict for verdict, _ in PLANTS.values()}
    without_a_gpu = {"cpu_only", "evaluation", "checkpoint", "logging"}
    assert planted | without_a_gpu | {"unknown"} == set(VERDICT)
    assert {part.verdict for part in PARTS} - {None} <= planted


@pytest.mark.parametrize("plant", PLANTS)
def test_the_verdict_names_what_was_planted(plant):
    verdict, faults = PLANTS[plant]
    found = diagnosed(**faults)
    assert found.verdict == verdict, found
    assert found.evidence and found.next


def test_ranked_is_what_can_be_won_the_most_first():
    report = reported(before_update=lambda p: p.work(8 * MS))
    ranked = report.bottleneck.ranked
    values = [row.recoverable_ms_per_step for row in ranked]
    assert values == sorted(values, reverse=True)
    of = {row.verdict: row.recoverable_ms_per_step for row in ranked}
    assert of["cpu"] == pytest.approx(report.idle.by_cause["cpu"], rel=0.01)
    assert of["cpu"] <= report.breakdown.idle_ms
    assert of["gpu_compute"] == 0  # kernels that end sooner would only wait longer
    assert "CPU work, up to " in report.bottleneck.most_to_gain
    busy = reported()
    of = {row.verdict: row.recoverable_ms_per_step for row in busy.bottleneck.ranked}
    assert of["gpu_compute"] == pytest.approx(busy.family_ms["gemm"])  # no roofline
    assert busy.bottleneck.most_to_gain.startswith("gemm, ")


def test_waits_that_cost_less_than_a_fifth_are_said_beside_the_kernels():
    found = diagnosed(before_update=lambda p: items(p, 42))
    assert found.verdict == "gpu_compute"
    waits = [line for line in found.evidence if "synchronization: the CPU had waited" in line]
    assert len(waits) == 1 and 15 <= float(waits[0].split("(")[1].split(" %")[0]) < 20


def test_kernels_count_where_the_host_waits_for_them():
    found = diagnosed(before_update=items)
    of = {row.verdict: row.recoverable_ms_per_step for row in found.ranked}
    assert found.verdict == "synchronization" and of["gpu_compute"] > of["synchronization"] > 1


def test_a_class_with_nothing_to_gain_says_why():
    report = reported(before_update=lambda p: p.work(8 * MS))
    why = {row.verdict: row.why_none for row in report.bottleneck.ranked}
    assert why["cpu"] is None
    assert "faster kernels would only make it wait longer" in why["gpu_compute"]
    assert why["allocation"] == "the GPU was not idle for this reason"
    assert why["communication"] == "none ran, or kernels hid all of it"
    for row in (*report.bottleneck.ranked, *reported().bottleneck.ranked):
        assert (row.why_none is None) == (row.recoverable_ms_per_step > 0)
    said = markdown(report_document(report))
    assert "memory allocation 0 ms: the GPU was not idle for this reason" in said


def test_the_evidence_is_sentences_with_numbers():
    found = diagnosed(data=lambda p: p.work(8 * MS))
    assert all(line.endswith(".") for line in found.evidence)
    text = " ".join(found.evidence)
    assert "the next batch was being prepared" in text
    text = " ".join(diagnosed(before_update=lambda p: p.work(8 * MS)).evidence)
    assert "Most of it comes just before the kernels of optimizer" in text
    text = " ".join(diagnosed(before_update=items).evidence)
    assert "cudaStreamSynchronize was called" in text
    text = " ".join(diagnosed(data=lambda p: p.pageable_copy(12 * MS)).evidence)
    assert "12.00 ms per step: 12 copies to the GPU (pageable memory), 1,610.6 MB" in text
    assert "the GPU was idle while" not in text  # in the data phase that is a part of `data`
    text = " ".join(diagnosed(before_update=snapshot).evidence)
    assert "The GPU was idle for 1.40 ms per step while the host moved bytes" in text
    assert (
        "3.00 ms per step (29 %), copies: only copies ran, or the CPU was copying their data"
        in text
    )


def test_reasons_of_the_host_that_only_together_outweigh_communication_are_the_host():
    def slow(program):
        with program.phase("gradient_sync"):
            program.launch(10 * MS, name=NCCL)
        program.item()
        step_of(program, data=lambda p: p.work(9 * MS), before_update=lambda p: p.work(12 * MS))

    report = reported(make_step=slow)
    waited = report.idle.by_cause
    assert max(waited.values()) < report.breakdown.communication_ms < sum(waited.values())
    assert report.bottleneck.verdict == "host"
    first, _, third, _ = report.bottleneck.next  # 9.06 ms of waits, 6.66 ms of Python, no launches
    assert first.startswith("Find what waits for the GPU")
    assert third.startswith("In the phase with the gaps, look for Python work")


@pytest.mark.parametrize(
    ("waiting", "reasons"),
    [
        (dict(launch=28.1, synchronization=21.7, cpu=3.3), ["synchronization", "launch"]),
        (dict(launch=10, synchronization=2, cpu=8), ["launch", "cpu"]),
        (dict(launch=9, cpu=10, data=7, communication=30), ["cpu", "launch", "data"]),
        (dict(launch=8, cpu=12, synchronization=6), ["cpu", "synchronization", "launch"]),
    ],
)
def test_the_host_s_advice_begins_with_its_largest_reason(waiting, reasons):
    """Waits for the GPU go before launches: no CUDA graph holds a step with such a wait."""
    assert reasons_of_host(waiting) == reasons


def test_allocation_that_is_the_largest_is_the_verdict_whatever_comes_second():
    """Calls that allocate have a name of their own; reasons told by exclusion are `host`."""
    waiting = {"allocation": 13.6, "launch": 9.5, "cpu": 1.0}
    assert waiting_verdict(waiting, 40.0, 40.0) == "allocation"
    assert (
        waiting_verdict({"synchronization": 13.6, "launch": 9.5, "cpu": 1.0}, 40.0, 40.0) == "host"
    )
    assert waiting_verdict({"allocation": 9.5, "launch": 13.6}, 40.0, 40.0) == "host"
    assert waiting_verdict(waiting | {"communication": 14.0}, 40.0, 40.0) == "host"


@pytest.mark.parametrize(("malloc_us", "advised"), [(1500, True), (300, False)])
def test_allocations_have_their_advice_whatever_limits_the_step(malloc_us, advised):
    """A loop should have hardly any, and they are not what a profiler lengthens."""
    found = diagnosed(
        data=lambda program: program.work(8 * MS),
        before_update=lambda program: program.wait() or program.call(malloc_us * US, "cudaFree"),
    )
    assert found.verdict == "data"
    assert any("PyTorch cache its memory" in line for line in found.next) == advised


def test_half_a_step_between_queued_kernels_goes_before_communication():
    def torn(program):
        paused(program)
        with program.phase("forward"):
            program.graph(100 * US, 10, gap_ns=900 * US)
        with program.phase("gradient_sync"):
            program.launch(4 * MS, name=NCCL)

    found = diagnosed(make_step=torn)
    assert found.verdict == "gpu_gaps"
    assert found.most_to_gain.startswith("gaps between queued kernels, up to 9.")


def test_communication_that_kernels_hide_is_nothing_to_gain():
    program = Program()
    for _ in range(8):
        with program.step():
            begin = program.gpu
            step_of(program)
            call = program.call(4 * US)
            program.build.operation(begin, program.gpu, NCCL, call, stream=8)
    found = summarize(Analysis(program.trace()))
    assert found.family_ms["communication"] > found.family_ms["gemm"]
    assert found.bottleneck.most_to_gain.startswith("gemm, ")


def test_kernels_of_the_warm_up_are_not_of_the_typical_step():
    program = Program()
    for step in range(8):
        with program.step():
            if not step:
                program.launch(100 * MS, name=ADD)
            step_of(program)
    report = summarize(Analysis(program.trace()))
    assert report.family_ms["elementwise"] == pytest.approx(12.5)
    assert report.bottleneck.verdict == "gpu_compute"
    assert "(100 %)" in " ".join(report.bottleneck.evidence)


def test_what_capturing_adds_is_not_held_against_the_host():
    """The capture is launch-bound; the program by itself keeps the GPU busy."""

    def slowed(program):
        with program.phase("forward"):
            program.launch(13 * US, 400)

    def manifest(free_ms):
        steps = WindowSteps(before=Laps(free_ms, [free_ms]))
        overhead = (13.3 / free_ms - 1) * 100
        return Manifest(1, "nsys", CapturedWindow(), steps, overhead_percent=overhead)

    program = Program(dispatch_ns=29 * US)
    for _ in range(10):
        with program.step():
            slowed(program)
    analysis = Analysis(program.trace())
    assert summarize(analysis).bottleneck.verdict == "launch"
    assert summarize(analysis, manifest(13.2)).bottleneck.verdict == "launch"
    found = summarize(analysis, manifest(5.3)).bottleneck
    assert found.verdict == "gpu_compute"
    assert any("Capturing made a step" in line for line in found.evidence)


def test_the_host_is_not_late_where_the_replay_without_a_profiler_keeps_the_gpu_busy():
    program = Program(dispatch_ns=29 * US)
    for _ in range(10):
        with program.step():
            program.launch(13 * US, 400)
    analysis = Analysis(program.trace())

    def replayed(free_ms):
        free = FreeStep(free_ms, "estimated", 13.3, False, 1.0, 10.0)
        return WhatIf("hand", 13.3, 8, 3200, 3200, Gates(0.0, 0.0, True), free, [])

    assert summarize(analysis).bottleneck.verdict == "launch"
    assert summarize(analysis, what_if=replayed(12.0)).bottleneck.verdict == "launch"
    found = summarize(analysis, what_if=replayed(5.8)).bottleneck
    assert found.verdict == "gpu_compute"
    assert any("Without a profiler a step takes about 5.80 ms" in line for line in found.evidence)


def test_a_loader_in_the_same_process_is_slowed_by_the_profiler_too():
    """8 of 10.1 ms load; with 6 ms of the profiler's, launching cannot have taken all of them."""
    program = Program()
    for _ in range(10):
        with program.step():
            with program.phase("data"):
                program.work(8 * MS)
            with program.phase("forward"):
                program.launch(20 * US, 100)
    analysis = Analysis(program.trace())
    (captured,) = {round(summarize(analysis).window.step_ms.median, 3)}
    free = captured - 6
    steps = WindowSteps(before=Laps(free, [free]))
    overhead = (captured / free - 1) * 100
    manifest = Manifest(1, "nsys", CapturedWindow(), steps, overhead_percent=overhead)
    found = summarize(analysis, manifest).bottleneck
    assert found.verdict == "data"
    gains = {gain.verdict: gain.recoverable_ms_per_step for gain in found.ranked}
    assert gains["data"] < 4.1


@pytest.mark.parametrize(
    ("gemm", "elementwise", "other", "verdict", "both"),
    [
        (48.0, 52.0, 0.0, "gpu_memory", True),
        (52.0, 48.0, 0.0, "gpu_compute", True),
        (30.0, 70.0, 0.0, "gpu_memory", False),
        (70.0, 30.0, 0.0, "gpu_compute", False),
        (0.0, 0.0, 9.0, "gpu", False),
    ],
)
def test_arithmetic_and_bytes_are_both_told_where_they_lie_close(
    gemm, elementwise, other, verdict, both
):
    family_ms = {"gemm": gemm, "elementwise": elementwise, "other": other, "communication": 99.0}
    found, evidence = gpu.verdict_by_families(family_ms, 0.0, {})
    told = [line for line in evidence if "the two are close" in line]
    assert found == verdict and bool(told) == both
    if both:
        assert f"move data take {elementwise:.2f} ms ({elementwise:.0f} %)" in told[0]
        assert f"take {gemm:.2f} of 100.00 ms of GPU work per step ({gemm:.0f} %)" in evidence[0]


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits>", "gpu_memory"),
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<>", "gpu_memory"),
        ("void vllm::paged_attention_v2_kernel<>", "gpu_memory"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits>", "gpu_compute"),
        ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<>", "gpu_compute"),
    ],
)
def test_attention_of_new_tokens_to_a_cache_moves_bytes(name, verdict):
    found = reported(name=name).bottleneck
    assert found.verdict == verdict
    told = any("it reads the cache" in line for line in found.evidence)
    assert told == (verdict == "gpu_memory")
    gains = {gain.verdict: gain.recoverable_ms_per_step for gain in found.ranked}
    assert gains[verdict] == max(gains.values()) > 0


@pytest.mark.parametrize(("bound", "part"), [("memory", 1.0), ("compute", 0.0)])
def test_shapes_say_more_of_attention_than_names(bound, part):
    report = reported(name="void pytorch_flash::flash_fwd_splitkv_kernel<>")
    work = OperatorWork(
        "aten::_scaled_dot_product_flash_attention", [[1, 8, 1, 64]], "bfloat16",
        1, 1000, 1, 1, 1.0, 1.0, 1.0, bound, 50.0,
    )  # fmt: skip
    shaped = replace(report, operator_work=[work])
    assert gpu.streaming_ms(shaped, {"attention": 3.0})["attention"] == 3.0 * part
    assert gpu.streaming_ms(report, {"gemm": 3.0})["attention"] == 0.0


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT", "gpu_memory"),
        ("nvjet_sm90_tst_8x64_64x16_1x1_h_bz_TNN", "gpu_memory"),
        ("void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float>", "gpu_memory"),
        ("std::enable_if<T7, void>::type internal::gemvx::kernel<int, int, float>", "gpu_memory"),
        ("void trsv_ln_exec<float, 32u, 32u, 4u, false>(int, float const*)", "gpu_memory"),
        ("void kernel_trsm_l_mul32<float, 8, false, false, false, false>(int)", "gpu_compute"),
        ("nvjet_sm90_tst_128x80_64x8_4x2_h_bz_NNT", "gpu_compute"),
        ("nvjet_sm90_tst_128x128_64x8_2x1_v_bz_NNN", "gpu_compute"),
    ],
)
def test_products_with_few_rows_move_bytes(name, verdict):
    found = reported(name=name).bottleneck
    assert found.verdict == verdict
    told = any("Products with few rows" in line for line in found.evidence)
    assert told == (verdict == "gpu_memory")
    gains = {gain.verdict: gain.recoverable_ms_per_step for gain in found.ranked}
    assert gains[verdict] == max(gains.values()) > 0


def test_hardware_counters_decide_where_they_are_decided():
    program = Program()
    for _ in range(10):
        with program.step():
            step_of(program)
    times = program.build.trace().operations.start_ns + 10
    metrics = [
        CounterSamples(f"DRAM {way} Bandwidth [Throughput %]", 0, times, 0 * times + 45.0)
        for way in ("Read", "Write")
    ]
    found = summarize(Analysis(program.trace(counters=metrics))).bottleneck
    assert found.verdict == "gpu_memory"
    assert "90 %" in " ".join(found.evidence)
    assert not any("GPU metrics" in line for line in found.cannot_tell)


def test_what_cannot_be_told_names_the_option():
    program = Program()
    for _ in range(6):
        with program.step():
            program.launch(50 * US, 10)
    text = " ".join(summarize(Analysis(program.trace())).bottleneck.cannot_tell)
    assert "gpu_" not in text, "a name that only the code knows"
    for option in ("--preset metrics", "--phases", "roofline"):
        assert option in text


def test_a_cause_is_not_guessed_where_the_launching_calls_were_cut_out():
    program = Program()
    for _ in range(6):
        with program.step(), program.phase("forward"):
            program.work(5 * MS)
            program.launch(50 * US, 10)
    trace = program.trace()
    assert summarize(Analysis(trace)).bottleneck.verdict == "cpu"
    trace.operations.call[:] = -1
    found = summarize(Analysis(trace)).bottleneck
    assert found.verdict == "unknown"
    assert "does not show why the GPU was idle" in found.evidence[-1]


@pytest.mark.parametrize(
    ("copy_ns", "idle_ns", "verdict"), [(8 * MS, 5 * MS, "copies"), (4 * MS, 5 * MS, "unknown")]
)
def test_copies_that_outlast_all_idle_time_need_no_causes(copy_ns, idle_ns, verdict):
    """torch.profiler records only launches of CUDA's driver, as by Numba: the copies lack calls."""
    program = Program()
    for _ in range(6):
        with program.step(), program.phase("forward"):
            program.host = program.gpu + idle_ns
            program.copy(copy_ns)
            program.launch(50 * US)
    trace = program.trace(kind="kineto")
    trace.names[trace.names.index("cudaLaunchKernel")] = "cuLaunchKernelEx"
    assert trace.calls is not None
    launches = trace.calls.name == trace.names.index("cuLaunchKernelEx")
    place = np.cumsum(launches) - 1
    of_launch = launches[trace.operations.call]
    trace.operations.call[:] = np.where(of_launch, place[trace.operations.call], -1)
    report = summarize(Analysis(replace(trace, calls=trace.calls.rows(launches))))
    found = report.bottleneck
    assert found.verdict == verdict
    assert report.idle is None and report.what_if is None
    assert report.typical.parts_ms["idle"] == pytest.approx(5, rel=0.05)
    assert "Without the calls of CUDA's driver other than launches" in found.evidence[-1]
    assert any("of CUDA's driver, which the program calls" in line for line in found.cannot_tell)
    assert {"data", "cpu", "launch"}.isdisjoint(gain.verdict for gain in found.ranked)
    if verdict == "unknown":
        (advice,) = found.next
        assert advice == "Record all calls of CUDA's driver: nsys profile --trace=cuda,nvtx,osrt."


@pytest.mark.parametrize(
    ("name", "told"), [("cuLaunchKernelEx", True), ("cudaLaunchKernel", False)]
)
def test_waits_of_cudas_driver_are_not_seen_by_torch_profiler(name, told):
    """Programs of cuda.core or Numba wait by calls that the trace does not have."""
    program = Program(dispatch_ns=50 * US)
    for _ in range(6):
        with program.step(), program.phase("forward"):
            program.launch(10 * US, 20)
    trace = program.trace(kind="kineto")
    trace.names[trace.names.index("cudaLaunchKernel")] = name
    found = summarize(Analysis(trace)).bottleneck
    assert found.verdict == "launch"
    assert any("may have waited for the GPU" in line for line in found.evidence) == told


@pytest.mark.parametrize(
    "name", ["cuMemHostRegister_v2", "cuMemHostUnregister", "cuMemHostAlloc", "cudaHostRegister"]
)
def test_pages_that_are_locked_in_each_step_are_allocated(name):
    program = Program()
    for _ in range(6):
        with program.step(), program.phase("forward"):
            program.call(5 * MS, name)
            program.copy(2 * MS)
            program.launch(100 * US)
    assert summarize(Analysis(program.trace())).bottleneck.verdict == "allocation"


def test_without_a_gpu_nothing_is_guessed():
    program = Program()
    for _ in range(6):
        with program.step(), program.phase("forward"):
            program.work(5 * MS)
    found = summarize(Analysis(program.trace())).bottleneck
    assert found.verdict == "unknown"
    assert any("no GPU activity" in line for line in found.cannot_tell)
    assert "forward, 5.00 ms per step" in found.evidence[1]


@own
def test_verdicts_of_real_captures(capture):
    """Manifests are left out: nothing tells here that capturing slowed flash_eager by half."""
    expected = {
        "flash_eager": "launch",
        "flash_compile": "gpu_compute",
        "slow_eager": "gpu_memory",
        "slow_compile": "gpu_memory",
    }
    assert report_of(capture).bottleneck.verdict == expected[capture]
