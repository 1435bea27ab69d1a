"""Which token comes next: draws from logits, a generator for each sequence."""

import torch
from torch import Tensor

COLDEST = (
    1e-30  # its logits are still finite; below, no other token than the likeliest has a chance
)


class Noise:
    """Gumbel noise for the next draws of B sequences, from a generator each.

    So a text does not depend on those drawn beside it. Noise for several tokens is drawn at once,
    outside of CUDA graphs: in a graph a generator would cost two more kernels at each replay.
    """

    def __init__(self, batch: int, tokens: int, vocab_size: int, device: torch.device):
        self.numbers = torch.zeros(batch, tokens, vocab_size, device=device)
        self.index = torch.zeros(1, dtype=torch.long, device=device)  # of the next token's
        self.generators = [torch.Generator(device) for _ in range(batch)]
        self.used = tokens

    def seed(self, first: int) -> None:
        """A sequence's seed is one higher than that of the one before."""
        for seed, generator in enumerate(self.generators, first):
            generator.manual_seed(seed)
        self.used = self.numbers.size(1)

    def prepare(self) -> None:
        """Before each draw; not part of a graph."""
        if self.used == self.numbers.size(1):
            for numbers, generator in zip(self.numbers, self.generators, strict=True):
                numbers.exponential_(generator=generator)
            self.numbers.log_().neg_()
            self.index.zero_()
            self.used = 0
        self.used += 1

    def next(self) -> Tensor:
        """(B, V)."""
        noise = self.numbers.index_select(1, self.index).squeeze(1)
        self.index.add_(1)
        return noise


def noise_for(
    temperature: float, batch: int, tokens: int, vocab_size: int, device: torch.device
) -> Noise | None:
    """None: no noise, each draw takes the likeliest token."""
    return None if temperature < COLDEST else Noise(batch, tokens, vocab_size, device)


def draw_token(
    logits: Tensor, temperature: float, top_k: int | None, noise: Tensor | None, out: Tensor
) -> None:
    """Draws from logits (B, V) into `out`, (B, 1); without noise, (B, V), the likeliest.

    The largest of log p + Gumbel noise is a token with probability p: torch.multinomial without its
    checks, which wait for the GPU, and without the softmax, whose sum changes no order.
    """
    if noise is None:
        torch.argmax(logits, dim=-1, keepdim=True, out=out)
        return
    logits = likeliest(logits, top_k)
    scores = torch.add(noise, logits, alpha=1 / temperature)  # float32, as the noise is
    torch.argmax(scores, dim=-1, keepdim=True, out=out)


def likeliest(logits: Tensor, top_k: int | None) -> Tensor:
    """(B, V), -inf where a row has `top_k` larger ones; None: as they are."""
    if top_k is None or top_k >= logits.size(-1):
        return logits
    smallest = logits.topk(top_k).values[:, -1:]
    return logits.masked_fill(logits < smallest, float("-inf"))
