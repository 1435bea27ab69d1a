"""A program of torch-geometric: vectors of the things that a graph of knowledge names."""

import torch
from torch_geometric.nn import TransE

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step


def geometric_dense_gradients(fault: bool, mark: Mark) -> None:
    """Trains four million vectors by TransE's default; without the fault by sparse=True.

    Each of a step's four looks into the table has a gradient as large as the table.
    """
    things, kinds, facts = size(2**22, 64), 200, size(8192, 16)
    with torch.device(DEVICE):
        model = TransE(things, kinds, size(128, 8), sparse=not fault)
        heads, tails = torch.randint(0, things, (2, facts))
        relations = torch.randint(0, kinds, (facts,))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    repeat(training_step(optimizer, lambda: model.loss(heads, relations, tails)), mark)
