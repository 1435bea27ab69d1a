"""Planted: Python, or the processor, does something else. `fault=False` leaves it out."""

import copy
import gc
import hashlib
import io
import json
import os
import random
import time
from collections.abc import Sequence

import numpy as np

from validation.foreign_programs.parts import (
    Step,
    bert,
    images,
    timm_model,
    tokens,
    torchvision_model,
    training_step,
)


def add_work(step: Step, work: Step | None) -> Step:
    """Step that is followed by `work`, if there is any."""

    def both() -> None:
        step()
        if work:
            work()

    return both


def image_step(name: str, library: str = "timm") -> Step:
    """Training on a resident batch of 64 images."""
    step = training_step(timm_model(name) if library == "timm" else torchvision_model(name))
    x, y = images(64)
    return lambda: step(x, y)


def text_step() -> Step:
    """Training a BERT of four layers on a resident batch of 32 times 128 tokens."""
    step = training_step(bert(4))
    x = tokens(32, 128)
    return lambda: step(x, x)


def edit_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """Levenshtein distance of two sequences."""
    row = list(range(len(b) + 1))
    for i, one in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (one != other))
    return row[-1]


def bert_python_metric(fault: bool) -> Step:
    """Three edit distances of 300 words each, in Python."""
    words = [random.randint(0, 50) for _ in range(300)]

    def distances() -> None:
        for _ in range(3):
            edit_distance(words, words[::-1])

    return add_work(text_step(), distances if fault else None)


def vit_gc(fault: bool) -> Step:
    """Collects garbage among a million and a half objects."""
    step = image_step("vit_tiny_patch16_224")
    kept = [[i] for i in range(1_500_000 if fault else 0)]

    def collect() -> None:
        gc.collect()
        len(kept)

    return add_work(step, collect if fault else None)


def resnet26_sleeps(fault: bool) -> Step:
    """Sleeps 40 ms."""
    return add_work(image_step("resnet26"), (lambda: time.sleep(0.04)) if fault else None)


def deit_json_log(fault: bool) -> Step:
    """Writes 60,000 numbers as JSON."""
    values = [random.random() for _ in range(60_000)]
    dump = (lambda: json.dumps({"step": 1, "values": values})) if fault else None
    return add_work(image_step("deit_tiny_patch16_224"), dump)


def bert_checksum(fault: bool) -> Step:
    """SHA-256 of 32 MiB."""
    blob = os.urandom(1 << 25)
    return add_work(text_step(), (lambda: hashlib.sha256(blob).hexdigest()) if fault else None)


def resnet18_spins(fault: bool) -> Step:
    """A loop that asks the clock until 40 ms are over."""

    def spin() -> None:
        start = time.perf_counter()
        while time.perf_counter() - start < 0.04:
            pass

    return add_work(image_step("resnet18", "torchvision"), spin if fault else None)


def bert_sorts_a_list(fault: bool) -> Step:
    """Sorts 150,000 numbers."""
    values = [random.random() for _ in range(150_000)]
    return add_work(text_step(), (lambda: sorted(values)) if fault else None)


def mixer_deepcopies(fault: bool) -> Step:
    """Copies 20,000 small lists, deeply."""
    state = {str(i): [[j, str(j)] for j in range(40)] for i in range(500)}
    deepcopy = (lambda: copy.deepcopy(state)) if fault else None
    return add_work(image_step("mixer_s32_224"), deepcopy)


def efficientnet_saves_pictures(fault: bool) -> Step:
    """Compresses a picture of 512 x 1,024 pixels as PNG, to look at later."""
    from PIL import Image

    picture = Image.fromarray(np.random.randint(0, 255, (512, 1024, 3), dtype=np.uint8))
    save = (lambda: picture.save(io.BytesIO(), "PNG")) if fault else None
    return add_work(image_step("efficientnet_b0"), save)


def bert_keeps_beams_in_lists(fault: bool) -> Step:
    """Lengthens, sorts and cuts the beams of a search, as lists of Python."""
    scores = [[random.random() for _ in range(2_000)] for _ in range(8)]

    def search() -> None:
        beams: list[tuple[float, list[int]]] = [(0.0, [])] * 8
        for _ in range(4):
            longer = [
                (score + scores[beam][token], [*words, token])
                for beam, (score, words) in enumerate(beams)
                for token in range(2_000)
            ]
            beams = sorted(longer, reverse=True)[:8]

    return add_work(text_step(), search if fault else None)


def resnet18_spectrum_of_its_head(fault: bool) -> Step:
    """Singular values of the last layer's weights, in NumPy, to watch their rank."""
    model = torchvision_model("resnet18")
    step = training_step(model)
    x, y = images(64)
    weights = model.get_submodule("fc").get_parameter("weight")

    def spectrum() -> None:
        np.linalg.svd(weights.detach().cpu().numpy(), compute_uv=False)

    return add_work(lambda: step(x, y), spectrum if fault else None)
