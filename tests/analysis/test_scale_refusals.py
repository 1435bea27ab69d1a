"""Refusals of `scale`, in cases that the trainer would refuse."""

from dataclasses import replace

import pytest

from profiling.analysis.scale.scale import Request, checked_counts
from tests.helpers.scale import FUSED, scale_capture


def test_counts_fill_their_nodes():
    assert checked_counts((16, 2, 2, 1), 8) == (1, 2, 16)
    with pytest.raises(ValueError, match="--gpus 12: must be a multiple of --gpus-per-node 8"):
        checked_counts((12,), 8)


@pytest.mark.parametrize(
    ("changes", "micro_steps", "why"),
    [
        ({"compile": True}, 1, "needs compile=false, but this run has compile=true"),
        (
            {},
            3,
            "needs gradient_accumulation_steps=1, but this run has gradient_accumulation_steps=3",
        ),
    ],
)
def test_16_bits_are_refused_where_the_trainer_refuses_them(changes, micro_steps, why):
    asked = Request((1, 2), 8, micro_steps=micro_steps, shard_update=True)
    assert scale_capture(asked, **(FUSED | changes))
    with pytest.raises(ValueError, match=f"^--reduce-dtype bfloat16: {why}$"):
        scale_capture(replace(asked, reduce_dtype="bfloat16"), **(FUSED | changes))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kernels": "compiled"}, "needs kernels=fused, but this run has kernels=compiled"),
        ({"optimizer": "muon"}, "needs optimizer=adamw, but this run has optimizer=muon"),
        ({"dtype": "float32"}, "needs dtype=bfloat16, but this run has dtype=float32"),
        (
            {"bucket_mb": 1000.0},
            "not possible for 2 GPUs: no bucket of 1000 MiB contains only blocks",
        ),
    ],
)
def test_a_shared_update_is_refused_where_the_trainer_refuses_it(changes, why):
    asked = Request((1, 2), 8, shard_update=True)
    with pytest.raises(ValueError, match=f"^--shard-update: {why}"):
        scale_capture(asked, **(FUSED | changes))


def test_a_number_of_gpus_that_has_no_equal_parts_is_refused():
    with pytest.raises(ValueError, match="not possible for 7 GPUs: .* a multiple of 56 weights"):
        scale_capture(Request((2, 7), 8, shard_update=True), **FUSED)


def test_ways_of_sharing_that_the_optimizer_does_not_support_are_left_out():
    predicted = scale_capture(Request((1, 2), 8), optimizer="muon")
    assert {row.mode for row in predicted.predictions} == {"one", "ddp"}
    assert any("do not support optimizer=muon" in line for line in predicted.assumed)
    with pytest.raises(ValueError, match="^--parallel fsdp: does not support optimizer=muon"):
        scale_capture(Request((1, 2), 8, modes=("fsdp",)), optimizer="muon")
