"""A program of torch-geometric: attention within each of many small graphs."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GINConv, GraphNorm, global_mean_pool
from torch_geometric.utils import to_dense_batch

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE

WIDTH, GRAPHS, MOST = size(128, 16), size(1024, 4), size(64, 8)


class Layer(nn.Module):
    """Messages, a norm, attention and a mean of each graph, which is added to its nodes."""

    def __init__(self) -> None:
        super().__init__()
        linear = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.messages, self.norm = GINConv(linear), GraphNorm(WIDTH)

    def forward(
        self, x: Tensor, edges: Tensor, graph: Tensor, graphs: int | None, most: int | None
    ) -> Tensor:
        x = self.norm(self.messages(x, edges), graph, graphs)
        dense, known = to_dense_batch(x, graph, max_num_nodes=most, batch_size=graphs)
        heads = dense.unflatten(-1, (4, -1)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(heads, heads, heads, known[:, None, None])
        dense = mixed.transpose(1, 2).flatten(-2)
        mean: Tensor = global_mean_pool(x, graph, graphs)
        return x + mean[graph] + dense.mean(1)[graph]


def geometric_counts_graphs(fault: bool, mark: Mark) -> None:
    """Lets each layer count the graphs of a batch and their nodes; without it they are given.

    The counts come to the host, which waits for the GPU four times in a layer.
    """
    sizes = torch.randint(MOST // 3, MOST, (GRAPHS,))
    graph = torch.repeat_interleave(torch.arange(GRAPHS), sizes).to(DEVICE)
    nodes = len(graph)
    ends = torch.arange(nodes, device=DEVICE)
    edges = torch.stack([ends, (ends + 1) % nodes]).repeat(1, 2)
    layers = [Layer().to(DEVICE) for _ in range(size(8, 1))]
    x = torch.randn(nodes, WIDTH, device=DEVICE)
    counts = (None, None) if fault else (GRAPHS, int(sizes.max()))

    def step() -> None:
        h = x
        for layer in layers:
            h = layer(h, edges, graph, *counts)

    with torch.no_grad():
        repeat(step, mark)
