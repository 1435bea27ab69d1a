"""Planted: memory is taken and given back. `fault=False` keeps it."""

import itertools

import torch
import torch.nn.functional as F
from torch.optim import AdamW

from validation.foreign_programs.parts import (
    DEVICE,
    GPT2_VOCAB,
    Step,
    add_hooks,
    bert,
    gpt2,
    images,
    labels,
    timm_model,
    tokens,
    torchvision_model,
    training_step,
)


def resnet50_empty_cache(fault: bool) -> Step:
    """Calls torch.cuda.empty_cache() after each step."""
    step = training_step(torchvision_model("resnet50"))
    x, y = images(32)

    def step_and_empty() -> None:
        step(x, y)
        if fault:
            torch.cuda.empty_cache()

    return step_and_empty


def vit_growing_shapes(fault: bool) -> Step:
    """Runs images of another size each time, and empties the cache after each."""
    model = timm_model("vit_small_patch16_224", dynamic_img_size=True)
    model = model.to(DEVICE).to(torch.bfloat16).eval()
    sizes = itertools.cycle(range(160, 420, 16))

    def infer() -> None:
        size = next(sizes) if fault else 224
        with torch.no_grad():
            model(torch.randn(48, 3, size, size, device=DEVICE, dtype=torch.bfloat16))
        if fault:
            torch.cuda.empty_cache()

    return infer


def vit_empties_cache_in_layers(fault: bool) -> Step:
    """Calls torch.cuda.empty_cache() after each block."""
    model = timm_model("vit_small_patch16_224")
    if fault:
        add_hooks(model, ["Block"], lambda *_: torch.cuda.empty_cache())
    step = training_step(model)
    x, y = images(64)
    return lambda: step(x, y)


def resnet18_pins_each_batch(fault: bool) -> Step:
    """Pins the batch and a buffer of another size in each step, instead of one buffer once."""
    step = training_step(torchvision_model("resnet18"))
    host = torch.randn(16, 3, 224, 224)
    kept, y = host.pin_memory(), labels(16)
    numbers = itertools.count(1)

    def pin() -> None:
        runtime = torch.cuda.cudart()
        runtime.cudaHostRegister(host.data_ptr(), host.numel() * 4, 0)
        runtime.cudaHostUnregister(host.data_ptr())
        size = (48 << 20) + 4096 * next(numbers) * 977
        torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def copy_and_step() -> None:
        if fault:
            pin()
        step(kept.to(DEVICE, non_blocking=True), y)

    return copy_and_step


def bert_empties_cache_twice(fault: bool) -> Step:
    """Calls torch.cuda.empty_cache() before the backward pass and after the update."""
    model = bert(12).to(DEVICE)
    optimizer = AdamW(model.parameters(), 1e-4)
    x = tokens(32, 256)

    def empty() -> None:
        if fault:
            torch.cuda.empty_cache()

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x).logits.flatten(0, 1), x.flatten())
        empty()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        empty()

    return step


def fcn_empties_cache_between_tiles(fault: bool) -> Step:
    """Runs eight tiles of a large image, and calls torch.cuda.empty_cache() after each."""
    from torchvision.models import get_model

    model = get_model("fcn_resnet50", weights_backbone=None, num_classes=21)
    model = model.to(DEVICE).eval().to(torch.bfloat16)
    image = images(1, 4096)[0][:, :, :2048].to(torch.bfloat16)
    tiles = [tile for row in image.split(1024, 2) for tile in row.split(1024, 3)]

    def infer() -> None:
        with torch.no_grad():
            for tile in tiles:
                model(tile)["out"].argmax(1)
                if fault:
                    torch.cuda.empty_cache()

    return infer


def gpt2_empties_cache_between_chunks(fault: bool) -> Step:
    """Scores a text in 64 chunks, to save memory, and empties the cache after each."""
    model = gpt2(4).to(DEVICE).eval().to(torch.bfloat16)
    transformer, head = model.get_submodule("transformer"), model.get_submodule("lm_head")
    x = tokens(16, 1024, GPT2_VOCAB)

    def infer() -> None:
        with torch.no_grad():
            hidden = transformer(x, use_cache=False).last_hidden_state.flatten(0, 1)
            for chunk, words in zip(hidden.split(256), x.flatten().split(256), strict=True):
                F.cross_entropy(head(chunk).float(), words)
                if fault:
                    torch.cuda.empty_cache()

    return infer
