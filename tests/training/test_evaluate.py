import numpy as np
import pytest
import torch

from model import GPT
from train import batches_of
from training.distributed import Ranks
from training.evaluate import evaluate

RANKS = Ranks(0, 1, torch.device("cpu"))


@pytest.fixture
def parts(config, prepared):
    """parts(**keys): configuration, model, training and validation batches."""

    def make(**keys):
        tiny = config(**keys)
        dataset = prepared(tiny)
        torch.manual_seed(0)
        model = GPT(tiny, dataset.tokenizer.vocab_size)
        batches = [batches_of(dataset, split, tiny, RANKS) for split in ("train", "val")]
        return tiny, model, *batches

    return make


def plain_sum(model: GPT, x: torch.Tensor, y: torch.Tensor) -> float:
    """Mean loss of one sequence after the other, in float64."""
    with torch.no_grad():
        losses = []
        for row, targets in zip(x, y, strict=True):
            logits = model(row[None], targets[None])[0][0].double()
            for position, target in enumerate(targets):
                losses.append(torch.logsumexp(logits[position], 0) - logits[position, target])
    return (sum(losses) / len(losses)).item()


def test_exact_loss_counts_every_prediction_once(parts):
    tiny, model, train, val = parts()
    tokens = torch.from_numpy(val.sequences.tokens.astype(np.int64))
    assert (len(tokens) - 1) % tiny.block_size  # so that the last sequence overlaps
    model.eval()
    double = GPT(tiny, model.lm_head.out_features).double().eval()
    double.load_state_dict(model.state_dict())
    total, count = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(tokens) - 1, tiny.block_size):
            # the last, shorter stretch is predicted at the end of a full sequence
            end = min(start + tiny.block_size, len(tokens) - 1)
            first = end - tiny.block_size
            logits, _ = double(tokens[None, first:end], tokens[None, first + 1 : end + 1])
            for position in range(start - first, tiny.block_size):
                row, target = logits[0, position], tokens[first + position + 1]
                total += (torch.logsumexp(row, 0) - row[target]).item()
                count += 1
    assert count == len(tokens) - 1
    losses = evaluate(model, train, val, 0, tiny, RANKS)
    assert losses["val/loss"] == pytest.approx(total / count, abs=1e-6)


def test_training_loss_is_over_a_sample_of_the_validation_split_s_size(parts):
    tiny, model, train, val = parts()
    model.eval()
    sample = list(train.cover(limit=val.sequence_count))
    counted = [(x[i], y[i]) for x, y in sample for i in range(len(x)) if (y[i] != -1).all()]
    assert len(counted) == val.sequence_count < train.sequence_count
    x, y = map(torch.stack, zip(*counted, strict=True))
    expected = plain_sum(model, x, y)
    losses = [evaluate(model, train, val, i, tiny, RANKS)["eval/train_loss"] for i in (0, 4)]
    assert losses == pytest.approx([expected] * 2, abs=1e-6)


def test_an_estimate_is_the_mean_of_n_random_batches(parts, monkeypatch):
    tiny, model, train, val = parts(eval_iters=3)
    drawn = {"train": [], "val": []}
    for name, batches in (("train", train), ("val", val)):

        def watched(*place, draw=batches.draw, seen=drawn[name]):
            seen.append((place, draw(*place)))
            return seen[-1][1]

        monkeypatch.setattr(batches, "draw", watched)
    losses = evaluate(model, train, val, 4, tiny, RANKS)
    model.eval()
    for name, key in (("train", "eval/train_loss"), ("val", "val/loss")):
        assert len(drawn[name]) == 3
        x, y = (torch.cat(part) for part in zip(*(pair for _, pair in drawn[name]), strict=True))
        assert losses[key] == pytest.approx(plain_sum(model, x, y), abs=1e-6)
        # never a batch that is trained on, and others at every evaluation
        assert all(iteration > tiny.max_iters for (iteration, _), _ in drawn[name])
    first = {place for place, _ in drawn["val"]}
    evaluate(model, train, val, 8, tiny, RANKS)
    assert not first & {place for place, _ in drawn["val"][3:]}


@pytest.mark.parametrize("eval_iters", [0, 2])
def test_evaluation_leaves_no_trace(parts, eval_iters):
    tiny, model, train, val = parts(dropout=0.4, eval_iters=eval_iters)
    model.train()
    random_state = torch.get_rng_state()
    first = evaluate(model, train, val, 0, tiny, RANKS)
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(p.grad is None for p in model.parameters())
    assert evaluate(model, train, val, 0, tiny, RANKS) == first  # no dropout, the same batches
