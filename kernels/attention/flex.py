"""FlexAttention of PyTorch: causal, and compiled where that is possible."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention


def attend_flex(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """FlexAttention, compiled with the model or by itself; on a CPU eager and forward only."""
    if torch.compiler.is_compiling():
        mask = causal_block_mask(q.size(-2), q.device) if causal else None
        return flex_attention(q, k, v, block_mask=mask)
    mask = cached_block_mask(q.size(-2), q.device) if causal else None
    # Eager, it would materialise the scores. On a CPU it cannot be compiled with gradients.
    if q.is_cuda:
        return compiled_flex_attention()(q, k, v, block_mask=mask)
    return flex_attention(q, k, v, block_mask=mask)


def causal_block_mask(tokens: int, device: torch.device) -> BlockMask:
    return create_block_mask(
        lambda b, h, query, key: query >= key, None, None, tokens, tokens, device=device
    )


cached_block_mask = lru_cache(causal_block_mask)


@lru_cache
def compiled_flex_attention() -> Callable[..., Tensor]:
    return torch.compile(flex_attention)
