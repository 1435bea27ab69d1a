"""Programs of PyTorch alone: the host waits, launches or allocates."""

import torch
import torch.nn.functional as F
from torch import Tensor

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.plain_gpu import recorded
from validation.framework_programs.torch_parts import DEVICE, bfloats, residual_mlp, training_step


def plain_adam_counts_on_gpu(fault: bool, mark: Mark) -> None:
    """Moves all of Adam's state to the GPU after loading it; without the fault its counts stay.

    Adam then reads each parameter's count of steps from the GPU twice, to correct its means.
    """
    width = size(1024, 16)
    model = residual_mlp(width, size(60, 1)).to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), 1e-5)
    x = bfloats(size(2048, 4), width)
    train = training_step(optimizer, lambda: model(x).float().square().mean())
    train()  # makes the state
    for state in optimizer.state.values() if fault else ():
        for name, value in state.items():
            state[name] = value.to(DEVICE)
    repeat(train, mark)


def plain_asks_after_tokens(fault: bool, mark: Mark) -> None:
    """Asks after each token whether all texts have ended; without the fault after the last.

    A CUDA graph makes a token of a small model, and the next is replayed when the answer is known.
    """
    width, words, count = size(1024, 16), size(8192, 32), size(64, 4)
    end = words  # no word of the model: its texts never end
    table, head, layer = (bfloats(rows, width) for rows in (words, words, width))
    chosen = torch.randint(0, words, (8,), device=DEVICE)
    ended = torch.zeros((), device=DEVICE, dtype=torch.bool)

    def decode() -> None:
        h = F.linear(table[chosen], layer).tanh()
        torch.argmax(F.linear(h, head), -1, out=chosen)
        torch.all(chosen == end, out=ended)

    def step() -> None:
        for number in range(count):
            replay()
            if (fault or number == count - 1) and ended.item():
                break

    with torch.no_grad():
        replay = recorded(decode)
        repeat(step, mark)


def parents_of(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    """Join nodes by a TreeLSTM's cell; a node is a state and a memory, side by side."""
    (state, memory), (other, others) = left.chunk(2, -1), right.chunk(2, -1)
    gates = F.linear(torch.cat([state, other], -1), weight).chunk(5, -1)
    opened, shown, keep, keeps = (gate.sigmoid() for gate in gates[1:])
    memory = opened * gates[0].tanh() + keep * memory + keeps * others
    return torch.cat([shown * memory.tanh(), memory], -1)


def plain_tree_node_by_node(fault: bool, mark: Mark) -> None:
    """Joins the words of a text to a tree node by node; without the fault level by level.

    Each of 511 nodes is fifteen kernels for one row.
    """
    width = size(256, 8)
    weight = torch.randn(5 * width, 2 * width, device=DEVICE) * width**-0.5
    words = torch.randn(size(512, 8), 2 * width, device=DEVICE)

    def step() -> None:
        nodes = words
        while len(nodes) > 1:
            parts = nodes[::2], nodes[1::2]
            pairs = zip(*(part.split(1) for part in parts), strict=True) if fault else [parts]
            nodes = torch.cat([parents_of(left, right, weight) for left, right in pairs])

    with torch.no_grad():
        repeat(step, mark)


def plain_unmaps_segments(fault: bool, mark: Mark) -> None:
    """Empties the cache of expandable segments after each step; without the fault keeps it.

    The driver unmaps gigabytes in parts of 20 MB, and maps as many for the next step.
    """
    width = size(512, 16)
    model = residual_mlp(width, size(30, 1)).to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    x = bfloats(size(32_768, 8), width)
    train = training_step(optimizer, lambda: model(x).float().square().mean())

    def step() -> None:
        train()
        if fault:
            torch.cuda.empty_cache()

    repeat(step, mark)
