"""Planted: bytes that cross the link to the GPU. `fault=False` leaves them where they are."""

import contextlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import AdamW

from validation.foreign_programs.parts import (
    CLASSES,
    DEVICE,
    Step,
    bert,
    images,
    labels,
    timm_model,
    tokens,
    torchvision_model,
    training_step,
)


def convolution_pageable(fault: bool) -> Step:
    """Copies 600 MB of images from pageable memory each step."""
    layers = [nn.Conv2d(3, 8, 7, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    step = training_step(nn.Sequential(*layers, nn.Linear(8, CLASSES)))
    host = torch.randn(192, 3, 512, 512)
    resident, y = host.to(DEVICE), labels(192)
    return lambda: step(host.to(DEVICE) if fault else resident, y)


def resnet18_pinned_full_link(fault: bool) -> Step:
    """Copies 1.4 GB of pinned memory each step; without the fault the images alone, as bytes."""
    step = training_step(torchvision_model("resnet18"))
    host = torch.randn(512, 3, 224, 224).pin_memory()
    small = torch.randint(0, 255, (512, 3, 224, 224), dtype=torch.uint8).pin_memory()
    y = labels(512)
    extra = torch.empty(1 << 28).pin_memory() if fault else None

    def copy_and_step() -> None:
        if extra is not None:
            extra.to(DEVICE, non_blocking=True)
        x = (host if fault else small).to(DEVICE, non_blocking=True).float()
        step(x, y)

    return copy_and_step


def bert_logits_home(fault: bool) -> Step:
    """Copies all logits to the host; without the fault the most likely tokens alone."""
    model = bert(4).to(DEVICE).eval().to(torch.bfloat16)
    x = tokens(64, 256)

    def infer() -> None:
        with torch.no_grad():
            out = model(x).logits
        if fault:
            out.cpu()
        else:
            out.argmax(-1).cpu()

    return infer


def vit_features_home_pinned(fault: bool) -> Step:
    """Copies the features twelve times over, as float32, to pinned memory."""
    model = timm_model("vit_small_patch16_224").to(DEVICE).eval().to(torch.bfloat16)
    x = images(256)[0].to(torch.bfloat16)
    home = torch.empty(256, 197, 384 * 12, dtype=torch.float32).pin_memory()

    def infer() -> None:
        with torch.no_grad():
            features = model.forward_features(x)  # type: ignore[operator]
        if fault:
            home.copy_(features.float().repeat(1, 1, 12), non_blocking=True)
        torch.cuda.synchronize()

    return infer


def bert_weights_streamed(fault: bool) -> Step:
    """Sixteen linear layers whose weights come from the host each time."""
    layers = [nn.Linear(4096, 4096) for _ in range(16)]
    host = [layer.weight.data.clone().pin_memory() for layer in layers]
    resident = [layer.to(DEVICE) for layer in layers]
    x = torch.randn(64, 4096, device=DEVICE)

    def infer() -> None:
        h = x
        with torch.no_grad():
            for layer, weight in zip(resident, host, strict=True):
                used = weight.to(DEVICE, non_blocking=True) if fault else layer.weight
                h = F.gelu(F.linear(h, used, layer.bias))

    return infer


def resnet18_double_arrays(fault: bool) -> Step:
    """Copies NumPy's doubles from pageable memory, and converts them to float32 on the GPU."""
    step = training_step(torchvision_model("resnet18"))
    doubles = np.random.rand(64, 3, 224, 224)
    resident = torch.from_numpy(doubles.astype("float32")).to(DEVICE)
    y = labels(64)
    return lambda: step(torch.from_numpy(doubles).to(DEVICE).float() if fault else resident, y)


def video_batches(fault: bool) -> Step:
    """Copies 96 videos, of which it uses two; without the fault these two."""
    layers = [nn.Conv3d(3, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()]
    step = training_step(nn.Sequential(*layers, nn.Linear(16, CLASSES)), amp=False)
    host = torch.randn(96 if fault else 2, 3, 16, 112, 112).pin_memory()
    y = labels(2)
    return lambda: step(host.to(DEVICE, non_blocking=True)[:2], y)


def vit_saved_on_cpu(fault: bool) -> Step:
    """Keeps what backward needs in the host's pageable memory."""
    model = timm_model("vit_small_patch16_224").to(DEVICE)
    optimizer = AdamW(model.parameters(), 1e-4)
    x, y = images(64)

    def step() -> None:
        on_cpu = torch.autograd.graph.save_on_cpu(pin_memory=False)
        place = on_cpu if fault else contextlib.nullcontext()
        with place, torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def lraspp_masks_of_floats(fault: bool) -> Step:
    """Copies a float of each class for each pixel; without the fault the class alone, as a byte."""
    from torchvision.models import get_model

    classes = 100
    model = get_model("lraspp_mobilenet_v3_large", weights_backbone=None, num_classes=classes)
    model = model.to(DEVICE).train()
    optimizer = AdamW(model.parameters(), 1e-4)
    x = images(16, 256)[0]
    masks = torch.randint(0, classes, (16, 256, 256), dtype=torch.uint8)
    floats = F.one_hot(masks.long(), classes).permute(0, 3, 1, 2).float().contiguous()

    def step() -> None:
        target = floats.to(DEVICE) if fault else masks.to(DEVICE).long()
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x)["out"], target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def deit_takes_weights_from_a_server(fault: bool) -> Step:
    """Loads a server's weights from pageable memory before each step, as a federated client."""
    model = timm_model("deit_base_patch16_224")
    place = "cpu" if fault else DEVICE
    server = {name: weight.to(place, copy=True) for name, weight in model.state_dict().items()}
    step = training_step(model)
    x, y = images(16)

    def load_and_step() -> None:
        model.load_state_dict(server)
        step(x, y)

    return load_and_step


def wide_resnet_maps_home(fault: bool) -> Step:
    """Copies the feature maps of two stages to the host; without the fault their means alone."""
    model = timm_model("wide_resnet50_2", features_only=True, out_indices=(2, 3))
    model = model.to(DEVICE).eval()
    x = images(48)[0]

    def infer() -> None:
        with torch.no_grad():
            for maps in model(x):
                (maps if fault else maps.mean((2, 3))).cpu()

    return infer
