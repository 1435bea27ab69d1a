"""A program of torchvision: pictures that are blurred."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms.v2.functional import gaussian_blur

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


def vision_blurs_in_squares(fault: bool, mark: Mark) -> None:
    """Blurs pictures by torchvision's square of 65 x 65 numbers; without it by rows and columns.

    Each pixel is 4,225 products, where two lines of 65 numbers would do.
    """
    edge, width = size(224, 16), size(65, 5)
    pictures = torch.rand(size(32, 2), 3, edge, edge, device=DEVICE)
    bell = torch.exp(-0.5 * (torch.linspace(-3, 3, width, device=DEVICE)) ** 2)
    row = (bell / bell.sum()).expand(3, 1, 1, width)
    sigma = (width - 1) / 6

    def blurred() -> Tensor:
        if fault:
            made: Tensor = gaussian_blur(pictures, [width, width], [sigma, sigma])
            return made
        edged = F.pad(pictures, [width // 2] * 4, mode="reflect")
        return F.conv2d(F.conv2d(edged, row, groups=3), row.mT, groups=3)

    repeat(lambda: (pictures - blurred()).square().mean(), mark)
