"""A program of torchvision: a detector whose loop is that of the references."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import resnet18

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step

OBJECTS, CLASSES = 8, 91


def target() -> dict[str, Tensor]:
    """Truth of an image, with the fields that COCO's have."""
    return {
        "boxes": torch.rand(OBJECTS, 4),
        "labels": torch.randint(0, CLASSES, (OBJECTS,)),
        "area": torch.rand(OBJECTS),
        "iscrowd": torch.zeros(OBJECTS, dtype=torch.int64),
        "image_id": torch.randint(0, 1_000, (1,)),
    }


def vision_targets(fault: bool, mark: Mark) -> None:
    """Moves the targets field by field and image by image; without the fault all of a field.

    More than a thousand small copies from pageable memory, each of which is waited for.
    """
    count, edge = size(256, 2), size(96, 32)
    model = resnet18(num_classes=OBJECTS * (4 + CLASSES))
    model = model.to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    images = torch.randn(count, 3, edge, edge, device=DEVICE)
    images = images.to(memory_format=torch.channels_last)
    targets = [target() for _ in range(count)]
    collated = {name: torch.stack([each[name] for each in targets]) for name in targets[0]}

    def moved() -> dict[str, Tensor]:
        if not fault:
            return {name: field.to(DEVICE) for name, field in collated.items()}
        there = [{name: field.to(DEVICE) for name, field in each.items()} for each in targets]
        return {name: torch.stack([each[name] for each in there]) for name in collated}

    def loss() -> Tensor:
        known = moved()
        with torch.autocast(DEVICE, torch.bfloat16):
            out = model(images).view(count, OBJECTS, 4 + CLASSES)
        boxes, scores = out.float().split((4, CLASSES), -1)
        crowd = known["iscrowd"].unsqueeze(-1)
        by_box = nn.functional.smooth_l1_loss(boxes * (1 - crowd), known["boxes"])
        return by_box + F.cross_entropy(scores.flatten(0, 1), known["labels"].flatten())

    repeat(training_step(optimizer, loss), mark)
