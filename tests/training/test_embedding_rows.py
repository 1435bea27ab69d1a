"""Rows of the embedding in the tied gradient: when they are exchanged, with equal training."""

import pytest
import torch

from tests.helpers.checkpoints import open_whole
from training.machine.parallel import rows_travel


def test_rows_travel_where_tokens_are_fewer_than_ids(config):
    def travel(ranks, vocab_size=50257, **keys):
        keys = dict(batch_size=12, block_size=1024, gradient_accumulation_steps=ranks) | keys
        return rows_travel(config(**keys), ranks, vocab_size)

    assert travel(2) and travel(4) and not travel(8)
    assert travel(8, batch_size=6) and not travel(2, vocab_size=65)
    assert not travel(2, gradient_accumulation_steps=4)  # one exchange of several micro-steps
    assert not travel(2, compile=True, compile_scope="model")
    assert travel(2, compile=True, compile_scope="block")


@pytest.mark.slow
def test_ranks_that_exchange_rows_train_as_one_that_accumulates(together, run, losses, tmp_path):
    keys = dict(gradient_accumulation_steps=2, batch_size=1, block_size=16, max_iters=8)
    keys |= dict(always_save_checkpoint=True, eval_batch_size=1)
    alone = run(out_dir=str(tmp_path / "alone"), **keys)
    out_dir, _ = together(2, **keys)
    ours, theirs = losses(out_dir), losses(alone)
    for iteration in range(9):
        assert ours[iteration] == pytest.approx(theirs[iteration], abs=2e-5), iteration
    table, expected = (
        open_whole(folder).weights["transformer.wte.weight"] for folder in (out_dir, alone)
    )
    torch.testing.assert_close(table, expected, rtol=1e-3, atol=2e-5)
