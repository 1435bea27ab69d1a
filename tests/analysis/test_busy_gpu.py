"""Verdicts on a busy GPU: copies within it, and kernels that only their program names."""

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.records import Bottleneck
from profiling.analysis.summary import summarize
from profiling.analysis.verdict.gpu import OPERAND_BYTES
from profiling.timeline.trace import COPY, MEMSET
from tests.helpers.programs import CALL_NS, GEMM, MS, TO_DEVICE, US, Program

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
WITHIN = "[CUDA memcpy Device-to-Device]"
TRITON = "cuLaunchKernelEx"


def diagnosed(make_step) -> Bottleneck:
    program = Program()
    for _ in range(8):
        with program.step(), program.phase("forward"):
            make_step(program)
    return summarize(Analysis(program.trace())).bottleneck


def copied(program: Program, name: str, ns: int, kind: int = COPY) -> None:
    call = program.call(CALL_NS, "cudaMemcpyAsync")
    program.execute(ns, name, call, kind=kind, bytes=1 << 28)


def advancing(copy: str, kind: int = COPY, kernel_ns: int = 200 * US, name: str = ADD):
    def step(program: Program) -> None:
        for _ in range(16):
            program.launch(kernel_ns, name=name)
            copied(program, copy, 300 * US, kind)

    return step


@pytest.mark.parametrize(
    ("copy", "kind", "verdict", "gains"),
    [
        (WITHIN, COPY, "gpu_memory", {"copies": 0.0, "gpu_memory": 8.0}),
        ("[CUDA memset]", MEMSET, "gpu_memory", {"copies": 0.0, "gpu_memory": 8.0}),
        (TO_DEVICE, COPY, "copies", {"copies": 4.8, "gpu_memory": 0.0}),
    ],
)
def test_copies_within_the_gpu_are_its_memory_traffic(copy, kind, verdict, gains):
    found = diagnosed(advancing(copy, kind))
    assert found.verdict == verdict
    ranked = {row.verdict: row for row in found.ranked}
    for name, ms in gains.items():
        assert ranked[name].recoverable_ms_per_step == pytest.approx(ms)
    told = any("Copies within the GPU, and memsets, take 4.80 ms" in row for row in found.evidence)
    assert told == (verdict == "gpu_memory")
    if told:
        assert ranked["copies"].why_none == (
            "none from or to the host ran, or kernels hid all of it"
        )
        assert "copy, 4.80 of 8." in found.most_to_gain


def test_copies_within_the_gpu_do_not_make_products_a_matter_of_bytes():
    assert diagnosed(advancing(WITHIN, name=GEMM)).verdict == "gpu_memory"
    found = diagnosed(advancing(WITHIN, name=GEMM, kernel_ns=400 * US))
    assert found.verdict == "gpu_compute"


def test_copies_of_the_host_are_counted_without_those_within_the_gpu():
    def step(program: Program) -> None:
        program.launch(2 * MS, name=ADD)
        copied(program, WITHIN, 1 * MS)
        program.copy(3 * MS)

    found = diagnosed(step)
    assert found.verdict == "copies"
    assert found.most_to_gain.startswith("copies, up to 3.00 of 6.")
    assert not any("Device-to-Device" in line for line in found.evidence)


def test_small_kernels_beside_long_copies_within_the_gpu_are_not_its_latency():
    assert diagnosed(advancing(WITHIN, kernel_ns=4 * US)).verdict == "gpu_memory"


def own_kernels(name: str, call: str, shared_bytes: int, of_call: bool = True):
    def step(program: Program) -> None:
        for i in range(6):
            row = program.call(CALL_NS, call) if of_call or i else -1
            program.execute(500 * US, name, row, shared_bytes=shared_bytes)

    return step


@pytest.mark.parametrize(
    ("name", "call", "shared_bytes", "verdict"),
    [
        ("norm_row", TRITON, 16, "gpu_memory"),
        ("norm_row", TRITON, 0, "gpu_memory"),
        ("norm_row", TRITON, OPERAND_BYTES, "gpu"),  # it may hold a product
        ("norm_row", TRITON, -1, "gpu"),  # the tool does not say
        ("norm_row", "cuLaunchKernel", 16, "gpu"),  # CUDA C++ may compute in registers
        ("norm_row", "cudaLaunchKernel", 16, "gpu"),
        ("void norm_row<float>(float*)", TRITON, 16, "gpu"),
        ("my_matmul", TRITON, 16, "gpu_compute"),
    ],
)
def test_a_kernel_of_triton_without_room_for_a_product_moves_bytes(
    name, call, shared_bytes, verdict
):
    found = diagnosed(own_kernels(name, call, shared_bytes))
    assert found.verdict == verdict
    told = any("too little shared memory for a matrix product" in row for row in found.evidence)
    assert told == (verdict == "gpu_memory")


def test_kernels_launched_before_the_capture_are_those_of_the_same_name():
    found = diagnosed(own_kernels("norm_row", TRITON, 16, of_call=False))
    assert found.verdict == "gpu_memory"
    assert any("take 3.00 ms and have too little" in line for line in found.evidence)
