"""Planted: the host waits for the GPU. `fault=False` keeps the values on the GPU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from validation.foreign_programs.parts import (
    CLASSES,
    DEVICE,
    Step,
    add_hooks,
    bert,
    images,
    timm_model,
    tokens,
    torchvision_model,
    training_step,
)


def bert_grad_norms(fault: bool) -> Step:
    """Calls .item() on the norm of each parameter after the update."""
    model = bert()
    step = training_step(model)
    x = tokens(16, 128)

    def step_and_log() -> None:
        step(x, x)
        if fault:
            for parameter in model.parameters():
                torch.linalg.vector_norm(parameter).item()

    return step_and_log


def bert_boolean_index(fault: bool) -> Step:
    """Indexes by booleans after each norm: the size of the result has to come to the host."""
    model = bert(8, 512)

    def select(module: nn.Module, inputs: object, output: Tensor) -> None:
        assert output[torch.isnan(output)].numel() == 0

    if fault:
        add_hooks(model, ["LayerNorm"], select)
    step = training_step(model)
    x = tokens(16, 256)
    return lambda: step(x, x)


def vit_nan_checks(fault: bool) -> Step:
    """Branches by `if` on a check for NaN after each linear layer and norm."""
    model = timm_model("vit_small_patch16_224")

    def check(module: nn.Module, inputs: object, output: Tensor) -> None:
        if torch.isnan(output).any():
            raise FloatingPointError(f"NaN behind {module}")

    if fault:
        for module in model.modules():  # timm's norms have classes of their own
            if isinstance(module, (nn.Linear, nn.LayerNorm)):
                module.register_forward_hook(check)
    step = training_step(model)
    x, y = images(128)
    return lambda: step(x, y)


def vit_clipping_by_if(fault: bool) -> Step:
    """Clips each gradient by an `if` on its norm; without the fault by a factor on the GPU."""
    model = timm_model("vit_small_patch16_224").to(DEVICE)
    optimizer = SGD(model.parameters(), lr=1e-3)
    x, y = images(96)

    def clip(gradient: Tensor) -> None:
        norm = gradient.norm()
        if not fault:
            gradient.mul_((1 / norm).clamp(max=1))
        elif norm > 1:
            gradient.mul_(1 / norm)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            clip(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()

    return step


def mixer_synchronised_blocks(fault: bool) -> Step:
    """Calls torch.cuda.synchronize() after each MLP, forward and backward."""
    model = timm_model("mixer_b16_224")
    if fault:
        for module in model.modules():
            if type(module).__name__ == "Mlp":
                module.register_forward_hook(lambda *_: torch.cuda.synchronize())
                module.register_full_backward_hook(lambda *_: torch.cuda.synchronize())
    step = training_step(model)
    x, y = images(64)
    return lambda: step(x, y)


def resnet50_statistics_home(fault: bool) -> Step:
    """Calls .item() on the mean after each convolution, norm and activation."""
    model = torchvision_model("resnet50")

    def check(module: nn.Module, inputs: object, output: Tensor) -> None:
        if output.mean().item() > 1e9:
            raise FloatingPointError(f"very large behind {module}")

    if fault:
        add_hooks(model, ["Conv2d", "BatchNorm2d", "ReLU"], check)
    step = training_step(model)
    x, y = images(64)
    return lambda: step(x, y)


def vit_tolist_in_blocks(fault: bool) -> Step:
    """Calls .tolist() on four values of each image after each layer."""
    model = timm_model("vit_base_patch16_224")

    def read_values(module: nn.Module, inputs: object, output: Tensor) -> None:
        output[:, 0, :4].tolist()

    if fault:
        for module in model.get_submodule("blocks").modules():  # timm's norms have their own class
            if isinstance(module, (nn.Linear, nn.LayerNorm, nn.GELU)):
                module.register_forward_hook(read_values)
    step = training_step(model)
    x, y = images(48)
    return lambda: step(x, y)


def resnet18_losses_one_by_one(fault: bool) -> Step:
    """Calls .item() on the loss of each of 512 images, to log the hardest."""
    model = torchvision_model("resnet18").to(DEVICE)
    optimizer = SGD(model.parameters(), lr=1e-3)
    x, y = images(512, 96)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            losses = F.cross_entropy(model(x), y, reduction="none")
        losses.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if fault:
            max(loss.item() for loss in losses.detach().unbind())

    return step


def resnet50_boxes_by_if(fault: bool) -> Step:
    """Branches by `if` on the score of each of 600 boxes that torchvision's NMS leaves."""
    from torchvision.ops import batched_nms

    model = torchvision_model("resnet50").to(DEVICE).eval().to(torch.bfloat16)
    x = images(64)[0].to(torch.bfloat16)
    corners = torch.rand(600, 2, device=DEVICE) * 1000
    boxes = torch.cat((corners, corners + 4), 1)
    scores, classes = torch.rand(600, device=DEVICE), torch.arange(600, device=DEVICE)

    def infer() -> None:
        with torch.no_grad():
            model(x)
            kept = batched_nms(boxes, scores, classes, 0.5)
            if fault:
                [box for box, score in zip(boxes[kept], scores[kept], strict=True) if score > 0.3]
            else:
                boxes[kept][scores[kept] > 0.3]

    return infer


def resnext_counts_confusions(fault: bool) -> Step:
    """Adds to a confusion matrix on the GPU by a loop over labels and predictions."""
    model = torchvision_model("resnext50_32x4d").to(DEVICE).eval().to(torch.bfloat16)
    x, y = images(512, 96)
    x = x.to(torch.bfloat16)
    confusions = torch.zeros(CLASSES, CLASSES, device=DEVICE)

    def infer() -> None:
        with torch.no_grad():
            predicted = model(x).argmax(1)
        if fault:
            for label, prediction in zip(y, predicted, strict=True):
                confusions[label, prediction] += 1  # an index comes home for each
        else:
            confusions.index_put_((y, predicted), torch.ones_like(y).float(), accumulate=True)

    return infer
