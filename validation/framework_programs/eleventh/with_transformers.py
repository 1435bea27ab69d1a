"""A program of transformers: attention to keys that several heads share."""

import torch
import torch.nn.functional as F
from transformers.models.llama.modeling_llama import repeat_kv

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import bfloats


def lm_repeats_heads(fault: bool, mark: Mark) -> None:
    """Repeats keys and values for each of four heads that share them; without it they are shared.

    Four times what the cache holds is written and read for each token.
    """
    texts, heads, groups, length, channels = size(32, 2), size(8, 2), 4, size(4096, 8), 128
    caches = [[bfloats(texts, heads, length, channels) for _ in "kv"] for _ in range(size(4, 1))]
    word = bfloats(texts, heads * groups, 1, channels)

    def step() -> None:
        q = word
        for keys, values in caches:
            if fault:
                keys, values = (repeat_kv(each, groups) for each in (keys, values))
                q = F.scaled_dot_product_attention(q, keys, values)
            else:
                shared = q.view(texts, heads, groups, channels)
                q = F.scaled_dot_product_attention(shared, keys, values).reshape(word.shape)

    with torch.no_grad():
        repeat(step, mark)
