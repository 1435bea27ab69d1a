import numpy as np
import pytest
import torch

from configs.schema import Config
from data.batches import Batches
from kernels.fused_model import make_model
from model import GPT
from train import batches_of
from training.ranks.distributed import Ranks
from training.step import scoring
from training.step.evaluate import evaluate, evaluation_batch_size
from training.step.scoring import Scoring

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
RANKS = Ranks(0, 1, CPU)


@pytest.fixture
def parts(config, prepared):
    """parts(**keys): configuration, model, training and validation batches."""

    def make(**keys):
        tiny = config(**keys)
        dataset = prepared(tiny)
        torch.manual_seed(0)
        model = make_model(tiny, dataset.tokenizer.vocab_size)
        batches = [batches_of(dataset, split, tiny, RANKS) for split in ("train", "val")]
        return tiny, model, *batches

    return make


def losses_of(
    model: GPT, train: Batches, val: Batches, iteration: int, config: Config
) -> dict[str, float]:
    return evaluate(Scoring(model, config, CPU), train, val, iteration, config, RANKS)


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
    tokens = torch.from_numpy(val.tokens.read_all().astype(np.int64))
    assert (len(tokens) - 1) % tiny.block_size  # so that the last sequence overlaps
    model.eval()
    double = make_model(tiny, model.lm_head.out_features).double().eval()
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
    losses = losses_of(model, train, val, 0, tiny)
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
    losses = [losses_of(model, train, val, i, tiny)["eval/train_loss"] for i in (0, 4)]
    assert losses == pytest.approx([expected] * 2, abs=1e-6)


def windows(batches: Batches, iteration: int, config: Config) -> set[tuple[int, ...]]:
    count = config.eval_iters * config.batch_size
    return {tuple(row.tolist()) for x, _ in batches.sample(iteration, count) for row in x}


def test_an_estimate_is_the_mean_over_random_sequences(parts):
    tiny, model, train, val = parts(eval_iters=3)
    losses = losses_of(model, train, val, 4, tiny)
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
    expected = losses_of(model, train, val, 4, tiny)
    assert losses_of(model, *of_longer, 4, longer) == expected
    assert len(windows(val, 4, tiny) & windows(val, 8, tiny)) < len(windows(val, 4, tiny)) / 2
    first, _ = next(train.sample(0, tiny.batch_size))
    assert not any(torch.equal(first, train.draw(i, 0)[0]) for i in range(50))


@pytest.mark.parametrize("eval_iters", [0, 3])
@pytest.mark.parametrize("eval_batch_size", [1, 7, 1000])
def test_the_batch_size_of_an_evaluation_changes_no_loss(parts, eval_iters, eval_batch_size):
    tiny, model, train, val = parts(eval_iters=eval_iters)
    expected = losses_of(model, train, val, 4, tiny)
    tiny.eval_batch_size = eval_batch_size
    assert losses_of(model, train, val, 4, tiny) == pytest.approx(expected, abs=1e-6)


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
    first = losses_of(model, train, val, 0, tiny)
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(p.grad is None for p in model.parameters())
    assert losses_of(model, train, val, 0, tiny) == first  # no dropout, the same batches


class Graph:
    """Stands in for a CUDA graph: does at each replay what was captured, which runs nothing."""

    captures = 0

    def __init__(self, work):
        assert not torch.is_autocast_cache_enabled()  # or it would read copies that are gone
        Graph.captures += 1
        self.work, self.replays = work, 0

    def replay(self) -> None:
        self.replays += 1
        self.work()


@pytest.fixture
def graphs(monkeypatch):
    monkeypatch.setattr(scoring, "capture_graph", Graph)
    monkeypatch.setattr(Graph, "captures", 0)


@pytest.mark.parametrize("eval_iters", [0, 3])
def test_the_first_batch_is_captured_and_replayed_for_all_others(graphs, parts, eval_iters):
    """Real graphs are in tests/gpu."""
    keys = dict(eval_iters=eval_iters, dtype="bfloat16", eval_batch_size=5)
    tiny, model, train, val = parts(**keys)
    expected = losses_of(model, train, val, 4, tiny)
    tiny.cuda_graphs = "true"
    replayed = Scoring(model, tiny, CPU)
    assert evaluate(replayed, train, val, 4, tiny, RANKS) == pytest.approx(expected, abs=1e-6)
    batches = sum(
        len(list(split.sample(4, 3 * tiny.batch_size, 5) if eval_iters else split.cover(limit, 5)))
        for split, limit in ((train, -(-val.sequence_count // 8)), (val, None))
    )
    assert replayed.graph.replays == batches - 1
    # a graph knows weights by where they lie, as whoever trains or loads them leaves them
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    found = evaluate(replayed, train, val, 8, tiny, RANKS)
    assert Graph.captures == 1 and abs(found["val/loss"] - expected["val/loss"]) > 1e-3
    tiny.cuda_graphs = "false"
    assert found == pytest.approx(losses_of(model, train, val, 8, tiny), abs=1e-6)


@pytest.mark.parametrize("attention, cuda_graphs", [("auto", "false"), ("flex", "true")])
def test_without_cuda_graphs_and_with_flex_nothing_is_captured(
    graphs, parts, attention, cuda_graphs
):
    tiny, model, train, val = parts(attention=attention, eval_iters=1)
    tiny.cuda_graphs = cuda_graphs
    losses_of(model, train, val, 0, tiny)
    assert Graph.captures == 0


def test_a_batch_without_a_target_counts_for_nothing_and_nan_stays_nan(parts):
    tiny, model, train, _ = parts()
    x, y = train.draw(0, 0)
    scores = Scoring(model.eval(), tiny, CPU)
    scores.begin()
    scores.add(x, y)
    loss_sum, targets = scores.totals.tolist()
    assert targets == y.numel() and loss_sum > 0
    scores.add(x, torch.full_like(y, -1))
    assert scores.totals.tolist() == [loss_sum, targets]
    torch.nn.init.constant_(model.lm_head.weight, float("nan"))
    scores.add(x, y)
    assert scores.totals[0].isnan()
