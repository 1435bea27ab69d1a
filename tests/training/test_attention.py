"""Attention backends against a reference, and the detection of the one that ran."""

import sys

import pytest
import torch

from configs.model import ModelConfig
from model import attend, attention_in_force
from profiling.shared.kernel_names import fused_attention
from profiling.shared.manifest import AttentionFacts
from training.machine.device import check_attention
from training.step.attention_proof import check_backend, facts_on_cpu, facts_on_cuda, try_attention

CPU = torch.device("cpu")
SHAPE = (2, 3, 48, 16)  # B, H, T, D

FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 64, 4>, true>"
FLASH_BACKWARD = [
    "void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 64>>",
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>",
    "void pytorch_flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<64, 64, 128>>",
]
FLASH_MANGLED = "_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi64ELi128EEEEv"
EFFICIENT = [
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)",
    "fmha_cutlassB_bf16_aligned_128x64_k64_sm80(PyTorchMemEffAttention::AttentionBackward)",
]
CUDNN = [
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_64x128x64_4x1x1",
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_3_64x128x64_1x1x1",
]
TRITON = ["forward_causal_attention_triton", "backward_causal_attention_triton"]
GLUON = [f"{name}_gluon" for name in TRITON]
FLEX = ["triton_tem_fused_flex_attention_0", "triton_tem_fused_flex_attention_backward_3"]
OTHERS = [
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT",
    "void at::native::(anonymous namespace)::softmax_warp_forward<float, c10::BFloat16>",
    "triton_per_fused__softmax_masked_fill_mul_2",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn",
]


def reference(q, k, v):
    """softmax(QK^T / sqrt(D)) V of every head and query by itself, in float64."""
    q, k, v = q.double(), k.double(), v.double()
    rows = []
    for t in range(q.size(2)):
        seen_k, seen_v = k[:, :, : t + 1], v[:, :, : t + 1]
        scores = torch.einsum("bhd,bhsd->bhs", q[:, :, t], seen_k) / q.size(-1) ** 0.5
        weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
        rows.append(torch.einsum("bhs,bhsd->bhd", weights, seen_v))
    return torch.stack(rows, dim=2)


def inputs(dtype: torch.dtype):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(SHAPE, generator=generator).to(dtype).requires_grad_() for _ in range(3)]


def mask() -> torch.Tensor:
    return torch.ones(SHAPE[2], SHAPE[2], dtype=torch.bool).tril()


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("attention", ["slow", "math", "flash", "auto"])
def test_outputs_and_gradients_are_the_reference_s(attention, dtype, tolerance):
    theirs, ours = inputs(dtype), inputs(dtype)
    upstream = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = reference(*theirs)
    expected.backward(upstream)
    out = attend(*ours, attention, 0.0, mask())
    assert out.dtype == dtype and out.shape == SHAPE
    out.backward(upstream.to(dtype))
    pairs = [(out, expected), *((a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))]
    for name, (a, b) in zip(("out", "dq", "dk", "dv"), pairs, strict=True):
        difference = (a.double() - b.double()).norm() / b.double().norm()
        assert difference < tolerance, f"{name}: {difference:.1e}"


@pytest.mark.slow
def test_flex_s_outputs_are_the_reference_s():
    q, k, v = (tensor.detach() for tensor in inputs(torch.float32))
    with torch.no_grad():
        out = attend(q, k, v, "flex", 0.0)
        torch.testing.assert_close(out.double(), reference(q, k, v), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attention", ["slow", "math", "flash", "auto", "flex"])
def test_one_new_token_sees_all_keys(attention):
    q, k, v = (tensor.detach() for tensor in inputs(torch.float32))
    with torch.no_grad():
        last = attend(q[:, :, -1:], k, v, attention, 0.0, mask()[-1:])
        torch.testing.assert_close(
            last.double(), reference(q, k, v)[:, :, -1:], rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("attention", ["slow", "math", "flash", "auto"])
def test_dropout_keeps_the_mean(attention):
    """Weights are dropped one by one, and the rest scaled up: over many draws the same output."""
    q, k, _ = inputs(torch.float32)
    v = torch.ones(SHAPE)  # so that without dropout every output is 1
    torch.manual_seed(0)
    with torch.no_grad():
        draws = torch.stack([attend(q, k, v, attention, 0.5, mask()) for _ in range(40)])
    assert draws.std() > 0.2
    assert draws.mean().item() == pytest.approx(1.0, abs=0.02)
    assert set(draws[:, :, :, 0].unique().tolist()) == {0.0, 2.0}  # one key: dropped, or doubled


@pytest.mark.parametrize(
    "attention, device, dropout, expected",
    [
        ("flash", "cpu", 0.1, "math"),
        ("flash", "cpu", 0.0, "flash"),
        ("flash", "cuda", 0.1, "flash"),
        ("slow", "cpu", 0.1, "slow"),
        ("auto", "cpu", 0.1, "auto"),
    ],
)
def test_attention_in_force(attention, device, dropout, expected):
    assert attention_in_force(attention, device, dropout) == expected


@pytest.mark.parametrize("attention", ["efficient", "cudnn", "flex"])
def test_what_a_cpu_lacks_is_refused_in_one_line(attention):
    config = ModelConfig(attention=attention, dropout=0.0, n_head=2, n_embd=32, block_size=16)
    with pytest.raises(ValueError, match=rf"^attention={attention}: ") as refusal:
        check_attention(config, CPU, "float32")
        try_attention(config, CPU, "float32")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("attention", ["efficient", "cudnn"])
def test_trying_alone_refuses_it_too(attention):
    config = ModelConfig(attention=attention, dropout=0.0, n_head=2, n_embd=32, block_size=16)
    with pytest.raises(ValueError, match=rf"^attention={attention}: does not run here: .*\S"):
        try_attention(config, CPU, "float32")


def test_without_triton_its_attention_is_refused_in_one_line(monkeypatch):
    monkeypatch.delitem(sys.modules, "kernels.attention.in_triton", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    config = ModelConfig(attention="triton", dropout=0.0, n_head=2, n_embd=32, block_size=16)
    with pytest.raises(
        ValueError, match="^attention=triton: does not run here: .*triton"
    ) as raised:
        try_attention(config, CPU, "float32")
    assert "triton" in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("attention", ["flash", "cudnn", "triton"])
def test_cuda_kernels_without_float32_are_refused(attention):
    config = ModelConfig(attention=attention)
    check_attention(config, torch.device("cuda"), "bfloat16")
    with pytest.raises(
        ValueError, match=f"attention={attention}: .*do not support float32; use dtype="
    ):
        check_attention(config, torch.device("cuda"), "float32")


@pytest.mark.parametrize(
    "attention, dropout, ran",
    [
        ("slow", 0.0, "slow"),
        ("slow", 0.2, "slow"),
        ("math", 0.0, "math"),
        ("flash", 0.0, "flash"),
        ("flash", 0.2, "math"),
        ("auto", 0.0, "flash"),
    ],
)
def test_proof_on_a_cpu(attention, dropout, ran):
    config = ModelConfig(attention=attention, dropout=dropout, n_head=2, n_embd=32, block_size=16)
    proof = facts_on_cpu(config, try_attention(config, CPU, "float32"))
    assert (proof.requested, proof.ran) == (attention, ran)
    assert ("flash_attention_for_cpu" in proof.evidence) == (ran == "flash")


def test_another_operator_than_the_requested_one_is_no_proof():
    flash, math = (
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_attention_math",
    )
    with pytest.raises(ValueError, match="attention=flash: math ran instead of flash"):
        facts_on_cpu(ModelConfig(attention="flash", dropout=0.0), [math, "_softmax"])
    with pytest.raises(ValueError, match="attention=slow: flash ran instead of slow"):
        facts_on_cpu(ModelConfig(attention="slow"), ["mm", flash])


@pytest.mark.parametrize(
    "kernels, backend",
    [
        ([FLASH, *FLASH_BACKWARD], "flash"),
        ([FLASH_MANGLED], "flash"),
        (EFFICIENT, "efficient"),
        (CUDNN, "cudnn"),
        (FLEX, "flex"),
        (TRITON, "triton"),
        (GLUON, "triton"),
    ],
)
def test_a_fused_kernel_is_known_by_its_name(kernels, backend):
    assert fused_attention([*OTHERS, *kernels, *kernels]) == {backend: kernels}
    config = ModelConfig(attention=backend, dropout=0.0)
    proof = facts_on_cuda(config, [*OTHERS, *kernels])
    assert proof.ran == backend and "kernels: " in proof.evidence
    assert facts_on_cuda(ModelConfig(attention="auto"), [*OTHERS, *kernels]).ran == backend
    for other in {"slow", "flash", "efficient", "cudnn", "math", "flex", "triton"} - {backend}:
        with pytest.raises(ValueError, match=rf"attention={other}: {backend} ran instead"):
            facts_on_cuda(ModelConfig(attention=other, dropout=0.0), [*OTHERS, *kernels])


def test_no_fused_kernel_is_slow_or_math():
    assert fused_attention(OTHERS) == {}
    assert facts_on_cuda(ModelConfig(attention="slow"), OTHERS).ran == "slow"
    assert facts_on_cuda(ModelConfig(attention="math"), OTHERS).ran == "math"
    with pytest.raises(ValueError, match="attention=flash: math ran instead of flash"):
        facts_on_cuda(ModelConfig(attention="flash"), OTHERS)


def test_two_kinds_of_kernels_are_not_one():
    assert facts_on_cuda(ModelConfig(attention="auto"), [FLASH, *CUDNN]).ran == "flash+cudnn"
    with pytest.raises(ValueError, match=r"attention=flash: flash\+cudnn ran"):
        facts_on_cuda(ModelConfig(attention="flash"), [FLASH, *CUDNN])


def test_unreadable_kernels_prove_nothing_and_say_so():
    proof = facts_on_cuda(ModelConfig(attention="flash"), None)
    assert proof.ran is None and "not checked" in proof.evidence


def test_slow_that_the_compiler_fused_is_refused(monkeypatch):
    from torch._dynamo.utils import counters

    monkeypatch.setitem(counters["inductor"], "fuse_attention", 2)
    with pytest.raises(ValueError, match=r"attention=slow: .*\(2 times\); use compile=false"):
        check_backend(AttentionFacts("slow", "slow", ""), "slow")
    assert check_backend(AttentionFacts("flash", "flash", ""), "flash").ran == "flash"


@pytest.mark.slow
def test_slow_and_flash_learn_the_same(run, losses, tmp_path):
    keys = dict(max_iters=30, eval_interval=30, learning_rate=2e-3)
    slow = losses(run(attention="slow", out_dir=str(tmp_path / "slow"), **keys))
    flash = losses(run(attention="flash", out_dir=str(tmp_path / "flash"), **keys))
    assert slow.keys() == flash.keys() == set(range(31))
    for iteration, row in slow.items():
        assert row == pytest.approx(flash[iteration], abs=1e-4), iteration
    assert slow[29][0] < slow[0][0] - 0.5  # it did learn
