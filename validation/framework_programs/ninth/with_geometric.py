"""Programs of torch-geometric: graphs of a loader, and one large graph."""

import itertools

import torch
from torch import Tensor
from torch_geometric.loader import DataLoader
from torch_geometric.nn import LGConv, SAGEConv, global_mean_pool
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.transforms import AddRandomWalkPE
from torch_geometric.utils import to_torch_csr_tensor

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, Made, training_step
from validation.framework_programs.with_geometric import Convolutions, random_graph

WALK = 20  # steps of the random walks that encode where a node is


def geometric_walks_again(fault: bool, mark: Mark) -> None:
    """Encodes nodes by random walks each time a graph is read; without the fault once, before.

    Three workers multiply each graph's dense matrix 19 times by itself, on a core each.
    """
    nodes, count, batch, width = size(384, 12), size(48, 4), size(16, 2), size(256, 16)
    encode = AddRandomWalkPE(WALK, attr_name=None)  # behind the node's other numbers
    graphs = [random_graph(nodes, 8 * nodes, 32) for _ in range(count)]
    ready = list(map(encode, graphs))
    made = Made(lambda i: encode(graphs[i % count]) if fault else ready[i % count])
    batches = iter(DataLoader(made, batch, num_workers=size(3, 1)))
    widths = (32 + WALK, width, width, width, 10)
    model = Convolutions(*(SAGEConv(*both) for both in itertools.pairwise(widths))).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def loss() -> Tensor:
        data = next(batches).to(DEVICE)
        out: Tensor = global_mean_pool(model(data.x, data.edge_index), data.batch, batch)
        return out.square().mean()

    repeat(training_step(optimizer, loss), mark)


def geometric_messages(fault: bool, mark: Mark) -> None:
    """Propagates LightGCN's vectors edge by edge; without the fault by a sparse matrix.

    The messages of all edges go to memory, are scaled there, and are read again to be added.
    """
    nodes, edges, width = size(200_000, 50), size(8_000_000, 300), 64
    pairs = torch.randint(0, nodes, (2, edges), device=DEVICE)
    pairs, weights = gcn_norm(pairs, num_nodes=nodes, add_self_loops=False)
    matrix = to_torch_csr_tensor(pairs.flip(0), weights, nodes)  # a row for each receiver
    layer, start = LGConv(normalize=False), torch.randn(nodes, width, device=DEVICE)

    def step() -> None:
        x = total = start
        for _ in range(3):
            x = layer(x, pairs, weights) if fault else layer(x, matrix)
            total = total + x

    with torch.no_grad():
        repeat(step, mark)
