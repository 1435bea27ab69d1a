"""Sizes of a model, of its buckets and of the embedding's rows, as in the trainer."""

from dataclasses import replace

import pytest

from configs.schema import Config
from configs.sharing import decide_travel
from kernels.fused_model import make_model
from profiling.analysis.scale.model_sizes import (
    EmbeddingRows,
    Keys,
    buckets,
    rows_of,
    shared_buckets,
    sizes_of,
)
from training.machine.model_description import describe
from training.machine.parallel import rows_travel
from training.optimizers.shared_update import shared_layers
from validation.predicted import GPT2_124M, of_124m


@pytest.mark.parametrize(
    "more", [{}, {"bias": True}, {"positions": "rotary"}, {"n_layer": 5, "n_embd": 48}]
)
def test_sizes_are_those_of_the_model(more):
    config = Config(**{"n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": 16, **more})
    model = make_model(config, 65)
    sizes = sizes_of(describe(config, 65), "bfloat16")
    assert sizes.parameters == sum(each.numel() for each in model.parameters())
    tensors = sorted(each.numel() for each in model.transformer.h[0].parameters())
    assert sorted(sizes.block) == tensors
    assert sizes.travel == decide_travel(config.n_layer, 2 * sum(tensors), None)
    shared = sum(weight.numel() for weight in shared_layers(model))
    assert sizes.blocks * sum(sizes.matrices) == shared


def test_a_bucket_closes_with_the_tensor_that_fills_it():
    mebi = 2**18  # parameters of 4 bytes
    assert buckets([mebi, mebi, 3 * mebi, mebi], 2) == [
        (2 * 2**20, 1),
        (3 * 2**20, 2),
        (2**20, 3),
    ]
    assert buckets([mebi, mebi], 1000) == [(2 * 2**20, 1)]


def test_the_last_bucket_has_the_embedding_that_is_the_head_too():
    sizes = sizes_of(of_124m(50304), "bfloat16")
    size, index = buckets(sizes.tensors(rows=False), 25.0)[-1]
    assert 4 * 50304 * 768 <= size < 4 * 50304 * 768 + 26 * 2**20
    assert index == len(sizes.head) + 12 * len(sizes.block) + len(sizes.positions)


@pytest.mark.parametrize("scope", ["model", "block"])
@pytest.mark.parametrize("batch_size", [1, 12, 50])
def test_rows_travel_where_the_trainer_sends_them(scope, batch_size):
    for gpus in (2, 4, 8):
        config = Config(compile_scope=scope, batch_size=batch_size, block_size=1024)
        config = replace(config, gradient_accumulation_steps=gpus)
        keys = Keys(1024, batch_size, compile=config.compile, compile_scope=scope)
        rows = rows_of(keys, of_124m(50257))
        travel = rows is not None and rows.travel(gpus)
        assert travel == rows_travel(config, gpus, 50257), gpus


def test_rows_are_of_the_residual_streams_dtype_without_dropout():
    keys = Keys(1024, 12, residual_dtype="bfloat16")
    dropped, plain = replace(keys, dropout=0.1), replace(keys, residual_dtype="float32")
    for each, number_bytes in ((keys, 2), (dropped, 4), (plain, 4)):
        assert rows_of(each, of_124m(50257)) == EmbeddingRows(12 * 1024, 50257, 768, number_bytes)


def test_ranks_share_buckets_of_blocks_alone_and_of_one_length():
    sizes = sizes_of(of_124m(50_257), "bfloat16").matrices_only
    block = 12 * 768**2
    for rows, gpus in ((True, 2), (True, 4), (False, 8), (False, 1024)):
        assert [*shared_buckets(sizes, 25.0, rows, gpus).values()] == [block] * 12
    assert shared_buckets(sizes, 25.0, True, 5) == {}
    # the table is in one bucket with matrices that come before it
    assert sum(shared_buckets(sizes, 40.0, False, 2).values()) < 12 * block
    assert sum(shared_buckets(sizes, 40.0, True, 2).values()) == 12 * block
    assert shared_buckets(sizes, 1000.0, True, 2) == {}


@pytest.mark.parametrize(
    "changes, there",
    [
        ({}, True),
        ({"kernels": "compiled"}, False),
        ({"compile": True}, False),
        ({"dtype": "float32"}, False),
    ],
    ids=str,
)
def test_products_write_into_buckets_uncompiled_and_in_16_bits(changes, there):
    keys = replace(GPT2_124M, kernels="fused", compile=False)
    assert replace(keys, **changes).gradients_in_buckets == there
