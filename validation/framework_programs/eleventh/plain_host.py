"""Programs of PyTorch alone in which the host waits for the GPU."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Distribution, Normal

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, bfloats


def plain_bounds_on_gpu(fault: bool, mark: Mark) -> None:
    """Cuts packed texts at bounds that are on the GPU; without the fault at a list made of them.

    Each bound of a slice is read by the host: four reads for the two products of a text.
    """
    texts, width = size(64, 3), size(2560, 16)
    lengths = torch.randint(size(800, 4), size(1200, 8), (texts,), device=DEVICE)
    bounds = F.pad(lengths.cumsum(0), (1, 0))
    packed = bfloats(int(bounds[-1]), width)
    out = torch.empty_like(packed)
    wide, narrow = (bfloats(width, width) * width**-0.5 for _ in range(2))

    def step() -> None:
        cuts = bounds if fault else bounds.tolist()
        for text in range(texts):
            part = packed[cuts[text] : cuts[text + 1]]
            out[cuts[text] : cuts[text + 1]] = F.linear(F.linear(part, wide), narrow)

    with torch.no_grad():
        repeat(step, mark)


def plain_checks_distributions(fault: bool, mark: Mark) -> None:
    """Leaves the checks of torch.distributions on in a ladder of latents; without it they are off.

    Each mean, spread and draw of each level is looked at by the host before it is used.
    """
    Distribution.set_default_validate_args(fault)
    rows, width, latents = size(4096, 8), size(2048, 32), size(64, 4)
    levels = [[bfloats(width, width) * width**-0.5 for _ in range(2)] for _ in range(size(12, 2))]
    start = bfloats(rows, width)

    def normal(parts: Tensor) -> Normal:
        mean, spread = parts.float().chunk(2, -1)
        return Normal(mean, F.softplus(spread) + 1e-3)

    def step() -> None:
        x, apart = start, torch.zeros((), device=DEVICE)
        for first, second in levels:
            x = F.linear(F.gelu(F.linear(x, first)), second)
            posterior, prior = map(normal, x[:, : 4 * latents].chunk(2, -1))
            drawn = posterior.rsample()
            apart = apart + (posterior.log_prob(drawn) - prior.log_prob(drawn)).mean()

    with torch.no_grad():
        repeat(step, mark)
