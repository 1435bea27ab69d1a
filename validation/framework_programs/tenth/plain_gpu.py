"""Programs of PyTorch alone whose time is the GPU's own."""

import torch
import torch.nn.functional as F

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import bfloats


def plain_attends_to_all(fault: bool, mark: Mark) -> None:
    """Attends to all of a text of 32,768 words; without the fault in windows of 1,024.

    The pairs of words are thirty times as many, and their products nearly all of the work.
    """
    length, width = size(32_768, 32), size(1024, 16)
    window = length if fault else size(1024, 8)
    projects = [bfloats(3 * width, width) * width**-0.5 for _ in range(size(6, 1))]
    text = bfloats(length, width)

    def step() -> None:
        h = text
        for project in projects:
            parts = F.linear(F.layer_norm(h, (width,)), project).view(-1, window, 3, width)
            q, k, v = parts.unflatten(-1, (-1, size(64, 8))).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + mixed.transpose(1, 2).reshape(length, width)

    with torch.no_grad():
        repeat(step, mark)


def plain_shifts_cache(fault: bool, mark: Mark) -> None:
    """Drops the oldest key by torch.cat; without the fault the new one takes its place.

    Each token copies all keys and values of each layer, which attention reads once.
    """
    texts, heads, length, channels = size(32, 2), size(8, 2), size(4096, 8), size(128, 8)
    width, layers = heads * channels, size(8, 1)
    caches = [[bfloats(texts, heads, length, channels) for _ in "kv"] for _ in range(layers)]
    projects = [bfloats(3 * width, width) * width**-0.5 for _ in caches]
    words = bfloats(texts, width)

    def step() -> None:
        h = words
        for place in range(2):
            for cache, project in zip(caches, projects, strict=True):
                q, *new = F.linear(h, project).view(texts, 3, heads, 1, channels).unbind(1)
                for number, row in enumerate(new):
                    if fault:
                        cache[number] = torch.cat([cache[number][:, :, 1:], row], 2)
                    else:
                        cache[number][:, :, place : place + 1] = row
                keys, values = cache
                h = h + F.scaled_dot_product_attention(q, keys, values).flatten(1)

    with torch.no_grad():
        repeat(step, mark)
