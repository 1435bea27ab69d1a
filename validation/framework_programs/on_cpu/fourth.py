"""Programs of the fourth series that train on the CPU, in plain PyTorch."""

import gzip
import json
import os
import random
from collections import deque
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, repeat
from validation.framework_programs.torch_parts import (
    Made,
    endless,
    residual_mlp,
    training_step,
)


def skeletons_parsed_from_json(fault: bool, mark: Mark) -> None:
    """Opens a compressed file of JSON for each sample; without the fault they are tensors."""
    frames, joints = 60, 25
    with TemporaryDirectory(prefix="skeletons-", dir=".") as folder:
        for number in range(64):
            points = torch.randn(frames, joints, 3).tolist()
            rows = [{"frame": n, "joints": row} for n, row in enumerate(points)]
            with gzip.open(os.path.join(folder, f"{number}.json.gz"), "wt") as file:
                json.dump({"label": number % 10, "frames": rows}, file)
        ready = torch.randn(64, frames, joints * 3)

        def make(index: int) -> tuple[Tensor, int]:
            if not fault:
                return ready[index % 64], index % 10
            with gzip.open(os.path.join(folder, f"{index % 64}.json.gz"), "rt") as file:
                read = json.load(file)
            return torch.tensor([row["joints"] for row in read["frames"]]).flatten(1), read["label"]

        layer, head = nn.GRU(joints * 3, 64, batch_first=True), nn.Linear(64, 10)
        optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()])
        for x, y in endless(DataLoader(Made(make), batch_size=16, shuffle=True)):
            F.cross_entropy(head(layer(x)[0][:, -1]), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            mark()


Graph = list[list[int]]  # the neighbours of each node


def hops(graph: Graph) -> list[list[int]]:
    """Steps of the shortest path between each two nodes."""
    table = []
    for start in range(len(graph)):
        far, waiting = [0] * len(graph), deque([start])
        seen = {start}
        while waiting:
            node = waiting.popleft()
            for other in graph[node]:
                if other not in seen:
                    seen.add(other)
                    far[other] = min(far[node] + 1, 15)
                    waiting.append(other)
        table.append(far)
    return table


def paths_found_in_the_collate(fault: bool, mark: Mark) -> None:
    """Finds the paths of each graph as a batch is collated; else they were found before."""
    nodes = 48

    def graph() -> tuple[Graph, Tensor]:
        edges = [[(n + 1) % nodes, (n - 1) % nodes, random.randrange(nodes)] for n in range(nodes)]
        return edges, torch.randint(32, (nodes,))

    graphs = [graph() for _ in range(256)]
    known = [torch.tensor(hops(edges)) for edges, _ in graphs]

    def collate(numbers: list[int]) -> tuple[Tensor, Tensor]:
        kinds = torch.stack([graphs[n][1] for n in numbers])
        if fault:
            return kinds, torch.tensor([hops(graphs[n][0]) for n in numbers])
        return kinds, torch.stack([known[n] for n in numbers])

    table, bias, head = nn.Embedding(32, 64), nn.Embedding(16, 1), nn.Linear(64, 1)
    optimizer = torch.optim.AdamW([*table.parameters(), *bias.parameters(), *head.parameters()])
    loader = DataLoader(Made(lambda n: n % 256), batch_size=24, collate_fn=collate)
    for kinds, far in endless(loader):
        x = table(kinds)
        x = F.scaled_dot_product_attention(x, x, x, bias(far).squeeze(-1))
        head(x.mean(1)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        mark()


class SumTree:
    """Sums of the priorities of 2 ** depth moves, in a tree."""

    def __init__(self, depth: int) -> None:
        self.first = 1 << depth
        self.sums = [0.0] * (2 * self.first)

    def update(self, move: int, priority: float) -> None:
        node = move + self.first
        change = priority - self.sums[node]
        while node:
            self.sums[node] += change
            node >>= 1


def priorities_updated_one_by_one(fault: bool, mark: Mark) -> None:
    """Updates 8,192 priorities in a tree, one by one; without the fault they are a tensor."""
    moves, batch = 1 << 17, 8_192
    tree, priorities = SumTree(17), torch.ones(moves)
    seen, rewards = torch.randn(moves, 8), torch.randn(moves, 4)
    values = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(values.parameters())

    def step() -> None:
        chosen = torch.randint(moves, (batch,))
        errors = (values(seen[chosen]) - rewards[chosen]).abs().mean(1)
        errors.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if fault:
            for move, error in zip(chosen.tolist(), errors.tolist(), strict=True):
                tree.update(move, (error + 1e-3) ** 0.6)
        else:
            priorities[chosen] = (errors.detach() + 1e-3) ** 0.6

    repeat(step, mark)


def by_subtraction(z: Tensor) -> Tensor:
    return ((z[:, None] - z[None]).pow(2).sum(-1) + 1e-6).sqrt()


def pairs_by_broadcasting(fault: bool, mark: Mark) -> None:
    """Subtracts each of 384 answers from each other to know how far they are; else by cdist."""
    model, x, y = residual_mlp(64, 2), torch.randn(384, 64), torch.randint(12, (384,))
    optimizer = torch.optim.AdamW(model.parameters())
    same = y[:, None] == y

    def loss_of() -> Tensor:
        z = model(x)
        far = by_subtraction(z) if fault else torch.cdist(z, z)
        return torch.where(same, far, F.relu(10 - far)).mean()

    repeat(training_step(optimizer, loss_of), mark)
