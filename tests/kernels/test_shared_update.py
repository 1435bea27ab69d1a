"""Ranks that share the update alone come to the weights that each would make by itself."""

import pytest

from tests.helpers.kernel_programs import needs_triton, run

pytestmark = [needs_triton, pytest.mark.slow]

# forked, so that triton is imported once
RANKS = r"""
import multiprocessing
import sys
import tempfile
import torch
import torch.distributed as dist
import kernels.adamw_triton
from configs.schema import Config
from model import GPT
from training.distributed import Ranks
from training.layout import laid_out
from training.optimizer import adamw
from training.shared_update import SharedAdamW
from training.step import Step

kernels.adamw_triton.BLOCK = 256  # several to a part
keys = dict(n_layer=1, n_head=2, n_embd=32, block_size=8, dropout=0.0, attention="math", bias=False)
keys |= dict(compile=False, kernels="fused", dtype="bfloat16", grad_clip=0.5)
V, ULP = 17, dict(rtol=2**-7, atol=1e-30)  # the interpreter cuts digits off


def trained(ranks, shard_update, spoilt=None):
    torch.manual_seed(0)
    config = Config(
        **keys, gradient_accumulation_steps=2 * ranks.world_size, shard_update=shard_update,
        device="cpu", cuda_graphs="false", all_reduce="collective", parallel="ddp",
    )
    config.bucket_mb = 0.01
    model = GPT(config, V)
    layout = laid_out(model, config, ranks)
    optimizer = adamw(model, config, ranks.device, shared=layout.shared)
    step = Step(model, optimizer, config, ranks, layout=layout)
    g = torch.Generator().manual_seed(ranks.rank)
    for iteration in range(3):
        for _ in range(2):
            x, y = torch.randint(V, (2, 2, 8), generator=g)
            bad = iteration == spoilt and ranks.rank == 1
            step.backward(step.forward(x, y) * (float("nan") if bad else 1.0))
        step.average_gradients()
        step.update(1e-2)
    return model, step, layout


def everywhere(tensor, ranks):
    mine = tensor.detach().float().contiguous()
    each = [torch.empty_like(mine) for _ in range(ranks.world_size)]
    dist.all_gather(each, mine)
    return each


def rank_of(rank, world_size, path):
    store = dist.FileStore(path, world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    ranks = Ranks(rank, world_size, torch.device("cpu"))
    expected, by_all, _ = trained(ranks, False)
    model, step, layout = trained(ranks, True)
    optimizer, shared = step.optimizer, layout.shared
    assert isinstance(optimizer, SharedAdamW) and step.skipped == 0

    # a part of what is in the products of blocks, all of anything else
    inside = sum(p.numel() for p in shared.layers)
    mine = sum(part.size for part in shared.parts.values())
    assert len(shared.buckets) >= 3
    assert {*shared.parts} <= {*shared.layers}
    assert mine == sum(len(b.copies) for b in shared.buckets.values()) / world_size
    assert 0.6 * inside / world_size < mine <= inside / world_size, (mine, inside)

    # all have the same copies, those of the weights' owners
    for layer in shared.layers.values():
        for copy in everywhere(layer.copy, ranks):
            assert torch.equal(copy, layer.copy.float())
    stale = [p for p in shared.parts if not torch.allclose(p, shared.layers[p].copy.float(), **ULP)]
    assert len(stale) > len(shared.parts) / 3, len(stale)
    optimizer.make_whole()
    for p, layer in shared.layers.items():
        torch.testing.assert_close(p, layer.copy.float(), **ULP)
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        difference = (ours - theirs).abs()  # of a copy that is rounded the other way; 0.02 of most
        assert difference.max() < 5e-4 and difference.mean() < 5e-6, difference
    for ours, theirs in zip(optimizer.numbered(), by_all.optimizer.numbered(), strict=True):
        for name, moment in by_all.optimizer.state[theirs].items():
            torch.testing.assert_close(optimizer.state[ours][name], moment, rtol=1e-2, atol=1e-3)

    # what one rank alone has spoilt, none updates
    model, step, layout = trained(ranks, True, spoilt=2)
    assert step.skipped == 1 and all(torch.isfinite(p).all() for p in model.parameters())
    dist.destroy_process_group()


if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [fork.Process(target=rank_of, args=(n, 2, folder + "/store")) for n in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        assert all(rank.exitcode == 0 for rank in ranks)
    print("right")
"""


def test_two_ranks_update_half_of_the_weights_each():
    run(RANKS, "cpu")
