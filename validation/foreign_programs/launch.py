"""Planted: many small launches. `fault=False` launches fewer, or gives each more to do."""

import random

import torch
from torch import nn
from torch.optim import SGD, Adam

from validation.foreign_programs.parts import (
    DEVICE,
    GPT2_VOCAB,
    Step,
    gpt2,
    graph_of,
    images,
    replay_step,
    timm_model,
    tokens,
    torchvision_model,
    training_step,
)


def gpt2_generate(fault: bool) -> Step:
    """Generates 16 tokens eagerly; without the fault replays a CUDA graph of one token 16 times."""
    model = gpt2().to(DEVICE).eval().to(torch.bfloat16)
    x = tokens(1, 32, GPT2_VOCAB)
    if not fault:
        return replay_step(graph_of(lambda: model(x[:, :1], use_cache=False)), 16)

    def generate() -> None:
        with torch.no_grad():
            model.generate(x, max_new_tokens=16, do_sample=False, pad_token_id=0)  # type: ignore[operator]

    return generate


def mobilenet_small_batch(fault: bool) -> Step:
    """Batches of 4 images instead of 512."""
    step = training_step(torchvision_model("mobilenet_v3_large"))
    x, y = images(4 if fault else 512)
    return lambda: step(x, y)


def deit_looped_adam(fault: bool) -> Step:
    """Adam that updates one parameter after the other."""
    model = timm_model("deit_small_patch16_224")
    fused = False if fault else None
    step = training_step(model, lambda p: Adam(p, foreach=not fault, fused=fused))
    x, y = images(8)
    return lambda: step(x, y)


def efficientnet_few_images(fault: bool) -> Step:
    """Batches of 8 images instead of 256."""
    step = training_step(torchvision_model("efficientnet_b0"))
    x, y = images(8 if fault else 256)
    return lambda: step(x, y)


def lstm_by_cells(fault: bool) -> Step:
    """An LSTM as a Python loop over cells instead of cuDNN's."""
    cell, fused = nn.LSTMCell(256, 256).to(DEVICE), nn.LSTM(256, 256).to(DEVICE)
    x = torch.randn(128, 64, 256, device=DEVICE)

    def by_cells() -> None:
        h = c = torch.zeros(64, 256, device=DEVICE)
        for time in range(128):
            h, c = cell(x[time], (h, c))
        h.sum().backward()

    return by_cells if fault else lambda: fused(x)[0].sum().backward()


def t5_generates(fault: bool) -> Step:
    """Generates 24 tokens one by one; without the fault they are given, and go through at once."""
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(T5Config(decoder_start_token_id=0)).to(DEVICE).eval()
    vocab = 32000
    x = tokens(4, 64, vocab)

    def infer() -> None:
        with torch.no_grad():
            if fault:
                model.generate(x, max_new_tokens=24, min_new_tokens=24, do_sample=False)
            else:
                model(input_ids=x, decoder_input_ids=tokens(4, 24, vocab))

    return infer


def regnet_few_images(fault: bool) -> Step:
    """Batches of 4 images instead of 128."""
    step = training_step(timm_model("regnety_032"))
    x, y = images(4 if fault else 128)
    return lambda: step(x, y)


def densenet_looped_sgd(fault: bool) -> Step:
    """SGD that updates one parameter after the other."""
    model = torchvision_model("densenet201")
    step = training_step(model, lambda p: SGD(p, 1e-3, momentum=0.9, foreach=not fault))
    x, y = images(8)
    return lambda: step(x, y)


def resnet18_augments_one_by_one(fault: bool) -> Step:
    """Jitters colours on the GPU image by image, instead of the whole batch at once."""
    from torchvision import transforms

    jitter = transforms.ColorJitter(0.4, 0.4, 0.4)
    step = training_step(torchvision_model("resnet18"))
    x, y = images(64)
    x = x.clamp(0, 1)

    def augment_and_step() -> None:
        step(torch.stack([jitter(image) for image in x]) if fault else jitter(x), y)

    return augment_and_step


def shufflenet_crops_one_by_one(fault: bool) -> Step:
    """Classifies twenty crops of a picture one by one, instead of as a batch."""
    model = torchvision_model("shufflenet_v2_x1_0").to(DEVICE).eval()
    picture = images(1, 1024)[0][0]
    corners = [(random.randrange(800), random.randrange(800)) for _ in range(20)]

    def infer() -> None:
        crops = torch.stack([picture[:, y : y + 224, x : x + 224] for x, y in corners])
        with torch.no_grad():
            for part in crops.split(1 if fault else len(crops)):
                model(part).argmax(1)

    return infer
