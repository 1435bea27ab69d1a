"""Draws the next tokens from logits, with a random generator for each sequence."""

import torch
from torch import Tensor

# lowest temperature that draws: logits divided by it are still finite, and below it no token but
# the likeliest has a chance
COLDEST = 1e-30


class Noise:
    """Gumbel noise for the next draws of B sequences, each from a generator of its own.

    So a text does not depend on those drawn beside it. Noise for several tokens is drawn at once,
    outside of CUDA graphs: in a graph a generator would cost two more kernels at each replay.
    """

    def __init__(self, batch: int, tokens: int, vocab_size: int, device: torch.device):
        self.numbers = torch.zeros(batch, tokens, vocab_size, device=device)
        self.index = torch.zeros(1, dtype=torch.long, device=device)  # of the next noise
        self.generators = [torch.Generator(device) for _ in range(batch)]
        self.used = tokens

    def seed(self, first: int) -> None:
        """Seeds the generators: `first` for the first sequence, one more for each that follows."""
        for seed, generator in enumerate(self.generators, first):
            generator.manual_seed(seed)
        self.used = self.numbers.size(1)

    def prepare(self) -> None:
        """Makes noise for the next draw. Call it before each draw, outside of CUDA graphs."""
        if self.used == self.numbers.size(1):
            for numbers, generator in zip(self.numbers, self.generators, strict=True):
                numbers.exponential_(generator=generator)
            self.numbers.log_().neg_()
            self.index.zero_()
            self.used = 0
        self.used += 1

    def next(self) -> Tensor:
        """The noise (B, V) of the next draw; can be part of a CUDA graph."""
        noise = self.numbers.index_select(1, self.index).squeeze(1)
        self.index.add_(1)
        return noise


def noise_for(
    temperature: float, batch: int, tokens: int, vocab_size: int, device: torch.device
) -> Noise | None:
    """Noise for draws at this temperature; None if each draw takes the likeliest token."""
    return None if temperature < COLDEST else Noise(batch, tokens, vocab_size, device)


def draw_token(
    logits: Tensor, temperature: float, top_k: int | None, noise: Tensor | None, out: Tensor
) -> None:
    """Draws tokens from logits (B, V) into `out` (B, 1); the likeliest ones without noise (B, V).

    A token with probability p has the largest log p + Gumbel noise with probability p. This does
    what torch.multinomial does without its checks, which wait for the GPU, and without the softmax,
    whose sum changes no order.
    """
    if noise is None:
        torch.argmax(logits, dim=-1, keepdim=True, out=out)
        return
    logits = likeliest(logits, top_k)
    scores = torch.add(noise, logits, alpha=1 / temperature)  # float32, as the noise is
    torch.argmax(scores, dim=-1, keepdim=True, out=out)


def likeliest(logits: Tensor, top_k: int | None) -> Tensor:
    """Logits (B, V) with all but the `top_k` largest of each row set to -inf.

    If `top_k` is None or covers the vocabulary, they are returned as they are.
    """
    if top_k is None or top_k >= logits.size(-1):
        return logits
    smallest = logits.topk(top_k).values[:, -1:]
    return logits.masked_fill(logits < smallest, float("-inf"))
