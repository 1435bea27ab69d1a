"""Gradients that matrix products write into DDP's buckets, so that DDP copies nothing."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from configs.schema import Config
from kernels.linear import Linear, give_place, placed_gradient, weight_gradient
from training.ranks.distributed import Ranks
from training.ranks.embedding_rows import EmbeddingRows
from training.step.replicas import Replicas

COPIES = "torch::distributed::reducer::copy_"  # what DDP calls them in a profile
MICRO_STEPS = 2


@pytest.fixture(autouse=True)
def process_group():
    """Opens a group of one rank, so that an average is what it was."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Layers(nn.Module):
    """One of them is called twice: its gradient is a sum."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.twice = Linear(8, 16, bias=True), Linear(16, 16, bias=False)
        self.norm, self.last = nn.LayerNorm(16, bias=False), Linear(16, 8, bias=False)
        for layer in (self.first, self.twice, self.last):
            layer.keep_copy(torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.twice(self.twice(self.first(x)).float())).float())


class Tied(nn.Module):
    """A head whose weight is the embedding's table."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(16, 8), Linear(8, 16, bias=False)
        self.embedding.weight = self.head.weight
        self.head.keep_copy(torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x.argsort()))


def replicas(model: nn.Module, **keys) -> Replicas:
    config = Config(**{"kernels": "fused", "compile": False, "cuda_graphs": "false", **keys})
    config.bucket_mb = 0.0005  # half a matrix: there are several buckets
    return Replicas(model, config, Ranks(0, 1, torch.device("cpu")))


def micro_step(layout: Replicas, number: int) -> None:
    layout.begin_micro_step(last=number == MICRO_STEPS - 1)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(number))
    layout.model(x).square().sum().backward()


def iteration(layout: Replicas, zero: bool = True) -> list[tuple[int, ...]]:
    """Shapes of the gradients that DDP has copied."""
    if zero:
        layout.ddp.zero_grad(set_to_none=True)
    with torch.profiler.profile(record_shapes=True) as profile:
        for number in range(MICRO_STEPS):
            micro_step(layout, number)
        layout.wait_for_gradients()  # within: what is under way tells a profile that it has ended
    return sorted(tuple(e.input_shapes[0]) for e in profile.events() if e.name == COPIES)


def gradients(model: Layers) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def expected() -> dict[str, Tensor]:
    """Returns the gradients of PyTorch alone."""
    model = Layers()
    for number in range(MICRO_STEPS):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(number))
        model(x).square().sum().backward()
    return gradients(model)


def test_gradients_are_right_and_ddp_copies_none_that_a_single_product_makes():
    model = Layers()
    layout = replicas(model)
    right = expected()
    copied = []
    for _ in range(4):
        copied.append(iteration(layout))
        torch.testing.assert_close(gradients(model), right, rtol=0, atol=0)
    everything = sorted(tuple(p.shape) for p in model.parameters())
    assert copied[:2] == [everything, everything], "behind the first DDP makes its buckets anew"
    assert copied[2:] == [[(16,), (16,), (16, 16)]] * 2, "the norm, the bias and a sum of two"


def test_the_first_product_writes_there_and_later_ones_are_added_to_it():
    model = Layers()
    layout = replicas(model)
    for _ in range(2):
        iteration(layout)
    places = {name: p.grad.data_ptr() for name, p in model.named_parameters()}
    layout.ddp.zero_grad(set_to_none=True)
    for number in range(MICRO_STEPS):
        micro_step(layout, number)
        for name in ("first.weight", "last.weight"):
            weight = model.get_parameter(name)
            assert weight.grad.data_ptr() == places[name], (name, number)
            assert getattr(weight, "gradient_place", None) is None or number == MICRO_STEPS - 1
    layout.wait_for_gradients()
    torch.testing.assert_close(gradients(model), expected(), rtol=0, atol=0)


def test_gradients_that_nobody_dropped_are_added_to():
    model = Layers()
    layout = replicas(model)
    for _ in range(3):
        iteration(layout)
    iteration(layout, zero=False)
    twice = {name: 2 * gradient for name, gradient in expected().items()}
    torch.testing.assert_close(gradients(model), twice, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("rows, copied", [(True, []), (False, [(16, 8)])], ids=["rows", "dense"])
def test_the_head_s_gradient_is_copied_where_the_embedding_s_is_added_to_it(rows, copied):
    model = Tied()
    if rows:
        EmbeddingRows(model.embedding, 1, torch.float32)
    layout = replicas(model)
    for _ in range(2):
        iteration(layout)
    assert iteration(layout) == copied


@pytest.mark.parametrize("keys", [{"compile": True}, {"kernels": "compiled"}], ids=str)
def test_compiled_code_keeps_its_own_gradients(keys):
    model = Layers()
    layout = replicas(model, **keys)
    for _ in range(3):
        assert len(iteration(layout)) == len(list(model.parameters()))


def test_rows_of_zeros_behind_a_weight_s_copy_are_not_written():
    weight, dy, x = torch.randn(8, 4), torch.randn(3, 9).bfloat16(), torch.randn(3, 4).bfloat16()
    bucket = torch.full((36,), 7.0)
    give_place(weight, bucket[:32].view(8, 4))
    found = placed_gradient(weight, dy, x)
    assert found.data_ptr() == bucket.data_ptr() and torch.equal(bucket[32:], torch.full((4,), 7.0))
    torch.testing.assert_close(found, weight_gradient(dy, x)[:8], rtol=2**-7, atol=0)
    again = placed_gradient(weight, dy, x)
    assert again.data_ptr() != bucket.data_ptr(), "a place is taken once"


def test_rows_that_are_no_multiple_of_eight_are_all_written():
    weight, bucket = torch.randn(9, 4), torch.full((40,), 7.0)
    dy, x = torch.randn(3, 64), torch.randn(3, 4)
    give_place(weight, bucket[:36].view(9, 4))
    placed_gradient(weight, dy, x)
    torch.testing.assert_close(bucket[:36].view(9, 4), (dy.t() @ x)[:9])
    assert torch.equal(bucket[36:], torch.full((4,), 7.0))


def test_a_product_is_written_in_16_bits_and_autograd_has_its_place_in_float32():
    weight, dy, x = torch.randn(8, 4), torch.randn(3, 8).bfloat16(), torch.randn(3, 4).bfloat16()
    bucket = torch.full((64,), 7.0)
    product = bucket.view(torch.bfloat16)[32:64].view(8, 4)
    give_place(weight, bucket[32:].view(8, 4), product)
    found = placed_gradient(weight, dy, x)
    assert found.dtype == torch.float32 and found.data_ptr() == bucket[32:].data_ptr()
    assert torch.equal(product, dy.t() @ x)
    assert torch.equal(bucket[:16], torch.full((16,), 7.0)), "what is before it in 16 bits"
    assert torch.equal(bucket[32:], torch.full((32,), 7.0)), "nothing in float32"
