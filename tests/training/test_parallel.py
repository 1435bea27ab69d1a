"""Ranks that share a run: decisions and refusals, and that each way trains as one process does."""

import json
from types import SimpleNamespace

import pytest
import torch

from configs.sharing import decide_travel
from tests.helpers.checkpoints import open_whole
from tests.helpers.ranks import output_of_ranks
from tests.helpers.steps import batch, iterate, make_step
from training.machine.device import resolve
from training.machine.parallel import decide_parallel, shard_count
from training.ranks.distributed import Ranks

CPU = torch.device("cpu")


def test_auto_is_ddp_and_one_rank_trains_alone(config):
    asked = config()
    assert decide_parallel(asked, 1).value == decide_parallel(asked, 8).value == "ddp"
    assert decide_parallel(asked, 1).reason != decide_parallel(asked, 8).reason
    assert decide_parallel(config(parallel="ddp"), 1) == ("ddp", "")  # of a run that had more ranks


def test_shards_are_all_ranks_or_those_of_a_group_or_of_a_host(config, monkeypatch):
    assert shard_count(config(parallel="ddp"), 8) == 1
    assert shard_count(config(parallel="fsdp"), 8) == 8
    assert shard_count(config(parallel="hsdp", shard_ranks=2), 8) == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert shard_count(config(parallel="hsdp"), 8) == 4


MIB = 1 << 20


@pytest.mark.parametrize(
    "blocks, block_mib, stretches, kept_on_gib",
    [
        (12, 13.52, 2, (8, 16, 24, 80, None)),  # 124M in 16 bits
        (24, 24.03, 8, (16, 24, 80, None)),  # gpt2_medium
        (36, 37.54, 12, (24, 80)),  # gpt2_large
        (48, 58.64, 12, (80,)),  # gpt2_xl
        (32, 400, 32, ()),  # blocks that are large enough by themselves
        (6, 0.1, 1, (8, 16, 24, 80, None)),
        (1, 2000, 1, (80,)),
    ],
)
def test_small_blocks_travel_together_and_stay(blocks, block_mib, stretches, kept_on_gib):
    """Weights stay on a GPU with enough memory. None is a run without GPUs."""
    plans = {
        gib: decide_travel(blocks, int(block_mib * MIB), gib and gib << 30)
        for gib in (8, 16, 24, 80, None)
    }
    assert {len(plan.stretches) for plan in plans.values()} == {stretches}
    assert tuple(gib for gib, plan in plans.items() if plan.kept) == kept_on_gib


def test_a_bound_of_what_stays_is_a_sixteenth_of_the_memory():
    assert decide_travel(4, MIB, 64 * MIB).kept and not decide_travel(4, MIB, 64 * MIB - 1).kept


def test_the_smallest_gpu_of_the_ranks_counts(monkeypatch):
    from training.step.shards import smallest_gpu_bytes  # DTensor takes a second to import

    gpus = {0: 80 << 30, 1: 24 << 30}
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: SimpleNamespace(total_memory=gpus[device.index]),
    )
    monkeypatch.setattr(Ranks, "gather_objects", lambda ranks, mine: [80 << 30, mine, 24 << 30])
    for rank in gpus:
        assert smallest_gpu_bytes(Ranks(rank, 3, torch.device("cuda", rank))) == 24 << 30
    assert smallest_gpu_bytes(Ranks(0, 3, CPU)) is None


def test_stretches_are_of_one_length_in_order():
    def stretches(blocks: int, block_mib: int) -> list[list[int]]:
        return [[*stretch] for stretch in decide_travel(blocks, block_mib * MIB, None).stretches]

    assert stretches(7, 32) == [[0, 1], [2, 3], [4, 5, 6]]
    assert stretches(4, 1) == [[0, 1, 2, 3]] and stretches(2, 64) == [[0], [1]]


@pytest.mark.parametrize(
    "ranks, keys, message",
    [
        (1, dict(parallel="fsdp"), "^parallel=fsdp: needs several ranks, but there is one"),
        (1, dict(parallel="hsdp", shard_ranks=2), "^parallel=hsdp: needs several ranks"),
        (4, dict(shard_ranks=2), "^shard_ranks=2: only works with parallel=hsdp, .* parallel=auto"),
        (4, dict(parallel="hsdp", shard_ranks=3), "^shard_ranks=3: does not divide the 4 ranks"),
        (
            4,
            dict(parallel="hsdp", shard_ranks=4),
            "^shard_ranks=4: this is all ranks .* parallel=fsdp",
        ),
        (4, dict(parallel="hsdp", shard_ranks=1), "^shard_ranks=1: .* parallel=ddp"),
        (4, dict(parallel="hsdp"), "^parallel=hsdp: shards among the 4 ranks of a host, "),
        (
            4,
            dict(parallel="fsdp", optimizer="muon"),
            "^optimizer=muon: does not work with parallel=fsdp",
        ),
        (
            4,
            dict(parallel="fsdp", kernels="fused"),
            "^kernels=fused: does not work with parallel=fsdp",
        ),
        (
            4,
            dict(parallel="fsdp", compile=True, compile_scope="model"),
            "^compile_scope=model: does not work with parallel=fsdp",
        ),
        (
            4,
            dict(parallel="fsdp", compile=None, compile_scope="model"),
            "^compile_scope=model: does not work with parallel=fsdp",
        ),
        (
            4,
            dict(parallel="fsdp", device="auto", cuda_graphs="true"),
            "^cuda_graphs=true: does not work with parallel=fsdp",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(config, monkeypatch, ranks, keys, message):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    with pytest.raises(ValueError, match=message):
        decide_parallel(config(**keys), ranks)


@pytest.mark.parametrize(
    "keys", [dict(parallel="fsdp"), dict(activation_checkpointing="full")], ids=str
)
def test_graphs_are_left_out_where_weights_or_activations_come_and_go(config, monkeypatch, keys):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    gpu = torch.device("cuda", 0)
    settled = resolve(config(device="auto", dtype="auto", compile=True, **keys), gpu, 2)
    assert (settled.cuda_graphs, settled.compile_scope) == ("false", "block")
    with pytest.raises(ValueError, match="^cuda_graphs=true: (does )?not (work )?with "):
        resolve(config(device="auto", cuda_graphs="true", **keys), gpu, 2)


def kept_bytes(step, x, y) -> int:
    """Counts the bytes of what forward keeps for backward."""
    sizes = {}

    def pack(tensor):
        sizes[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step.forward(x, y)
    step.discard()
    return sum(sizes.values())


@pytest.mark.parametrize("mode", ["selective", "full"])
@pytest.mark.parametrize("keys", [{}, dict(dropout=0.3), dict(attention="slow")], ids=str)
def test_what_is_computed_again_is_the_same(config, mode, keys):
    plain = make_step(config, **keys)
    again = make_step(config, activation_checkpointing=mode, **keys)
    assert plain.parameters[0].shape == again.parameters[0].shape
    for seed in range(3):
        torch.manual_seed(seed)  # of dropout
        expected = iterate(plain, *batch(4, seed))
        torch.manual_seed(seed)
        assert iterate(again, *batch(4, seed)) == pytest.approx(expected, abs=1e-6)
    for a, b in zip(plain.parameters, again.parameters, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


def test_full_keeps_less_than_none(config):
    kept = {
        mode: kept_bytes(make_step(config, activation_checkpointing=mode), *batch(4))
        for mode in ("none", "full")
    }
    assert kept["full"] < 0.6 * kept["none"]


def states(out_dir):
    """Weights, and AdamW's state, of its checkpoint."""
    saved = open_whole(out_dir)
    return saved.weights, saved.optimizer


def check_like(losses, found, expected, at, within=2e-5):
    """`within`: what rounding has come to; each iteration makes more of it."""
    ours, theirs = losses(found), losses(expected)
    assert ours.keys() == theirs.keys() == set(range(at + 1))
    for iteration, row in ours.items():
        assert row == pytest.approx(theirs[iteration], abs=within), iteration
    for ours, theirs in zip(states(found), states(expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=within)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks_train_as_one_that_accumulates_and_go_on_as_one(
    together, run, losses, rows, tmp_path, parallel
):
    keys = dict(gradient_accumulation_steps=4, always_save_checkpoint=True, eval_batch_size=1)
    alone = run(out_dir=str(tmp_path / "alone"), max_iters=8, **keys)
    out_dir, said = together(2, parallel=parallel, max_iters=8, **keys)
    assert "returned a view tensor" not in said
    check_like(losses, out_dir, alone, 8)
    waited = ["time/wait_ms" in row for row in rows(out_dir).values() if "time/step_ms" in row]
    assert any(waited) == (parallel == "ddp")  # of fsdp there is no one place of waiting
    for folder in (out_dir, alone):
        run(out_dir=str(folder), max_iters=12, init_from="resume", **keys)
    check_like(losses, out_dir, alone, 12, within=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "ranks, sharing",
    [
        (4, dict(parallel="ddp", bucket_mb=1, activation_checkpointing="full")),
        (4, dict(parallel="fsdp", activation_checkpointing="selective")),
        (4, dict(parallel="hsdp", shard_ranks=2)),
    ],
    ids=["ddp", "fsdp", "hsdp"],
)
@pytest.mark.timeout(400)
def test_more_ranks_train_as_one_and_two_of_another_kind_go_on(
    together, run, losses, tmp_path, ranks, sharing
):
    keys = dict(gradient_accumulation_steps=16, always_save_checkpoint=True, batch_size=2)
    alone = run(out_dir=str(tmp_path / "alone"), max_iters=8, **keys)
    out_dir, _ = together(ranks, max_iters=8, **keys, **sharing)
    check_like(losses, out_dir, alone, 8)
    other = "ddp" if sharing["parallel"] == "fsdp" else "fsdp"
    _, output = together(2, max_iters=12, init_from="resume", parallel=other, **keys)
    assert f"ranks {ranks} -> 2" in output
    run(out_dir=str(alone), max_iters=12, init_from="resume", **keys)
    check_like(losses, out_dir, alone, 12, within=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", [dict(parallel="ddp"), dict(parallel="fsdp")], ids=str)
def test_compiled_ranks_train_as_one_does_uncompiled(together, run, losses, tmp_path, sharing):
    keys = dict(gradient_accumulation_steps=2, always_save_checkpoint=True, max_iters=4)
    alone = run(out_dir=str(tmp_path / "alone"), **keys)
    out_dir, _ = together(2, compile=True, **keys, **sharing)
    check_like(losses, out_dir, alone, 4)
    summary = json.loads((out_dir / "summary.json").read_text())
    assert summary["compile/graphs"] == 3 and summary["compile/graph_breaks"] == 0


# each rank gives a part of a batch; in the second iteration the loss of rank 1 alone is not finite
NOT_FINITE = """
import os, sys, torch
from configs.schema import Config
from kernels.fused_model import make_model
from configs import sharing
from training.ranks.distributed import join_run
from training.step.layout import make_layout
from training.optimizers.kinds import make_optimizer
from training.step.step import Step

def trained(config, ranks):
    torch.manual_seed(0)
    model = make_model(config, 13)
    layout = make_layout(model, config, ranks)
    step = Step(model, make_optimizer(model, config, ranks.device), config, ranks, layout=layout)
    whole = [lambda p: p, lambda p: p.full_tensor()][hasattr(step.parameters[0], "full_tensor")]
    for iteration in range(3):
        generator = torch.Generator().manual_seed(10 * iteration + ranks.rank)
        x, y = torch.randint(13, (2, 4, 16), generator=generator)
        bad = iteration == 1 and ranks.rank == 1
        step.backward(step.forward(x, y) * (float("inf") if bad else 1.0))
        step.average_gradients()
        step.update(1e-2)
    scale = step.scaler.get_scale() if step.scaler.is_enabled() else step.optimizer.skipped.item()
    with torch.no_grad():  # as an evaluation does, behind which small weights stay gathered
        model(x)
    if config.parallel == "fsdp":
        saved = model.state_dict(keep_vars=True)  # as a checkpoint takes it
        assert all(hasattr(each, "full_tensor") for each in saved.values()), "not the share"
    return torch.cat([whole(p.detach()).flatten() for p in step.parameters]), scale

with join_run("cpu") as ranks:
    ways = [(dtype, clip) for dtype in ("float32", "float16") for clip in (1.0, 0.0)]
    for dtype, grad_clip in ways:
        found = []
        for mode, together in (("ddp", 0), ("fsdp", 1 << 20), ("fsdp", 1)):
            # all blocks, or each by itself
            sharing.LEAST_STRETCH_BYTES = sharing.KEPT_BYTES = together
            keys = dict(n_layer=3, n_head=2, n_embd=16, block_size=16, dropout=0.0, dtype=dtype)
            keys |= dict(compile=False, gradient_accumulation_steps=2, grad_clip=grad_clip)
            found.append(trained(Config(parallel=mode, **keys), ranks))
        (weights, scale), *others = found
        for same, scale_too in others:
            torch.testing.assert_close(same, weights, rtol=1e-3, atol=1e-4)
            assert weights.isfinite().all() and scale == scale_too, found
        assert scale == (2.0**15 if dtype == "float16" else 2), scale
        print(f"rank {ranks.rank} {dtype} {grad_clip}: fine")
sys.stdout.flush()
os._exit(0)  # at Python's own end a thread of gloo's has ended the process by std::terminate
"""


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_on_one_rank_is_left_out_on_all(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(NOT_FINITE)
    assert output_of_ranks(2, [str(script)]).count(": fine") == 8
