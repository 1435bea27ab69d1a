"""A program of PyTorch whose pictures are decoded by OpenCV."""

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.seventh.with_torchvision import EDGE, jpeg, train
from validation.framework_programs.torch_parts import Made


def opencv_decodes_in_loop(fault: bool, mark: Mark) -> None:
    """Decodes JPEGs in the loop's own process; without the fault they were decoded before.

    The loader has no workers: 32 pictures are decoded between two steps.
    """

    def decoded(file: bytes) -> Tensor:
        picture = cv2.imdecode(np.frombuffer(file, "uint8"), cv2.IMREAD_COLOR)
        picture = cv2.cvtColor(cv2.resize(picture, (EDGE, EDGE)), cv2.COLOR_BGR2RGB)
        return torch.from_numpy(picture).permute(2, 0, 1) / 255

    files = [jpeg() for _ in range(size(64, 4))]
    ready = [decoded(file) for file in files]

    def sample(index: int) -> tuple[Tensor, int]:
        number = index % len(files)
        return decoded(files[number]) if fault else ready[number], index % 10

    model = nn.Sequential(nn.Conv2d(3, 10, 8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    train(model, DataLoader(Made(sample), size(32, 2)), mark)
