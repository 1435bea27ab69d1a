"""Facts about a program that its capture shows, and the advice that follows from them."""

from dataclasses import replace

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.records import Report
from profiling.analysis.summary import summarize
from profiling.analysis.verdict.advice import advise
from profiling.analysis.verdict.program import program_of
from profiling.shared.causes import VERDICT
from profiling.shared.kernel_names import FLOAT64, LAYOUT
from tests.helpers.programs import GEMM, MS, TO_DEVICE, US, Program

NATIVE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float>(int)"
TORCH_WORDS = ("torch.", "num_workers", "DataLoader", "pin_memory", "expandable_segments")


def looped(*kernels: str, steps: int = 6, name: str = "step", domain=None) -> Program:
    program = Program()
    for number in range(steps):
        begin = program.host
        for kernel in kernels:
            program.launch(100 * US, 10, name=kernel)
        program.build.range(begin, program.host, name.format(number), domain=domain)
    return program


def reported(program: Program, kind: str = "nsys") -> Report:
    return summarize(Analysis(program.trace(kind=kind)))


def test_a_manifest_says_trainer_but_not_of_a_sample():
    made = {name: Analysis(looped(NATIVE, name=name).trace()) for name in ("step", "token {}")}
    found = [program_of(each, own_run=True).framework for each in made.values()]
    assert found == ["trainer", "pytorch"]


def advice(report: Report) -> str:
    return " ".join(line for verdict in VERDICT for line in advise(verdict, report))


@pytest.mark.parametrize(
    ("program", "kind", "framework"),
    [
        (looped(GEMM, name="iteration {}", domain="nanogpt"), "nsys", "trainer"),
        (looped(NATIVE, name="token {}", domain="nanogpt"), "nsys", "pytorch"),
        (looped(NATIVE, name="iteration {}"), "nsys", "pytorch"),
        (looped(NATIVE, name="iteration {}"), "kineto", "pytorch"),
        (looped(NATIVE, name="[pl][profile]run_training_batch"), "kineto", "lightning"),
        (looped(NATIVE, name="transformers/trainer.py(9): step"), "kineto", "huggingface"),
        (looped("loop_add_fusion", name="step"), "nsys", "jax"),
        (looped(GEMM, name="TSL:XlaModule:#hlo_module=jit_step#", domain="TSL"), "nsys", "jax"),
        (looped("cupy_multiply__float32_float32_float32"), "nsys", "cupy"),
        (looped(GEMM), "nsys", "unknown"),
    ],
)
def test_the_framework_is_read_from_names(program, kind, framework):
    report = reported(program, kind)
    assert report.program.framework == framework
    own_keys = ("compile=true", "dtype=bfloat16", "token_storage", "batch_size", "log_interval")
    assert any(key in advice(report) for key in own_keys) == (framework == "trainer")
    torch = any(word in advice(report) for word in TORCH_WORDS)
    assert torch == (framework not in ("jax", "cupy", "unknown"))


@pytest.mark.parametrize("framework", ["jax", "cupy", "unknown", "pytorch", "lightning"])
@pytest.mark.parametrize("verdict", VERDICT)
def test_each_verdict_leaves_something_to_try_in_each_framework(framework, verdict):
    report = reported(looped(GEMM, NATIVE, SOFTMAX))
    report = replace(report, program=replace(report.program, framework=framework))
    lines = advise(verdict, report)
    assert lines and not any("{" in line or "None" in line for line in lines)


def blocking(program: Program, kernel_ns: int) -> None:
    """Launch 20 kernels as CUDA_LAUNCH_BLOCKING does: each call returns behind its kernel."""
    for _ in range(20):
        program.host += program.dispatch_ns
        start = max(program.gpu, program.host) + 3 * US
        program.gpu = start + kernel_ns
        call = program.call(40 * US)
        program.build.operation(start, program.gpu, NATIVE, call)


def blocked(kernel_ns: int) -> Report:
    program = Program()
    for number in range(6):
        begin = program.host
        blocking(program, kernel_ns)
        program.build.range(begin, program.host, f"ProfilerStep#{number}", domain=None)
    return reported(program)


def test_launches_that_return_behind_their_kernels_are_waits():
    report = blocked(30 * US)
    assert report.program.blocking_launches == pytest.approx(40)
    assert report.bottleneck.verdict == "synchronization"
    assert report.bottleneck.next == ["Let launches return at once: unset CUDA_LAUNCH_BLOCKING."]
    assert any("CUDA_LAUNCH_BLOCKING is set" in line for line in report.bottleneck.evidence)
    assert reported(looped(NATIVE)).program.blocking_launches is None


def test_a_slow_call_may_return_behind_a_short_kernel():
    report = blocked(5 * US)
    assert report.program.blocking_launches is None and report.bottleneck.verdict == "launch"


def test_labels_and_images_are_one_batch():
    program = Program()
    for number in range(6):
        begin = program.host
        program.work(8 * MS)
        program.copy(1 * US, bytes=384)
        program.copy(300 * US, bytes=19_000_000)
        program.launch(100 * US, 20)
        program.build.range(begin, program.host, f"ProfilerStep#{number}", domain=None)
    report = reported(program)
    assert report.bottleneck.verdict == "data"
    assert report.program.batch_bytes == 19_000_384
    assert not any("Keep the data set" in line for line in report.bottleneck.next)


def test_a_small_copy_behind_a_kernel_is_no_batch():
    program = Program()
    for number in range(6):
        begin = program.host
        program.work(8 * MS)
        program.copy(1 * US, bytes=384)
        program.launch(100 * US)
        program.copy(300 * US, bytes=19_000_000)
        program.launch(100 * US)
        program.build.range(begin, program.host, f"ProfilerStep#{number}", domain=None)
    assert reported(program).idle.by_cause["cpu"] > 7


def test_copies_on_a_stream_of_their_own_are_not_advised():
    def copying(stream: int) -> Report:
        program = Program()
        for number in range(6):
            begin = program.host
            call = program.call(4 * US, "cudaMemcpyAsync")
            columns = {"kind": 1, "bytes": 1 << 24, "stream": stream}
            program.execute(5 * MS, TO_DEVICE, call, **columns)
            program.launch(100 * US, 5)
            program.build.range(begin, program.host, f"ProfilerStep#{number}", domain=None)
        return reported(program)

    one, other = copying(7), copying(9)
    assert not one.program.copies_ahead and other.program.copies_ahead
    assert "separate stream" in " ".join(one.bottleneck.next)
    assert "separate stream" not in " ".join(other.bottleneck.next)
    assert "Copy from pinned memory" not in " ".join(one.bottleneck.next)


def test_a_softmax_alone_is_no_attention():
    alone, between = reported(looped(NATIVE, SOFTMAX)), Program()
    for number in range(6):
        begin = between.host
        for kernel in (GEMM, NATIVE, SOFTMAX, GEMM, NATIVE):
            between.launch(100 * US, name=kernel)
        between.build.range(begin, between.host, f"ProfilerStep#{number}", domain=None)
    report = reported(between)
    assert report.program.attention and report.attention_backend == "slow"
    assert "scaled_dot_product" in advice(report)
    assert not alone.program.attention and alone.attention_backend is None
    assert "scaled_dot_product" not in advice(alone) and "dropout off" not in advice(alone)


def test_attention_is_a_softmax_between_batched_products():
    """Operators say it where there are some: a router's softmax follows another product."""

    def called(*operators: str) -> bool:
        program = looped(NATIVE, name="ProfilerStep#{}")
        for place, operator in enumerate(operators):
            program.build.operator(place * US, place * US + 500, operator)
        return program_of(Analysis(program.trace(kind="kineto")), False).attention

    assert called("aten::bmm", "aten::softmax", "aten::_softmax", "aten::bmm")
    assert not called("aten::addmm", "aten::_softmax", "aten::bmm")


@pytest.mark.parametrize("checks", [True, False])
def test_anomaly_mode_checks_each_gradient(checks):
    program = looped(NATIVE, name="ProfilerStep#{}")
    for place in range(8):
        begin = place * 100 * US
        program.build.operator(begin, begin + 80 * US, "autograd::engine::evaluate_function: Mul")
        if checks:
            program.build.operator(begin + US, begin + 2 * US, "aten::_is_any_true")
    report = reported(program, "kineto")
    assert report.program.anomaly_mode == checks
    assert ("set_detect_anomaly" in " ".join(advise("synchronization", report))) == checks


@pytest.mark.parametrize(
    ("name", "double"),
    [
        ("cutlass_80_tensorop_d884gemm_128x64_16x3_tt_align1", True),
        ("sm80_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize64x64x16", True),
        ("void at::native::vectorized_elementwise_kernel<2, CUDAFunctor_add<double>>(int)", True),
        ("void gemv2T_kernel_val<int, int, double, double, double, 128>(int)", True),
        (NATIVE, False),
        ("multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>, double, double>", False),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16", False),
    ],
)
def test_kernels_in_float64(name, double):
    assert bool(FLOAT64.search(name)) == double


def test_float64_is_advised_and_the_tensor_cores_are_not():
    text = " ".join(advise("gpu_compute", reported(looped("cutlass_d884gemm", NATIVE))))
    assert "Compute in float32: 50 % of the kernel time is float64 arithmetic" in text
    assert "set_float32_matmul_precision" not in text and "autocast" not in text


def test_transposes_between_layouts_name_channels_last():
    transpose = "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float>(int)"
    assert LAYOUT.search(transpose)
    text = " ".join(advise("gpu_memory", reported(looped(GEMM, NATIVE, transpose))))
    assert "1.00 ms per step go to transposes" in text and "channels_last" in text
    assert "channels_last" not in " ".join(advise("gpu_memory", reported(looped(GEMM, NATIVE))))
    assert "torch.cat" not in text


def test_element_wise_work_is_to_be_fused_where_there_is_much_of_it():
    join = (
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4>(int)"
    )
    joining, adding = (
        " ".join(advise("gpu_memory", reported(looped(*kernels))))
        for kernels in ((join, join, join, join, NATIVE), (NATIVE, NATIVE, GEMM))
    )
    assert "torch.cat" in joining and "Fuse element-wise" not in joining
    assert "torch.cat" not in adding and "Fuse element-wise" in adding


@pytest.mark.parametrize(
    ("loader", "said"),
    [("_SingleProcessDataLoaderIter", "inside the training process"), ("_Multi", "do not keep up")],
)
def test_a_starved_loaders_first_advice_is_workers(loader, said):
    loader = loader if loader.endswith("Iter") else f"{loader}ProcessingDataLoaderIter"
    program = Program()
    for number in range(6):
        begin = program.host
        program.work(8 * MS)
        program.build.range(
            begin, program.host, f"enumerate(DataLoader)#{loader}.__next__", domain=None
        )
        program.launch(100 * US, 10, name=NATIVE)
        program.build.range(begin, program.host, f"ProfilerStep#{number}", domain=None)
    report = reported(program, "kineto")
    assert report.bottleneck.verdict == "data" and said in report.bottleneck.next[0]
    assert "num_workers" in report.bottleneck.next[0]
