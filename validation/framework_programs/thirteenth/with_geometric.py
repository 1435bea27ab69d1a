"""A program of torch-geometric: a graph that does not change."""

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step


def geometric_norms_each_time(fault: bool, mark: Mark) -> None:
    """Norms the graph's weights in each of eight layers and steps; without it cached=True.

    The loops at nodes are picked by four masks, and the host waits for the length of each.
    """
    nodes, width = size(20_000, 20), size(64, 8)
    edges = torch.randint(0, nodes, (2, 10 * nodes), device=DEVICE)
    weights = torch.rand(edges.shape[1], device=DEVICE)
    layers = nn.ModuleList(GCNConv(width, width, cached=not fault) for _ in range(8)).to(DEVICE)
    optimizer = torch.optim.AdamW(layers.parameters(), 1e-3, fused=True)
    x = torch.randn(nodes, width, device=DEVICE)

    def loss() -> Tensor:
        h = x
        for layer in layers:
            h = h + layer(h, edges, weights).tanh()
        return h.square().mean()

    repeat(training_step(optimizer, loss), mark)
