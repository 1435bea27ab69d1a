"""Cost of a step: the trainer's own FLOPs, and lower bounds that no kernel beats."""

from dataclasses import replace

import pytest
import torch

from configs.model import ModelConfig
from kernels.fused_model import make_model
from profiling.analysis.gpu_work import roofline
from profiling.analysis.gpu_work.families import FAMILIES, gelu_in_products
from profiling.shared.manifest import CapturedWindow, Manifest
from tests.helpers.reports import CONFIG

MANIFEST = Manifest(1, "nsys", CapturedWindow(), config=CONFIG, vocab_size=65)
TIMES = dict.fromkeys(FAMILIES, 1.0)


def with_config(**keys) -> Manifest:
    return replace(MANIFEST, config=CONFIG | keys)


def roofline_of(backend="flash", times=None, step_ms=5.0, manifest=MANIFEST, device="NVIDIA H200"):
    return roofline.roofline(manifest, device, backend, times or TIMES, step_ms)


@pytest.mark.parametrize("bias", [False, True])
def test_parameters_and_mfu_are_the_trainers(bias):
    with torch.device("meta"):
        model = make_model(
            ModelConfig(n_layer=6, n_head=6, n_embd=384, block_size=256, bias=bias), 65
        )
    work = roofline.work_of(with_config(bias=bias), "NVIDIA H200")
    assert work.model.flops_per_token == model.flops_per_token()
    assert work.model.parameter_count == sum(each.numel() for each in model.parameters())
    tokens = 64 * 256
    expected = model.flops_per_token() * tokens / 5e-3 / 989.4e12
    found = roofline_of(manifest=with_config(bias=bias))
    assert found.mfu == pytest.approx(expected)


def test_matrix_products_cost_what_they_cost():
    """6 M (12 L C^2 + C V), and the scores' products where attention is not fused."""
    tokens, width = 64 * 256, 384
    linear = 6 * tokens * (12 * 6 * width**2 + width * 65)
    products = 12 * 6 * tokens * 256 * width
    work = roofline.work_of(MANIFEST, "NVIDIA H200")
    fused, slow = roofline.costs(work, True), roofline.costs(work, False)
    assert fused["gemm"][0] == linear
    assert slow["gemm"][0] == linear + products
    assert fused["attention"][0] == products / 2
    assert "softmax" not in fused and "attention" not in slow


def test_a_family_is_compared_with_the_longer_of_its_two_floors():
    rows = {row.family: row for row in roofline_of().families}
    gemm = rows["gemm"]
    assert gemm.bound == "compute"
    assert gemm.percent_of_bound == pytest.approx(100 * gemm.flops / 1e-3 / 989.4e12)
    assert gemm.tflops == pytest.approx(gemm.flops / 1e-3 / 1e12)
    norm = rows["norm"]
    assert norm.bound == "memory"
    assert norm.percent_of_bound == pytest.approx(100 * norm.bytes / 1e-3 / 4.8e12)
    assert norm.gbps == pytest.approx(norm.bytes / 1e-3 / 1e9)


def test_our_own_kernels_move_what_they_join():
    """A sum, dropout and norm of 64 x 256 x 384, read and written once: 75 MB, and 101 back."""
    work = roofline.work_of(with_config(kernels="fused"), "NVIDIA H200")
    x, y = 64 * 256 * 384 * 4, 64 * 256 * 384 * 2  # the residual stream, and what products make
    found = roofline.costs(work, True)
    forward, backward = (x + y) + (x + y), (x + y + x) + (x + y)
    assert found["norm"][1] == 12 * (forward + backward)
    assert found["embedding"][1] == 2 * (x + y)
    assert found["optimizer"][1] == work.model.parameter_count * (4 + 16 + 12 + 2)
    assert "dropout" not in found
    shared = roofline.work_of(with_config(kernels="fused", shard_update=True), "NVIDIA H200")
    assert found.keys() - roofline.costs(shared, True).keys() == {"optimizer"}
    narrow = with_config(kernels="fused", residual_dtype="bfloat16", dropout=0.0)
    narrow = roofline.costs(roofline.work_of(narrow, "NVIDIA H200"), True)
    assert narrow["norm"][1] == 12 * (4 * y + 4 * y)  # back: three are read, one is written
    assert narrow["embedding"][1] == 2 * (y + y)
    for kernels in ("fused", "compiled"):  # the formulae are AdamW's
        muon = roofline.work_of(with_config(kernels=kernels, optimizer="muon"), "NVIDIA H200")
        assert "optimizer" not in roofline.costs(muon, True)


def test_gelu_inside_of_products_is_theirs():
    """Written beside its output forward, read backward: 64 x 256 x 1536, twice a layer."""
    work = roofline.work_of(with_config(kernels="fused"), "NVIDIA H200")
    apart, joined = roofline.costs(work, True), roofline.costs(work, True, gelu_in_products=True)
    assert "elementwise" not in joined
    assert joined["gemm"][0] == apart["gemm"][0] + apart["elementwise"][0]
    assert joined["gemm"][1] == apart["gemm"][1] + 6 * 2 * 64 * 256 * 1536 * 2
    assert gelu_in_products(["cutlass_gemm", "linear_forward_gelu_triton"])
    assert gelu_in_products(["linear_streamed_backward_gelu_triton"])
    assert not gelu_in_products(["linear_triton", "linear_streamed_triton", "forward_gelu_triton"])


def test_half_the_time_is_twice_as_close_to_the_bound():
    once, twice = roofline_of(), roofline_of(times=TIMES | {"gemm": 0.5})
    of = [{r.family: r.percent_of_bound for r in each.families} for each in (once, twice)]
    assert of[1]["gemm"] == pytest.approx(2 * of[0]["gemm"])
    assert of[1]["norm"] == of[0]["norm"]


def test_tokens_are_those_of_one_rank():
    manifest = replace(with_config(gradient_accumulation_steps=8), world_size=2)
    assert roofline.work_of(manifest, "NVIDIA H200").tokens == 4 * 64 * 256


def test_only_what_ran_has_a_row():
    rows = roofline_of(times={"gemm": 1.0}).families
    assert [row.family for row in rows] == ["gemm"]
    without = roofline_of(manifest=with_config(dropout=0.0)).families
    assert "dropout" not in {row.family for row in without}


@pytest.mark.parametrize(
    ("manifest", "device", "why"),
    [
        (None, "NVIDIA H200", "no manifest"),
        (MANIFEST, "NVIDIA Unheard-of", "NVIDIA Unheard-of"),
        (MANIFEST, None, "no GPU"),
        (replace(MANIFEST, vocab_size=None), "NVIDIA H200", "vocab_size"),
        (replace(MANIFEST, config=None), "NVIDIA H200", "required field `n_layer`"),
        (with_config(n_head="six"), "NVIDIA H200", "n_head"),
        (with_config(n_layer="6"), "NVIDIA H200", "n_layer"),
        (with_config(n_layer=2**31), "NVIDIA H200", "n_layer"),  # so many matrices fill no memory
        (with_config(batch_size=0), "NVIDIA H200", ">= 1 - at `$.batch_size`"),
        (with_config(batch_size=[None]), "NVIDIA H200", "batch_size"),
        (with_config(grad_clip=-1), "NVIDIA H200", "grad_clip"),
        (with_config(dtype="float8"), "NVIDIA H200", "dtype=float8"),
    ],
)
def test_without_shapes_or_peaks_there_is_none_and_it_is_said(manifest, device, why):
    assert roofline_of(manifest=manifest, device=device) is None
    assert why in roofline.missing_reason(manifest, device)
