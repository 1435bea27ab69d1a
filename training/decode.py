"""One-token steps as CUDA graphs: one launch instead of hundreds. Called by sample.py.

Every length of the cache has a graph of its own: the attention is then the very one that the eager
step runs, over as many keys and under every backend, and the text is the same.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from configs.model import ModelConfig
from model import KeyValueCache


class GraphedCache(KeyValueCache):
    """A cache of one sequence; the step at each length is captured when it comes a second time.

    Every step must draw from `generator` and with the same sampling parameters.
    """

    def __init__(
        self,
        config: ModelConfig,
        device: torch.device,
        dtype: torch.dtype,
        generator: torch.Generator,
    ):
        super().__init__(config, 1, device, dtype)
        self.generator = generator
        self.token = torch.zeros(1, 1, dtype=torch.long, device=device)  # each graph's in and out
        self.graphs: dict[int, torch.cuda.CUDAGraph | None] = {}  # None: has run eagerly once
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream(device)

    def run(self, next_token: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
        length = self.length
        if tokens.size(1) > 1:
            return next_token(tokens)
        if length not in self.graphs:  # eager, so that no kernel is loaded during the capture
            self.graphs[length] = None
            return next_token(tokens)
        self.token.copy_(tokens)
        graph = self.graphs[length] = self.graphs[length] or self.capture(next_token)
        graph.replay()
        self.length = length + 1
        return self.token.clone()

    def capture(self, next_token: Callable[[Tensor], Tensor]) -> torch.cuda.CUDAGraph:
        """Not with torch.cuda.graph, which empties the allocator's cache each time."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool)
            self.token.copy_(next_token(self.token))
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(self.stream)
        return graph
