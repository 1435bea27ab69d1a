"""One-token steps as CUDA graphs: one launch instead of hundreds. Called by sample.py.

Every length of the cache has a graph of its own: the attention is then the very one that the eager
step runs, over as many keys and under every backend, and the text is the same.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from model import KeyValueCache


@dataclass
class GraphedDecode:
    """`decode` for one sequence; its step at each length is captured when it comes a second time.

    It must draw from `generator`, and always be given the same cache, whose memory graphs write to.
    """

    decode: Callable[[Tensor, KeyValueCache], Tensor]
    generator: torch.Generator

    def __post_init__(self) -> None:
        device = self.generator.device
        self.token = torch.zeros(1, 1, dtype=torch.long, device=device)  # each graph's in and out
        self.graphs: dict[int, torch.cuda.CUDAGraph | None] = {}  # None: has run eagerly once
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream(device)

    def __call__(self, tokens: Tensor, cache: KeyValueCache) -> Tensor:
        length = cache.length
        if tokens.size(1) > 1:
            return self.decode(tokens, cache)
        if length not in self.graphs:  # eager, so that no kernel is loaded during the capture
            self.graphs[length] = None
            return self.decode(tokens, cache)
        self.token.copy_(tokens)
        graph = self.graphs[length] = self.graphs[length] or self.capture(cache)
        graph.replay()
        cache.length = length + 1
        return self.token.clone()

    def capture(self, cache: KeyValueCache) -> torch.cuda.CUDAGraph:
        """Not with torch.cuda.graph, which empties the allocator's cache each time."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool)
            self.token.copy_(self.decode(self.token, cache))
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(self.stream)
        return graph
