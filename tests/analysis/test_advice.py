"""Advice: the verdict's lines, without what is in force already."""

from dataclasses import fields, replace

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.records import CaptureFacts, Report, Roofline, RooflineRow, RunFacts
from profiling.analysis.sum_records import CallSum, KernelSum
from profiling.analysis.summary import summarize
from profiling.analysis.verdict.advice import advise
from profiling.shared.advice import InForce
from profiling.shared.causes import VERDICT, VERDICTS
from profiling.shared.kernel_names import function_name
from profiling.timeline.trace import Device
from tests.helpers.captures import own, report_of
from tests.helpers.programs import training

NORM = "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float>(int, float)"
ALL_IN_FORCE = {
    "compile": True,
    "cuda_graphs": "true",
    "attention": "flash",
    "dtype": "bfloat16",
    "dropout": 0.0,
    "token_storage": "device",
}
SETTINGS = (
    "compile=true",
    "cuda_graphs=true",
    "attention=flash",
    "dtype=bfloat16",
    "dropout=0",
    "token_storage=device",
)
ROOFLINE = Roofline(
    peak_tflops=989.4,
    peak_gbps=4800.0,
    mfu=0.2,
    families=[
        RooflineRow(family, 1e12, 1e9, ms, 1.0, 1.0, 1e3, "compute", percent)
        for family, ms, percent in (
            ("gemm", 2.0, 90.0),
            ("norm", 1.0, 40.0),
            ("loss", 0.01, 1.0),
            ("dropout", 3.0, 130.0),
        )
    ],
)
DURATIONS = (1, 10, 10.0, 10.0, 10, 10, 0.0)
UNKNOWN = summarize(Analysis(training(steps=2).trace()))


def report(config=None, backend=None, kernels=(NORM,), api=(), roofline=None) -> Report:
    return replace(
        UNKNOWN,
        run=None if config is None else RunFacts(config, None, None, None),
        attention_backend=backend,
        kernels=[KernelSum(name, *DURATIONS, 50.0, "other") for name in kernels],
        api=[CallSum(name, *DURATIONS, 100.0) for name in api],
        roofline=roofline,
    )


def settings(lines: list[str]) -> set[str]:
    return {setting for setting in SETTINGS if any(setting in line for line in lines)}


@pytest.mark.parametrize("verdict", VERDICT)
def test_nothing_in_force_is_advised_and_something_is_left(verdict):
    lines = advise(verdict, report(ALL_IN_FORCE, "flash"))
    assert lines and not settings(lines)


def test_without_knowledge_every_setting_is_advised():
    lines = [line for verdict in VERDICT for line in advise(verdict, report())]
    assert settings(lines) == set(SETTINGS)
    assert not any("{" in line or "None" in line for line in lines)


def test_what_is_advised_is_what_is_missing():
    def of(verdict, backend="flash", **keys):
        return settings(advise(verdict, report(ALL_IN_FORCE | keys, backend)))

    assert of("launch", cuda_graphs="false") == {"cuda_graphs=true"}
    assert of("launch", compile=False) == {"compile=true"}
    assert of("launch", cuda_graphs="false", dtype="float16") == set()  # float16 has no graphs
    assert of("gpu_compute", dtype="float32") == {"dtype=bfloat16"}
    assert of("gpu_memory", dropout=0.2) == {"dropout=0"}
    assert of("gpu_memory", "slow") == {"attention=flash"}
    assert of("gpu_memory", "cudnn", attention="auto") == set()
    assert of("data", token_storage="mmap") == {"token_storage=device"}


def test_the_capture_tells_what_a_manifest_would():
    seen = report(kernels=("triton_poi_fused_add_0",), api=("cudaGraphLaunch",))
    assert settings(advise("launch", seen)) == set()
    assert "python -m profiling compiled" in " ".join(advise("gpu_memory", seen))
    assert "python -m profiling compiled" not in " ".join(advise("gpu_memory", report()))


def test_the_largest_kernel_and_the_family_with_the_most_to_gain_are_named():
    text = " ".join(advise("gpu_compute", report(ALL_IN_FORCE, "flash", roofline=ROOFLINE)))
    assert "Start with norm kernels, which can save the most: up to 0.60 ms per step" in text
    assert "they run at 40 % of their roof" in text
    assert "ncu --range none --kernel vectorized_layer_norm_kernel -- COMMAND" in text
    lines = advise("gpu_memory", report(ALL_IN_FORCE, "flash", kernels=()))
    assert not any(" ncu " in line for line in lines)


def of_gpu(name: str) -> CaptureFacts:
    return replace(UNKNOWN.capture, device=0, devices=[Device(0, name)])


@pytest.mark.parametrize(
    "seen",
    [
        report(kernels=("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_SE",)),
        report(api=("hipLaunchKernel",)),
        replace(report(), capture=of_gpu("AMD Instinct MI300X")),
    ],
)
def test_ncu_is_not_advised_for_gpus_of_amd(seen):
    text = " ".join(line for verdict in VERDICT for line in advise(verdict, seen))
    assert text and "ncu" not in text
    of_nvidia = replace(report(), capture=of_gpu("NVIDIA H200"))
    assert "ncu" in " ".join(advise("gpu_compute", of_nvidia))


def test_no_collective_is_looked_at_by_ncu():
    """A collective waits for other ranks, and so would ncu."""
    seen = report(kernels=("ncclDevKernel_AllReduce_Sum_f32_RING_LL", NORM))
    largest, *others = seen.kernels
    seen = replace(seen, kernels=[replace(largest, family="communication"), *others])
    text = " ".join(advise("gpu_compute", seen))
    assert "--kernel vectorized_layer_norm_kernel" in text and "nccl" not in text


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (NORM, "vectorized_layer_norm_kernel"),
        ("_ZN13pytorch_flash16flash_fwd_kernelIfEEvv", "flash_fwd_kernel"),
        ("nvjet_sm90_tst_192x128_64x5", "nvjet_sm90_tst_192x128_64x5"),
        ("void at::native::(anonymous namespace)::f<int>(int)", "f"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int>(int)", "kernel"),
        ("std::enable_if<(8>0), void>::type vllm::rms_norm_kernel<int>(int)", "rms_norm_kernel"),
    ],
)
def test_the_function_of_a_kernel(name, function):
    assert function_name(name) == function


@own
def test_of_real_captures(capture):
    """Advice without manifests comes from what the captures' kernels and calls tell."""
    lines = report_of(capture).bottleneck.next
    advised = settings(lines)
    assert lines
    if "compile" in capture:
        assert not advised & {"compile=true", "cuda_graphs=true"}
    if "flash" in capture:
        assert "attention=flash" not in advised
    if capture == "slow_eager":
        assert {"attention=flash", "compile=true"} <= advised


def test_what_makes_advice_needless_and_what_it_needs_are_facts_of_a_run():
    known = {field.name for field in fields(InForce)}
    named = {name for verdict in VERDICTS for a in verdict.advice for name in (*a.unless, a.needs)}
    assert named - {None} <= known


@pytest.mark.parametrize(
    ("kernel", "half"),
    [
        ("nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN", True),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16>", True),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob", False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8", False),
        ("sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwc", False),
    ],
)
def test_fast_formats_are_advised_where_products_are_in_float32(kernel, half):
    lines = advise("gpu_compute", report(kernels=(kernel,)))
    assert ("dtype=bfloat16" not in " ".join(lines)) == half
