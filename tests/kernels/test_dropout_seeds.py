"""Dropout seeds of a step: drawn at once, for this project's kernels alone."""

from dataclasses import replace

import torch

from configs.model import ModelConfig
from kernels.dropout import NO_SEEDS, draw_seeds
from kernels.fused_model import make_model
from model import Transformer

CPU = torch.device("cpu")


def test_each_dropout_has_its_own_and_none_is_copied_by_the_compiler():
    first, blocks = draw_seeds(5, CPU)
    seeds = [first, *(seed for block in blocks for seed in block)]
    assert all(seed.shape == (1,) and seed.data_ptr() % 16 == 0 for seed in seeds)
    assert len({int(seed) for seed in seeds}) == 16
    torch.manual_seed(3)
    first, second = draw_seeds(1, CPU), draw_seeds(1, CPU)
    torch.manual_seed(3)
    assert draw_seeds(1, CPU) == first != second


def test_they_are_drawn_in_training_with_dropout_for_who_reads_them():
    small = ModelConfig(n_layer=2, n_head=1, n_embd=16, block_size=4, attention="math", dropout=0.1)
    idx = torch.zeros(1, 4, dtype=torch.int64)
    assert type(make_model(small, 7).transformer) is Transformer  # PyTorch draws its dropout
    for keys, drawn in (
        ({"attention": "triton"}, True),
        ({"kernels": "fused"}, True),
        ({"kernels": "fused", "dropout": 0.0}, False),
    ):
        body = make_model(replace(small, **keys), 7).transformer
        seed, (first, _) = body.seeds(idx)
        assert (seed is not None) == (first is not NO_SEEDS) == drawn, keys
        assert body.eval().seeds(idx) == (None, [NO_SEEDS] * 2)
