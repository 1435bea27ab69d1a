"""A program of torch-geometric: a graph of many relations."""

import torch
from torch import Tensor, nn
from torch_geometric.nn import HeteroConv, SAGEConv

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step


def geometric_relation_by_relation(fault: bool, mark: Mark) -> None:
    """Convolves each of 40 relations by a layer of its own; without the fault all as of one kind.

    HeteroConv calls layer after layer, and each is a dozen small kernels.
    """
    nodes, edges, width = size(2_000, 20), size(4_000, 40), size(64, 8)
    names = [("node", f"relation{number}", "node") for number in range(size(40, 3))]
    each = {name: torch.randint(0, nodes, (2, edges), device=DEVICE) for name in names}
    if not fault:
        each = {names[0]: torch.cat(list(each.values()), 1)}

    convolutions = [{name: SAGEConv(width, width, aggr="sum") for name in each} for _ in range(2)]
    layers = nn.ModuleList(map(HeteroConv, convolutions)).to(DEVICE)
    optimizer = torch.optim.Adam(layers.parameters(), 1e-3, fused=True)
    start = torch.randn(nodes, width, device=DEVICE)

    def loss() -> Tensor:
        x = start
        for layer in layers:
            x = layer({"node": x}, each)["node"].tanh()
        return x.square().mean()

    repeat(training_step(optimizer, loss), mark)
