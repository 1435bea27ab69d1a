"""Programs of torch-geometric, on one large random graph."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE

CLASSES = 40


def random_graph(nodes: int, edges: int, width: int) -> Data:
    return Data(
        x=torch.randn(nodes, width),
        edge_index=torch.randint(0, nodes, (2, edges)),
        y=torch.randint(0, CLASSES, (nodes,)),
    )


class Convolutions(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(x, edges).relu()
        out: Tensor = self.layers[-1](x, edges)
        return out


def train(model: nn.Module, graph: Data, move: bool, mark: Mark) -> None:
    model = model.to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    resident = copy.copy(graph).to(DEVICE)

    def step() -> None:
        # a copy of the object, not of its tensors: `to` changes the object
        data = copy.copy(graph).to(DEVICE) if move else resident
        optimizer.zero_grad()
        F.cross_entropy(model(data.x, data.edge_index), data.y).backward()
        optimizer.step()

    repeat(step, mark)


def geometric_moves_graph(fault: bool, mark: Mark) -> None:
    """Moves the graph to the GPU for each epoch, from pageable memory."""
    graph = random_graph(size(400_000, 100), size(800_000, 400), 256)
    model = Convolutions(SAGEConv(256, 64), SAGEConv(64, CLASSES))
    train(model, graph, fault, mark)


def geometric_control(fault: bool, mark: Mark) -> None:
    """Full-batch epochs of a GCN on a resident graph."""
    graph = random_graph(size(200_000, 100), size(2_000_000, 400), 128)
    model = Convolutions(GCNConv(128, 256, cached=True), GCNConv(256, CLASSES, cached=True))
    train(model, graph, False, mark)
