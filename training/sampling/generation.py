"""Generates several texts at once for sample.py, a token of each per step; on CUDA as one graph.

The host stays ahead of the GPU: a step only launches, and `Arrivals` brings tokens over in pieces.
"""

from collections import deque
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from kernels.decoding import draw_newest
from model import GPT
from training.sampling.decode import KeyValueCache, read
from training.sampling.draw import draw_token, likeliest, noise_for

KEYS_ON_CUDA = 256  # keys are read in multiples of it, with one graph for each multiple
TOKENS_AHEAD = 32  # tokens that noise is drawn for at once, and that go to the host in one piece

Work = Callable[[], None]


class Writer:
    """Continues a prompt in `batch` ways; `own` uses our own kernels for single tokens.

    A full cache cannot slide, because positions are learned. Instead the last half of the context
    is read again, so each token sees block_size / 2 to block_size tokens before it.
    """

    def __init__(
        self, model: GPT, batch: int, temperature: float, top_k: int | None, own: bool = False
    ):
        weight = model.lm_head.weight
        device, self.on_cuda = weight.device, weight.is_cuda
        self.model, self.temperature, self.top_k = model, temperature, top_k
        self.cache = KeyValueCache(model, batch, KEYS_ON_CUDA if self.on_cuda else 1, own)
        # what the cache has read or reads next, and a place for the newest token if it is full
        places = model.config.block_size + 1
        self.context = torch.zeros(batch, places, dtype=torch.long, device=device)
        self.half = max(model.config.block_size // 2, 1)
        self.token = torch.zeros(batch, 1, dtype=torch.long, device=device)  # the newest
        tokens = TOKENS_AHEAD if self.on_cuda else 1
        self.noise = noise_for(temperature, batch, tokens, weight.size(0), device)
        self.run: Callable[[Hashable, Work], None] = (
            Replays(device) if self.on_cuda else run_directly
        )

    def begin(self, prompt: list[int], seed: int) -> None:
        """Begins with a prompt, of which the last block_size tokens count.

        The tokens of row k are drawn with seed + k.
        """
        prompt = prompt[-self.model.config.block_size :]
        self.end = len(prompt)  # number of tokens in the context
        self.context[:, : self.end] = torch.tensor(prompt)
        self.cache.clear()
        if self.noise:
            self.noise.seed(seed)

    @property
    def reads_one(self) -> bool:
        """Whether the next step reads only the newest token, not a prompt or half a context."""
        return 0 < self.cache.length < self.model.config.block_size

    @torch.no_grad()
    def step(self) -> None:
        """Draws the next token of each text.

        A replayed graph runs no Python, so the lengths on the host are set here.
        """
        if self.noise:
            self.noise.prepare()
        cache = self.cache
        if self.reads_one:
            length = cache.length + 1
            self.run(cache.keys, self.read_newest)
        elif cache.full:
            length = self.half
            self.run("half", self.read_half_again)
        else:
            length = self.end
            self.run(("prompt", length), self.read_from_begin)
        cache.length, self.end = length, length + 1

    def read_newest(self) -> None:
        self.draw(read(self.model, self.token, self.cache))

    def read_from_begin(self) -> None:
        self.draw(read(self.model, self.context[:, : self.end], self.cache))

    def read_half_again(self) -> None:
        self.context[:, : self.half] = self.context[:, -self.half :]
        self.cache.clear()
        self.draw(read(self.model, self.context[:, : self.half], self.cache))

    def draw(self, logits: Tensor) -> None:
        """Draws the next tokens from logits (B, V) into `token` and the context."""
        noise, position = self.noise, self.cache.position
        if noise and self.cache.own:
            logits, to = likeliest(logits, self.top_k), (self.token, self.context)
            draw_newest(logits, noise.numbers, noise.index, self.temperature, position, *to)
            noise.index.add_(1)
        else:
            numbers = noise.next() if noise else None
            draw_token(logits, self.temperature, self.top_k, numbers, out=self.token)
            self.context.index_copy_(1, position, self.token)


def run_directly(key: Hashable, work: Work) -> None:
    work()


class Replays:
    """Runs work as a CUDA graph, one for each key, captured when the key comes a second time.

    The first time the work is run directly, so that no kernel is loaded during the capture. The
    work must read and write the same memory each time.
    """

    def __init__(self, device: torch.device):
        self.graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}  # None: came once
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream(device)

    def __call__(self, key: Hashable, work: Work) -> None:
        if key not in self.graphs:
            self.graphs[key] = None
            work()
            return
        graph = self.graphs[key] = self.graphs[key] or self.capture(work)
        graph.replay()

    def capture(self, work: Work) -> torch.cuda.CUDAGraph:
        """Captures work as a graph.

        Avoids torch.cuda.graph, which empties the allocator's cache each time.
        """
        graph = torch.cuda.CUDAGraph()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool)
            work()
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(self.stream)
        return graph


class Arrivals:
    """Brings the tokens that a writer draws to the host.

    On CUDA they come in pieces of `every` tokens. A piece is read when `ahead` later ones have been
    launched, so that the GPU always has work.
    """

    def __init__(self, writer: Writer, every: int, ahead: int):
        self.writer, self.every, self.ahead = writer, every, ahead
        self.waiting = 0  # tokens of each text that are drawn and not sent
        self.on_the_way: deque[Piece] = deque()

    def after_step(self) -> list[list[int]]:
        """The new tokens of each text that have arrived, often none. Call it after each step."""
        self.waiting += 1
        # the next step moves a full context, so its tokens must be sent before
        if self.waiting < self.every and not self.writer.cache.full:
            return [[] for _ in self.writer.context]
        return self.exchange(self.ahead)

    def receive_all(self) -> list[list[int]]:
        """Sends the rest; waits for all tokens and returns the new ones of each text."""
        return self.exchange(ahead=0)

    def exchange(self, ahead: int) -> list[list[int]]:
        """Sends the waiting tokens; receives those of all pieces but the last `ahead`."""
        end = self.writer.end
        self.on_the_way.append(Piece(self.writer.context[:, end - self.waiting : end]))
        self.waiting = 0
        rows: list[list[int]] = [[] for _ in self.writer.context]
        while len(self.on_the_way) > ahead:
            for row, tokens in zip(rows, self.on_the_way.popleft().read(), strict=True):
                row += tokens
        return rows


class Piece:
    """Copy of tokens (B, N) to the host's memory, made without waiting for it."""

    def __init__(self, tokens: Tensor):
        self.arrival = torch.cuda.Event() if tokens.is_cuda else None
        self.tokens = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=tokens.is_cuda)
        self.tokens.copy_(tokens, non_blocking=True)
        if self.arrival:
            self.arrival.record()

    def read(self) -> list[list[int]]:
        """Waits for the copy and returns the tokens of each text."""
        if self.arrival:
            self.arrival.synchronize()
        return self.tokens.tolist()


def arrivals_of(writer: Writer) -> Arrivals:
    return Arrivals(writer, *((TOKENS_AHEAD, 1) if writer.on_cuda else (1, 0)))
