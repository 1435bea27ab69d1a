"""Evaluation on a CUDA GPU: replayed graphs find what launches find, and neither waits."""

import warnings
from dataclasses import replace

import pytest
import torch

from kernels.fused_model import make_model
from train import batches_of
from training.optimizers.kinds import make_optimizer
from training.ranks.distributed import Ranks
from training.step.evaluate import evaluate
from training.step.scoring import Scoring
from training.step.step import Step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

RANKS = Ranks(0, 1, torch.device("cuda", 0))
SMALL = dict(
    device="cuda",
    dtype="bfloat16",
    cuda_graphs="false",
    n_head=4,
    n_embd=128,
    block_size=128,
    batch_size=8,
    dropout=0.1,
    learning_rate=1e-2,
)


@pytest.fixture
def parts(config, prepared):
    """parts(**keys): configuration, step, training and validation batches, on the GPU."""

    def make(**keys):
        small = config(**{**SMALL, **keys})
        dataset = prepared(small)
        torch.manual_seed(0)
        model = make_model(small, dataset.tokenizer.vocab_size).to(RANKS.device)
        step = Step(model, make_optimizer(model, small, RANKS.device), small, RANKS)
        batches = [batches_of(dataset, split, small, RANKS) for split in ("train", "val")]
        return small, step, *batches

    return make


def scorings(step: Step, config) -> list[Scoring]:
    """One that launches kernel by kernel, and one that replays."""
    ways = (config, replace(config, cuda_graphs="true"))
    return [Scoring(step.model, way, RANKS.device) for way in ways]


@pytest.mark.parametrize("eval_iters", [0, 5])
@pytest.mark.parametrize(
    "attention, kernels, dtype",
    [
        ("auto", "compiled", "bfloat16"),
        ("slow", "compiled", "float32"),
        ("triton", "compiled", "bfloat16"),
        ("triton", "fused", "bfloat16"),
    ],
)
def test_replays_find_the_losses_of_launched_kernels_while_the_weights_change(
    parts, attention, kernels, dtype, eval_iters
):
    keys = dict(attention=attention, kernels=kernels, dtype=dtype, eval_iters=eval_iters)
    small, step, train, val = parts(**keys)
    launched, replayed = scorings(step, small)
    seen = []
    for iteration in range(3):
        expected = evaluate(launched, train, val, iteration, small, RANKS)
        found = evaluate(replayed, train, val, iteration, small, RANKS)
        assert found == pytest.approx(expected, rel=1e-6)
        seen.append(found["val/loss"])
        step.backward(step.forward(*train.draw(iteration, 0)))
        step.update(1e-2)
    assert launched.graph is None and replayed.graph is not None
    assert abs(seen[2] - seen[0]) > 0.01


@pytest.mark.parametrize("storage", ["device", "mmap"])
def test_an_evaluation_waits_for_the_gpu_once(parts, storage):
    small, step, train, val = parts(attention="flash", token_storage=storage, eval_iters=6)
    for scoring in scorings(step, small):
        evaluate(scoring, train, val, 0, small, RANKS)  # captures
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                evaluate(scoring, train, val, 1, small, RANKS)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert len([w for w in seen if "synchronizing CUDA operation" in str(w.message)]) == 1
