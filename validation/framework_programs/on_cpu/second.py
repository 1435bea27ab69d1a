"""Programs of the second series that train on the CPU: the first's faults in another dress."""

import csv
import io
import os
import random
from collections.abc import Iterator
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter

from validation.framework_programs.parts import Mark, repeat
from validation.framework_programs.torch_parts import (
    Made,
    encoder,
    endless,
    residual_mlp,
    training_step,
)


def classifier(features: int, width: int = 256) -> nn.Module:
    return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, 10))


def texts_cut_into_words(fault: bool, mark: Mark) -> None:
    """Cuts texts into words, counts and pads them as they are collated; else they are numbers."""
    text = " ".join(random.choices(["one", "two", "three", "four"], k=3_000))
    known = {word: n for n, word in enumerate(["<pad>", "one", "two", "three", "four"])}
    ready = torch.randint(0, 5, (16, 3_000))

    def collate(texts: list[str]) -> Tensor:
        rows = [[known[word.strip().lower()] for word in text.split()] for text in texts]
        longest = max(map(len, rows))
        return torch.tensor([row + [0] * (longest - len(row)) for row in rows])

    loader = DataLoader(
        Made(lambda index: text), batch_size=16, collate_fn=collate if fault else lambda _: ready
    )
    bag, head = nn.EmbeddingBag(5, 64), classifier(64)
    optimizer = torch.optim.AdamW([*bag.parameters(), *head.parameters()])
    for words in endless(loader):
        head(bag(words)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        mark()


def table_read_by_csv(fault: bool, mark: Mark) -> None:
    """Reads each batch out of a table of text, by a generator; else out of a tensor."""
    rows = torch.randn(256, 128).tolist()
    text, table = "\n".join(",".join(map(str, row)) for row in rows), torch.tensor(rows)

    def batches() -> Iterator[Tensor]:
        while True:
            if fault:
                read = csv.reader(io.StringIO(text))
                yield torch.tensor([[float(cell) for cell in row] for row in read])
            else:
                yield table

    model = classifier(128)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for batch in batches():
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        mark()


def validates_each_third_step(fault: bool, mark: Mark) -> None:
    """Passes 20 batches through the model without gradients behind each third step."""
    model, x = residual_mlp(256, 3), torch.randn(128, 256)
    optimizer = torch.optim.AdamW(model.parameters())
    count = 0

    def step() -> None:
        nonlocal count
        F.mse_loss(model(x), x).backward()
        optimizer.step()
        optimizer.zero_grad()
        count += 1
        if fault and count % 3 == 0:
            model.eval()
            with torch.no_grad():
                sum(F.mse_loss(model(x), x).item() for _ in range(20))
            model.train()

    repeat(step, mark)


def saves_by_torch_each_third_step(fault: bool, mark: Mark) -> None:
    """Writes weights and Adam's state to two files by torch.save behind each third step."""
    model, x = residual_mlp(512, 5), torch.randn(8, 512)
    optimizer = torch.optim.Adam(model.parameters())
    with TemporaryDirectory(prefix="saved-", dir=".") as folder:
        count = 0
        while True:
            F.mse_loss(model(x), x).backward()
            optimizer.step()
            optimizer.zero_grad()
            count += 1
            if fault and count % 3 == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                for name in ("last.pt", "best.pt"):
                    torch.save(state, os.path.join(folder, name))
            mark()


def histograms_for_tensorboard(fault: bool, mark: Mark) -> None:
    """Writes histograms of weights and gradients for TensorBoard in each step; else the loss."""
    model, x = residual_mlp(128, 4), torch.randn(128, 128)
    optimizer = torch.optim.AdamW(model.parameters())
    count = 0
    with TemporaryDirectory(prefix="events-") as folder, SummaryWriter(folder) as writer:
        while True:
            loss = F.mse_loss(model(x), x)
            loss.backward()
            optimizer.step()
            writer.add_scalar("loss", loss.item(), count)
            for name, weights in model.named_parameters() if fault else ():
                writer.add_histogram(name, weights, count)
                writer.add_histogram(f"{name}.grad", weights.grad, count)
            optimizer.zero_grad()
            count += 1
            mark()


def recomputes_each_block(fault: bool, mark: Mark) -> None:
    """Computes each block again in the backward, though there is memory; else it keeps them."""
    blocks = nn.ModuleList(residual_mlp(256, 1) for _ in range(6))
    x = torch.randn(256, 256, requires_grad=True)
    optimizer = torch.optim.SGD(blocks.parameters(), 1e-3)

    def loss() -> Tensor:
        y = x
        for block in blocks:
            y = checkpoint(block, y, use_reentrant=False) if fault else block(y)
        return y.square().mean()

    repeat(training_step(optimizer, loss), mark)


def loss_by_one_hot(fault: bool, mark: Mark) -> None:
    """Multiplies log-probabilities of 8,000 words by one-hot rows; else by cross_entropy."""
    table, head = nn.Embedding(8_000, 32), nn.Linear(32, 8_000)
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], 1e-2)

    def loss() -> Tensor:
        words = torch.randint(8_000, (512,))
        scores = head(table(words))
        if not fault:
            return F.cross_entropy(scores, words)
        wanted = F.one_hot(words, 8_000).float()
        return -(wanted * torch.log(F.softmax(scores, -1) + 1e-9)).sum(-1).mean()

    repeat(training_step(optimizer, loss), mark)


def matrix_counted_cell_by_cell(fault: bool, mark: Mark) -> None:
    """Counts right and wrong answers one by one in Python; without the fault by bincount."""
    model, x, y = classifier(128, 128), torch.randn(3072, 128), torch.randint(10, (3072,))
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        scores = model(x)
        F.cross_entropy(scores, y).backward()
        optimizer.step()
        optimizer.zero_grad()
        guesses = scores.argmax(1)
        if fault:
            matrix = [[0] * 10 for _ in range(10)]
            for truth, guess in zip(y, guesses, strict=True):
                matrix[truth.item()][guess.item()] += 1
        else:
            torch.bincount(10 * y + guesses, minlength=100).view(10, 10)

    repeat(step, mark)


def pictures_of_doubles(fault: bool, mark: Mark) -> None:
    """Makes float64 the default type, and so of convolutions; without the fault float32."""
    torch.set_default_dtype(torch.float64 if fault else torch.float32)
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3), nn.ReLU(), nn.Conv2d(24, 24, 3), nn.ReLU(), nn.Conv2d(24, 8, 3)
    )
    x = torch.rand(4, 3, 64, 64)
    optimizer = torch.optim.Adam(model.parameters())

    repeat(training_step(optimizer, lambda: model(x).square().mean()), mark)


def encoder_control(fault: bool, mark: Mark) -> None:
    """A Transformer of two layers on a batch that is in memory."""
    model, x = encoder(128, 2), torch.randn(8, 96, 128)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    repeat(training_step(optimizer, lambda: model(x).square().mean()), mark)
