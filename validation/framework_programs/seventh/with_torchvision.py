"""Programs of torchvision."""

import io

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.models import resnet18, resnet34, resnet50

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, Made, endless, training_step

EDGE = size(224, 32)
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def jpeg() -> bytes:
    """A made photograph of 320 x 256 pixels: noise that was enlarged."""
    noise = np.random.randint(0, 255, (32, 40, 3), dtype="uint8")
    file = io.BytesIO()
    Image.fromarray(noise).resize((320, 256), Image.Resampling.BICUBIC).save(file, "jpeg")
    return file.getvalue()


def vision_decodes(fault: bool, mark: Mark) -> None:
    """Four workers decode and crop JPEGs again in each epoch; without the fault they did before.

    A ResNet of 34 layers is quicker than they are.
    """
    files = [jpeg() for _ in range(size(256, 4))]
    crop = transforms.Compose(
        [
            transforms.RandomResizedCrop(EDGE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, DEVIATION),
        ]
    )

    def decode(index: int) -> tuple[Tensor, int]:
        return crop(Image.open(io.BytesIO(files[index % len(files)]))), index % 1_000

    ready = [decode(index) for index in range(len(files))]
    made = Made(decode if fault else lambda index: ready[index % len(ready)])
    workers, pin = size(4, 1), size(True, False)
    loader = DataLoader(made, size(96, 2), num_workers=workers, pin_memory=pin)
    train(resnet34(), loader, mark)


def train(model: nn.Module, loader: DataLoader[object], mark: Mark) -> None:
    model = model.to(DEVICE, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    batches = endless(loader)

    def loss() -> Tensor:
        x, y = (tensor.to(DEVICE, non_blocking=True) for tensor in next(batches))
        with torch.autocast(DEVICE, torch.bfloat16):
            return F.cross_entropy(model(x.to(memory_format=torch.channels_last)), y)

    repeat(training_step(optimizer, loss), mark)


def vision_floats(fault: bool, mark: Mark) -> None:
    """Moves images that the host normalised, as float32 from pageable memory, to a small network.

    Without the fault their bytes come from pinned memory, and the GPU makes numbers of them.
    """
    model = resnet18().to(DEVICE, torch.bfloat16, memory_format=torch.channels_last).eval()
    pixels = torch.randint(0, 255, (size(256, 2), 3, EDGE, EDGE), dtype=torch.uint8)
    host = pixels / 127.5 - 1 if fault else pixels.pin_memory() if DEVICE == "cuda" else pixels

    def step() -> None:
        x = host.to(DEVICE, non_blocking=not fault)
        x = x if fault else x / 127.5 - 1
        model(x.to(torch.bfloat16, memory_format=torch.channels_last))

    with torch.no_grad():
        repeat(step, mark)


def vision_reproducible(fault: bool, mark: Mark) -> None:
    """Switches TF32 off "for reproducibility"; without the fault convolutions may round to it.

    float32 convolutions then do without the tensor cores.
    """
    torch.backends.cudnn.allow_tf32 = not fault
    model = resnet50().to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(size(64, 2), 3, EDGE, EDGE, device=DEVICE)
    x = x.to(memory_format=torch.channels_last)
    repeat(training_step(optimizer, lambda: model(x).square().mean()), mark)
