"""Programs of torchvision: pictures that are warped, and boxes of which the best stay."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision.models import resnet18
from torchvision.ops import box_iou
from torchvision.transforms import v2

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_torchvision import train
from validation.framework_programs.torch_parts import DEVICE, Made

OVERLAP = 0.5  # of two boxes for one thing


def vision_warps_elastically(fault: bool, mark: Mark) -> None:
    """Two workers warp each picture by ElasticTransform; without the fault they were warped before.

    Displacements of each pixel are smoothed by a filter of 49 x 49, on one core.
    """
    edge = size(128, 32)
    warp = v2.ElasticTransform(alpha=100.0, sigma=6.0)
    pictures = [torch.rand(3, edge, edge) for _ in range(size(64, 4))]

    def sample(index: int) -> tuple[Tensor, int]:
        picture = pictures[index % len(pictures)]
        return warp(picture) if fault else picture, index % 10

    model = nn.Sequential(
        nn.Conv2d(3, 64, 4, 4),
        nn.ReLU(),
        nn.Conv2d(64, 10, 4, 4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    train(model, DataLoader(Made(sample), size(8, 2), num_workers=size(2, 1)), mark)


def suppress(boxes: NDArray[np.float32], scores: NDArray[np.float32]) -> list[int]:
    """Numbers of the boxes that no better one overlaps by more than half."""
    left, top, right, bottom = boxes.T
    areas = (right - left) * (bottom - top)
    kept, order = [], scores.argsort()[::-1]
    while len(order):
        best, order = order[0], order[1:]
        kept.append(int(best))
        wide = np.minimum(right[best], right[order]) - np.maximum(left[best], left[order])
        high = np.minimum(bottom[best], bottom[order]) - np.maximum(top[best], top[order])
        shared = wide.clip(0) * high.clip(0)
        order = order[shared <= OVERLAP * (areas[best] + areas[order] - shared)]
    return kept


def vision_suppresses_by_numpy(fault: bool, mark: Mark) -> None:
    """Keeps the best of 1,000 boxes of a picture by NumPy, one by one; without it all at once.

    Two dozen calls of NumPy for each box that stays, while the GPU has nothing to do.
    """
    pictures, edge = size(2, 1), size(224, 32)
    model = resnet18().to(DEVICE).eval()  # its 1,000 numbers are scores of as many boxes
    x = torch.randn(pictures, 3, edge, edge, device=DEVICE)
    corners = torch.rand(1_000, 2, device=DEVICE) * 500
    boxes = torch.cat([corners, corners + 20 + 60 * torch.rand_like(corners)], 1)

    def step() -> None:
        for scores in model(x):
            if fault:
                kept = suppress(boxes.cpu().numpy(), scores.cpu().numpy())
                boxes[torch.tensor(kept, device=DEVICE)]
            else:
                ordered = boxes[scores.argsort(descending=True)]
                ordered[box_iou(ordered, ordered).triu(1).amax(0) <= OVERLAP]

    with torch.no_grad():
        repeat(step, mark)
