import numpy as np
import pytest
import torch

from configs.schema import Config
from data.batches import Batches
from model import GPT
from train import batches_of
from training.distributed import Ranks
from training.evaluate import evaluate, evaluation_batch_size

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
RANKS = Ranks(0, 1, CPU)


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
    tokens = torch.from_numpy(val.tokens.whole().astype(np.int64))
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


def test_training_loss_is_over_a_sample_of_an_eighth_of_the_validation_split(parts):
    tiny, model, train, val = parts()
    model.eval()
    size = -(-val.sequence_count // 8)
    sample = list(train.cover(limit=size))
    counted = [(x[i], y[i]) for x, y in sample for i in range(len(x)) if (y[i] != -1).all()]
    assert len(counted) == size < train.sequence_count
    x, y = map(torch.stack, zip(*counted, strict=True))
    expected = plain_sum(model, x, y)
    losses = [evaluate(model, train, val, i, tiny, RANKS)["eval/train_loss"] for i in (0, 4)]
    assert losses == pytest.approx([expected] * 2, abs=1e-6)


def windows(batches: Batches, iteration: int, config: Config) -> set[tuple[int, ...]]:
    count = config.eval_iters * config.batch_size
    return {tuple(row.tolist()) for x, _ in batches.sample(iteration, count) for row in x}


def test_an_estimate_is_the_mean_over_random_sequences(parts):
    tiny, model, train, val = parts(eval_iters=3)
    losses = evaluate(model, train, val, 4, tiny, RANKS)
    model.eval()
    for batches, key in ((train, "eval/train_loss"), (val, "val/loss")):
        pairs = list(batches.sample(4, 3 * tiny.batch_size))
        x, y = (torch.cat(part) for part in zip(*pairs, strict=True))
        assert len(x) == 3 * tiny.batch_size and (y != -1).all()
        assert losses[key] == pytest.approx(plain_sum(model, x, y), abs=1e-6)


def test_what_is_evaluated_depends_on_the_iteration_alone_and_not_on_training(parts):
    keys = dict(eval_iters=50)
    tiny, model, train, val = parts(**keys)
    others = dict(max_iters=10**18, eval_interval=7, gradient_accumulation_steps=2)
    longer, _, *of_longer = parts(**keys, **others)
    both = zip((train, val), of_longer, strict=True)
    assert all(windows(a, 4, tiny) == windows(b, 4, longer) for a, b in both)
    expected = evaluate(model, train, val, 4, tiny, RANKS)
    assert evaluate(model, *of_longer, 4, longer, RANKS) == expected
    assert len(windows(val, 4, tiny) & windows(val, 8, tiny)) < len(windows(val, 4, tiny)) / 2
    first, _ = next(train.sample(0, tiny.batch_size))
    assert not any(torch.equal(first, train.draw(i, 0)[0]) for i in range(50))


@pytest.mark.parametrize("eval_iters", [0, 3])
@pytest.mark.parametrize("eval_batch_size", [1, 7, 1000])
def test_the_batch_size_of_an_evaluation_changes_no_loss(parts, eval_iters, eval_batch_size):
    tiny, model, train, val = parts(eval_iters=eval_iters)
    expected = evaluate(model, train, val, 4, tiny, RANKS)
    tiny.eval_batch_size = eval_batch_size
    assert evaluate(model, train, val, 4, tiny, RANKS) == pytest.approx(expected, abs=1e-6)


def test_a_small_model_is_evaluated_in_large_batches_on_a_cpu_alone(config):
    tiny = config(n_embd=16, block_size=16)
    assert evaluation_batch_size(tiny, CPU) == 1024
    assert evaluation_batch_size(config(n_embd=8192, block_size=1024), CPU) == 1
    assert evaluation_batch_size(tiny, CPU, vocab_size=65) == 1024
    assert evaluation_batch_size(tiny, CPU, vocab_size=50257) == 20  # 64 MB of logits, not 3 GB
    assert evaluation_batch_size(tiny, torch.device("cuda"), 50257) == tiny.batch_size
    asked = config(eval_batch_size=9)
    assert evaluation_batch_size(asked, CPU) == evaluation_batch_size(asked, CUDA) == 9
    asked.attention = "flex"
    with pytest.raises(ValueError, match=r"^eval_batch_size=9: attention=flex .*batch_size=4"):
        evaluation_batch_size(asked, CUDA)


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
