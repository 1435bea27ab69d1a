"""Programs of the third series that train on the CPU, in plain PyTorch."""

import copy
import os
import random
import sqlite3
from tempfile import TemporaryDirectory

import numpy as np
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


def table_without_an_index(fault: bool, mark: Mark) -> None:
    """Finds each sample by its key in a table of SQLite without an index; else there is one."""
    samples = sqlite3.connect(":memory:")
    samples.execute("CREATE TABLE samples (id TEXT, label INTEGER, pixels BLOB)")
    rows = ((f"picture-{n}", n % 10, np.random.rand(256).tobytes()) for n in range(4_000))
    samples.executemany("INSERT INTO samples VALUES (?, ?, ?)", rows)
    if not fault:
        samples.execute("CREATE INDEX by_id ON samples (id)")

    def make(index: int) -> tuple[Tensor, int]:
        question = "SELECT pixels, label FROM samples WHERE id = ?"
        pixels, label = samples.execute(question, (f"picture-{index % 4_000}",)).fetchall()[0]
        return torch.from_numpy(np.frombuffer(pixels).astype("float32")), label

    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
    head = nn.Linear(512, 10)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()])
    for x, y in endless(DataLoader(Made(make), batch_size=32)):
        F.cross_entropy(head(model(x)), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        mark()


class Agent:
    """A network of values, and the 4,000 moves that it remembers."""

    def __init__(self) -> None:
        self.values = residual_mlp(96, 4)
        self.memory = [
            {"seen": [random.random() for _ in range(4)], "move": n % 4, "reward": 0.1 * n}
            for n in range(4_000)
        ]


def agent_copied_with_its_memory(fault: bool, mark: Mark) -> None:
    """Makes each step's target by deepcopy of the whole agent; else only of its network."""
    agent = Agent()
    target = copy.deepcopy(agent.values)
    optimizer = torch.optim.Adam(agent.values.parameters())
    states, rewards = torch.randn(128, 96), torch.randn(128, 96)

    def step() -> None:
        nonlocal target
        with torch.no_grad():
            wanted = rewards + 0.99 * target(states)
        F.smooth_l1_loss(agent.values(states), wanted).backward()
        optimizer.step()
        optimizer.zero_grad()
        target = copy.deepcopy(agent).values if fault else copy.deepcopy(agent.values)

    repeat(step, mark)


def weights_zipped_by_numpy(fault: bool, mark: Mark) -> None:
    """Writes the weights by numpy.savez_compressed behind each third step."""
    model, x = residual_mlp(320, 4), torch.randn(64, 320)
    optimizer = torch.optim.Adam(model.parameters())
    count = 0
    with TemporaryDirectory(prefix="zipped-", dir=".") as folder:
        while True:
            F.mse_loss(model(x), x).backward()
            optimizer.step()
            optimizer.zero_grad()
            count += 1
            if fault and count % 3 == 0:
                weights = [each.detach().numpy() for each in model.parameters()]
                np.savez_compressed(os.path.join(folder, "best.npz"), *weights)
            mark()


class MaskedLayer(nn.Module):
    """Attention that writes its causal mask in Python whenever it is called."""

    def __init__(self, width: int, in_python: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm, self.in_python = nn.LayerNorm(width), in_python

    def forward(self, x: Tensor) -> Tensor:
        words = x.shape[1]
        if self.in_python:
            rows = [
                [0.0 if key <= query else float("-inf") for key in range(words)]
                for query in range(words)
            ]
            mask = torch.tensor(rows)
        else:
            mask = nn.Transformer.generate_square_subsequent_mask(words)
        y = self.norm(x)
        summed: Tensor = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return summed


def mask_written_in_python(fault: bool, mark: Mark) -> None:
    """Each of three layers writes a mask of 192 words cell by cell; else by triu."""
    table, head = nn.Embedding(500, 64), nn.Linear(64, 500)
    model = nn.Sequential(table, *(MaskedLayer(64, fault) for _ in range(3)), head)
    optimizer = torch.optim.AdamW(model.parameters())
    texts = torch.randint(500, (2, 193))

    def loss_of() -> Tensor:
        return F.cross_entropy(model(texts[:, :-1]).flatten(0, 1), texts[:, 1:].flatten())

    repeat(training_step(optimizer, loss_of), mark)


def distillation_control(fault: bool, mark: Mark) -> None:
    """A student learns what a larger teacher answers, which has no gradients."""
    teacher, student = residual_mlp(256, 6).eval().requires_grad_(False), residual_mlp(256, 3)
    optimizer = torch.optim.AdamW(student.parameters(), fused=True)

    def loss_of() -> Tensor:
        x = torch.randn(128, 256)
        with torch.no_grad():
            wanted = teacher(x).softmax(-1)
        return F.kl_div(student(x).log_softmax(-1), wanted, reduction="batchmean")

    repeat(training_step(optimizer, loss_of), mark)


def sparse_graph_control(fault: bool, mark: Mark) -> None:
    """A graph network whose neighbours are summed by products with a sparse matrix."""
    nodes, edges = 4_000, 40_000
    places = torch.randint(nodes, (2, edges))
    sums = torch.sparse_coo_tensor(places, torch.full((edges,), 0.1), (nodes, nodes)).coalesce()
    one, two = nn.Linear(64, 96), nn.Linear(96, 8)
    optimizer = torch.optim.Adam([*one.parameters(), *two.parameters()])
    x, y = torch.randn(nodes, 64), torch.randint(8, (nodes,))

    def loss_of() -> Tensor:
        hidden = torch.sparse.mm(sums, F.relu(one(x)))
        return F.cross_entropy(torch.sparse.mm(sums, two(hidden)), y)

    repeat(training_step(optimizer, loss_of), mark)
