"""Programs of PyTorch alone whose time is the GPU's own."""

import torch
import torch.nn.functional as F

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import bfloats


def plain_scores_all_pairs(fault: bool, mark: Mark) -> None:
    """Scores 49,152 pairs by the diagonal of all with all; without the fault row by row.

    The product of both tables is 50,000 times the work that is asked for.
    """
    rows, width = size(49_152, 16), size(1024, 16)
    asked, given = bfloats(rows, width), bfloats(rows, width)
    adapters = [bfloats(width, width) * width**-0.5 for _ in range(2)]

    def step() -> None:
        a, b = (F.normalize(F.linear(x, w)) for x, w in zip((asked, given), adapters, strict=True))
        scores = (a @ b.T).diagonal() if fault else (a * b).sum(-1)
        scores.float().square().mean()

    with torch.no_grad():
        repeat(step, mark)


def plain_all_experts(fault: bool, mark: Mark) -> None:
    """Sends all tokens through each of 16 experts; without the fault those that it chose.

    Seven of eight products are multiplied by nothing.
    """
    tokens, width, experts = size(4096, 32), size(2048, 16), size(16, 4)
    share = tokens * 2 // experts
    x, router = bfloats(tokens, width), bfloats(experts, width)
    ups = [bfloats(4 * width, width) * width**-0.5 for _ in range(experts)]
    downs = [bfloats(width, 4 * width) * width**-0.5 for _ in range(experts)]

    def step() -> None:
        chances = F.linear(x, router).softmax(-1).T
        weights, chosen = chances.topk(share)
        gates = torch.zeros_like(chances).scatter_(1, chosen, weights)
        out = torch.zeros_like(x)
        for number, (up, down) in enumerate(zip(ups, downs, strict=True)):
            part = x if fault else x[chosen[number]]
            made = F.linear(F.gelu(F.linear(part, up)), down)
            if fault:
                out += gates[number, :, None] * made
            else:
                out.index_add_(0, chosen[number], weights[number, :, None] * made)

    with torch.no_grad():
        repeat(step, mark)
