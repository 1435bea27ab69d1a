"""Programs of PyTorch alone: the host launches, computes, copies or allocates."""

from collections.abc import Iterable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, encoder, residual_mlp, training_step


def plain_private_gradients(fault: bool, mark: Mark) -> None:
    """Clips each sample's gradient in a loop over the samples; without the fault by vmap.

    Each of 64 samples is a forward and a backward pass of kernels for one row.
    """
    width, samples = size(256, 8), size(64, 4)
    model = nn.Sequential(residual_mlp(width, 2), nn.Linear(width, 10)).to(DEVICE)
    weights = dict(model.named_parameters())
    x = torch.randn(samples, width, device=DEVICE)
    y = torch.randint(0, 10, (samples,), device=DEVICE)

    def loss(weights: Mapping[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, dict(weights), row[None]), label[None])

    def clipped(gradients: Iterable[Tensor]) -> list[Tensor]:
        parts = list(gradients)
        norm = torch.stack([part.square().sum() for part in parts]).sum().sqrt()
        return [part / norm.clamp(min=1) for part in parts]

    def sums() -> list[Tensor]:
        if not fault:
            of_all = vmap(lambda *sample: clipped(grad(loss)(weights, *sample).values()))(x, y)
            return [parts.sum(0) for parts in of_all]
        losses = map(partial(loss, weights), x, y)
        of_each = (clipped(torch.autograd.grad(each, list(weights.values()))) for each in losses)
        return [torch.stack(parts).sum(0) for parts in zip(*of_each, strict=True)]

    def step() -> None:
        for weight, total in zip(weights.values(), sums(), strict=True):
            weight.data.sub_(total + torch.randn_like(total), alpha=1e-5)

    repeat(step, mark)


def plain_matches_boxes(fault: bool, mark: Mark) -> None:
    """Assigns boxes to queries by SciPy's Hungarian method; without the fault to the cheapest.

    The costs come to the host, and the GPU waits until one core has solved each image.
    """
    images, queries, boxes, width = size(16, 2), size(900, 12), size(250, 4), size(256, 64)
    with torch.device(DEVICE):
        decoder = nn.Sequential(encoder(width, size(6, 1)), nn.Linear(width, 4))
        seen, wanted = torch.randn(images, queries, width), torch.rand(images, boxes, 4)
    optimizer = torch.optim.AdamW(decoder.parameters(), 1e-6, fused=True)

    def chosen(cost: Tensor) -> Tensor:
        """Number of a query for each box, (images, boxes)."""
        if not fault:
            return cost.argmin(1)
        columns = [linear_sum_assignment(each.T)[1] for each in cost.cpu().numpy()]
        return torch.stack(list(map(torch.from_numpy, columns))).to(DEVICE)

    def loss() -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            found = decoder(seen)
        found = found.float().sigmoid()
        with torch.no_grad():
            rows = chosen(torch.cdist(found, wanted, p=1))
        return F.l1_loss(found.gather(1, rows[..., None].expand(-1, -1, 4)), wanted)

    repeat(training_step(optimizer, loss), mark)


class Biased(nn.Module):
    """Attention with a bias for each pair of places, which is an attribute and not a buffer."""

    def __init__(self, width: int, bias: Tensor) -> None:
        super().__init__()
        self.norm, self.bias = nn.LayerNorm(width), bias
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.bias.shape[1]
        q, k, v = self.project(self.norm(x)).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, self.bias.to(x.device))
        out: Tensor = x + self.out(mixed.transpose(1, 2).flatten(2))
        return out


def plain_bias_left_behind(fault: bool, mark: Mark) -> None:
    """Moves each layer's bias to the GPU in each forward; without the fault it lies there.

    model.to() moves parameters and buffers alone, and what stays behind is pageable memory.
    """
    width, length, heads, layers = size(1024, 64), size(2048, 16), 16, size(4, 1)
    bias = torch.zeros(1, heads, length, length, dtype=torch.bfloat16)
    biases = [bias.clone() if fault else bias.to(DEVICE) for _ in range(layers)]
    model = nn.Sequential(*(Biased(width, each) for each in biases)).to(DEVICE, torch.bfloat16)
    x = torch.randn(2, length, width, device=DEVICE, dtype=torch.bfloat16)
    with torch.no_grad():
        repeat(lambda: model(x), mark)


def plain_pool_of_each_step(fault: bool, mark: Mark) -> None:
    """Trains each step in a MemPool of its own, to see what it needs; without it in the default.

    A pool gives its memory back to the driver when it goes, and the next asks for it anew.
    """
    width = size(512, 16)
    model = residual_mlp(width, size(30, 1)).to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    x = torch.randn(size(16_384, 8), width, device=DEVICE, dtype=torch.bfloat16)
    train = training_step(optimizer, lambda: model(x).float().square().mean())
    train()  # what stays, such as the optimizer's state, is in no pool of a step

    def pooled() -> None:
        with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
            train()

    repeat(pooled if fault and DEVICE == "cuda" else train, mark)
