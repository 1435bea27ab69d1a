"""A program of torch-geometric: a graph whose clusters are counted by networkx."""

import networkx
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_networkx

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step


def geometric_asks_networkx(fault: bool, mark: Mark) -> None:
    """Counts how clustered each node is by networkx in each step; without the fault once.

    The graph becomes dictionaries of Python, whose triangles are counted in Python.
    """
    nodes, width = size(1600, 20), size(256, 8)
    graph = Data(edge_index=torch.randint(0, nodes, (2, 4 * nodes), device=DEVICE), num_nodes=nodes)
    layers = nn.ModuleList(GCNConv(width, width) for _ in range(3)).to(DEVICE)
    optimizer = torch.optim.Adam(layers.parameters(), 1e-3, fused=True)
    x = torch.randn(nodes, width - 1, device=DEVICE)

    def clustered() -> Tensor:
        made = networkx.clustering(to_networkx(graph, to_undirected=True))
        return torch.tensor([made[node] for node in range(nodes)], device=DEVICE)[:, None]

    known = clustered()

    def loss() -> Tensor:
        h = torch.cat([x, clustered() if fault else known], 1)
        for layer in layers:
            h = layer(h, graph.edge_index).tanh()
        return h.square().mean()

    repeat(training_step(optimizer, loss), mark)
