"""kernels=fused: refused in one line where it cannot run, and proved by the kernels' names."""

import sys
from dataclasses import replace
from importlib import import_module

import pytest
import torch

from configs.model import ModelConfig
from kernels import fused_model
from kernels.fused_model import make_model
from model import MLP
from profiling.analysis.gpu_work.families import family_of
from training.step import own_kernels
from training.step.own_kernels import ROTARY, check_kernels, seen_kernels, try_kernels

CPU = torch.device("cpu")
NAMES = (*own_kernels.NAMES, *fused_model.FusedMLP.own_kernels(ModelConfig()))
FUSED = ModelConfig(kernels="fused", n_layer=1, n_head=1, n_embd=16, block_size=8)
OTHERS = ["nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", "triton_poi_fused__unsafe_view_gelu_6"]


def test_a_cpu_refuses_them_in_one_line(run):
    with pytest.raises(
        ValueError,
        match="^kernels=fused: runs only on CUDA, but this run is on cpu; use kernels=co",
    ) as refusal:
        run(kernels="fused")
    assert "\n" not in str(refusal.value)
    check_kernels(FUSED, torch.device("cuda"))
    check_kernels(ModelConfig(), CPU)


def test_without_triton_they_are_refused_in_one_line(monkeypatch):
    for operation in ("norm", "gelu", "cross_entropy"):
        monkeypatch.delitem(sys.modules, f"kernels.{operation}.in_triton", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ValueError, match="^kernels=fused: does not run here: .*triton") as refusal:
        try_kernels(FUSED, CPU, "bfloat16", 65)
    assert "\n" not in str(refusal.value)
    try_kernels(ModelConfig(), CPU, "bfloat16", 65)


def test_their_names_are_the_proof():
    assert seen_kernels(FUSED, [*OTHERS, *NAMES], 65) == f"{', '.join(NAMES)} ran"
    with pytest.raises(ValueError, match=f"^kernels=fused: {NAMES[-1]} did not run"):
        seen_kernels(FUSED, [*OTHERS, *NAMES[:-1]], 65)
    rotary = replace(FUSED, positions="rotary")
    assert seen_kernels(rotary, [*NAMES, ROTARY], 65) == f"{', '.join(NAMES)}, {ROTARY} ran"
    with pytest.raises(ValueError, match=f"^kernels=fused: {ROTARY} did not run"):
        seen_kernels(rotary, [*NAMES], 65)
    assert "not checked" in seen_kernels(FUSED, None, 65)
    assert seen_kernels(ModelConfig(), OTHERS, 65) is None


def test_the_other_gelu_is_left_to_pytorch_in_words():
    config = replace(FUSED, activation="gelu_tanh")
    others = [name for name in NAMES if "gelu" not in name]
    assert (
        seen_kernels(config, others, 65)
        == f"{', '.join(others)} ran; the MLP's activation is PyTorch's"
    )
    with pytest.raises(ValueError, match=f"^kernels=fused: {others[0]} did not run"):
        seen_kernels(config, others[1:], 65)
    ours, theirs = (make_model(each, 7).transformer.h[0].mlp for each in (FUSED, config))
    assert ours.is_exact and not theirs.is_exact
    x = torch.linspace(-4, 4, 50)
    exact, approximate = MLP(ModelConfig()).gelu(x), MLP(config).gelu(x)
    assert 1e-4 < (exact - approximate).abs().max() < 1e-3


def test_the_embedding_of_many_ids_is_left_to_pytorch_in_words(monkeypatch):
    others = [name for name in NAMES if "embedding" not in name]
    said = f"{', '.join(others)} ran; the embedding of 50,304 ids is PyTorch's"
    assert seen_kernels(FUSED, others, 50_304) == said
    with pytest.raises(ValueError, match="^kernels=fused: forward_embedding_triton, backward_emb"):
        seen_kernels(FUSED, others, 65)
    tables = []
    monkeypatch.setattr(fused_model, "embedding_and_norm", lambda _, t, *rest: tables.append(t))
    for vocab_size in (256, 257):
        body = make_model(FUSED, vocab_size).transformer
        body.embed(torch.zeros(1, 8, dtype=torch.int64), body.ln_f, None)
    assert [len(table) for table in tables] == [256]


def test_the_names_are_those_of_the_kernels():
    pytest.importorskip("triton")
    operations = ("embedding", "norm", "gelu", "cross_entropy", "rotary")
    modules = [import_module(f"kernels.{operation}.in_triton") for operation in operations]
    assert all(any(hasattr(module, name) for module in modules) for name in (*NAMES, ROTARY))


def test_a_report_knows_what_they_are():
    assert [family_of(name) for name in NAMES] == [
        "embedding",
        "embedding",
        "norm",
        "norm",
        "loss",
        "elementwise",
        "elementwise",
    ]
    assert family_of("backward_embedding_rows_triton") == "embedding"
    assert family_of("gradients_of_embedding_triton") == "embedding"
    assert family_of(ROTARY) == "elementwise"
    assert family_of("gradients_of_layer_norm_weights_triton") == "norm"
    assert family_of("decode_attention_triton") == "attention"
    assert family_of("gemm_of_norm_triton") == family_of("linear_triton") == "gemm"
    assert family_of("linear_forward_gelu_triton") == "gemm"
    assert family_of("linear_streamed_triton") == "gemm"
    assert family_of("linear_streamed_backward_gelu_triton") == "gemm"
    assert family_of("backward_causal_attention_triton_gluon") == "attention"
    assert family_of("adamw_squares_triton") == family_of("adamw_rates_triton") == "optimizer"
    assert family_of("adamw_update_triton") == "optimizer"


def test_so_are_those_of_sampling():
    pytest.importorskip("triton")
    from kernels.decoding import in_triton

    assert hasattr(in_triton, "decode_attention_triton")
    assert hasattr(in_triton, "gemm_of_norm_triton")
