"""A program of torch-geometric: a graph of few edges."""

import torch
from torch import nn
from torch_geometric.nn import DenseGraphConv, GraphConv
from torch_geometric.utils import to_dense_adj

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


def geometric_dense_neighbours(fault: bool, mark: Mark) -> None:
    """Sums neighbours by a matrix of all pairs of 12,000 nodes; without the fault by 96,000 edges.

    All but one of 1,500 numbers of the matrix are zeros.
    """
    nodes, width = size(12_000, 20), size(512, 8)
    edges = torch.randint(0, nodes, (2, 8 * nodes), device=DEVICE)
    kind = DenseGraphConv if fault else GraphConv
    layers = nn.ModuleList(kind(width, width) for _ in range(3)).to(DEVICE)
    neighbours = to_dense_adj(edges, max_num_nodes=nodes)[0].T if fault else edges
    x = torch.randn(nodes, width, device=DEVICE)

    def step() -> None:
        h = x
        for layer in layers:
            h = layer(h, neighbours).tanh()

    with torch.no_grad():
        repeat(step, mark)
