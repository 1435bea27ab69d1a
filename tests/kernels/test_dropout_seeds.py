"""The seeds of a step: drawn at once, for this project's kernels alone."""

from dataclasses import replace

import torch

from configs.model import ModelConfig
from kernels.dropout import NO_SEEDS, draw_seeds
from model import GPT

CPU = torch.device("cpu")


def test_each_dropout_has_its_own_and_none_is_copied_by_the_compiler():
    seeds = [seed for block in draw_seeds(5, CPU) for seed in block]
    assert all(seed.shape == (1,) and seed.data_ptr() % 16 == 0 for seed in seeds)
    assert len({int(seed) for seed in seeds}) == 15
    torch.manual_seed(3)
    first, second = draw_seeds(1, CPU)[0], draw_seeds(1, CPU)[0]
    torch.manual_seed(3)
    assert draw_seeds(1, CPU)[0] == first != second


def test_they_are_drawn_in_training_with_dropout_for_who_reads_them():
    small = ModelConfig(n_layer=2, n_head=1, n_embd=16, block_size=4, attention="math", dropout=0.1)
    idx = torch.zeros(1, 4, dtype=torch.int64)
    for keys, drawn in (
        ({}, False),
        ({"attention": "triton"}, True),
        ({"kernels": "fused"}, True),
        ({"kernels": "fused", "dropout": 0.0}, False),
    ):
        body = GPT(replace(small, **keys), 7).transformer
        assert len(body.seeds(idx)) == 2
        assert (body.seeds(idx)[0] is not NO_SEEDS) == drawn, keys
        assert body.eval().seeds(idx)[0] is NO_SEEDS
