"""Programs that train on the CPU, in which operators take the time."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat
from validation.framework_programs.torch_parts import residual_mlp, training_step


def too_many_threads(fault: bool, mark: Mark) -> None:
    """Sets 48 threads, as on the machine where the program was written."""
    if fault:
        torch.set_num_threads(48)
    model, x = residual_mlp(192, 6), torch.randn(512, 192)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    repeat(training_step(optimizer, lambda: (model(x) - x).square().mean()), mark)


def optimizer_goes_one_by_one(fault: bool, mark: Mark) -> None:
    """AdamW as it is made by default, for 800 small parameters; without the fault it is fused."""
    layers = nn.ModuleList(nn.Linear(24, 24) for _ in range(400))
    x = torch.randn(32, 24)
    optimizer = torch.optim.AdamW(layers.parameters(), fused=not fault)

    def loss_of() -> Tensor:
        y = x
        for layer in layers:
            y = layer(y)
        return (y - x).square().mean()

    repeat(training_step(optimizer, loss_of), mark)


def doubles_from_numpy(fault: bool, mark: Mark) -> None:
    """Trains in float64, as NumPy's arrays are; without the fault in float32."""
    dtype = torch.float64 if fault else torch.float32
    model, x = residual_mlp(384, 4).to(dtype), torch.randn(384, 384, dtype=dtype)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    repeat(training_step(optimizer, lambda: (model(x) - x).square().mean()), mark)


class LastChannelNorm(nn.Module):
    """LayerNorm over the channels of pictures, through copies in which these are last."""

    def __init__(self, channels: int, copy: bool) -> None:
        super().__init__()
        self.norm, self.copy = nn.LayerNorm(channels), copy

    def forward(self, x: Tensor) -> Tensor:
        last = x.permute(0, 2, 3, 1)
        y: Tensor = self.norm(last.contiguous() if self.copy else last).permute(0, 3, 1, 2)
        return y.contiguous() if self.copy else y


def copies_for_each_norm(fault: bool, mark: Mark) -> None:
    """Norms of channels copy pictures into another layout and back; else they are stored in it."""
    layers: list[nn.Module] = [nn.Conv2d(3, 24, 4, stride=4)]
    for _ in range(4):
        layers += [LastChannelNorm(24, fault), nn.Conv2d(24, 24, 1), nn.ReLU()]
    model, x = nn.Sequential(*layers), torch.randn(16, 3, 224, 224)
    if not fault:
        x = x.to(memory_format=torch.channels_last)  # and so are the pictures behind each layer
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    repeat(training_step(optimizer, lambda: model(x).square().mean()), mark)


def embeddings_with_dense_gradients(fault: bool, mark: Mark) -> None:
    """Updates all 150,000 rows of an embedding for the 4,096 that a batch has; else only these."""
    table = nn.Embedding(150_000, 64, sparse=not fault)
    head = nn.Linear(64, 64)
    optimizers = (
        [torch.optim.Adam([*table.parameters(), *head.parameters()])]
        if fault
        else [torch.optim.SparseAdam(table.parameters()), torch.optim.Adam(head.parameters())]
    )

    def step() -> None:
        words = torch.randint(150_000, (4096,))
        head(table(words)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    repeat(step, mark)


def cells_in_a_loop(fault: bool, mark: Mark) -> None:
    """Runs an LSTM's cell word by word, in Python; without the fault the whole layer."""
    cell, layer = nn.LSTMCell(32, 64), nn.LSTM(32, 64, batch_first=True)
    texts = torch.randn(16, 150, 32)
    optimizer = torch.optim.Adam((cell if fault else layer).parameters())

    def loss_of() -> Tensor:
        if not fault:
            states: Tensor = layer(texts)[0]
            return states.square().mean()
        hidden, inner, seen = torch.zeros(16, 64), torch.zeros(16, 64), []
        for word in texts.unbind(1):
            hidden, inner = cell(word, (hidden, inner))
            seen.append(hidden)
        return torch.stack(seen, 1).square().mean()

    repeat(training_step(optimizer, loss_of), mark)


def convolutions_control(fault: bool, mark: Mark) -> None:
    """Convolutions with batch norms and shortcuts, on pictures that are in memory."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = (nn.Conv2d(32, 32, 3, padding=1) for _ in range(2))
            self.norm = nn.BatchNorm2d(32)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.two(F.relu(self.norm(self.one(x))))
            return F.relu(x + y)

    model = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2), *(Block() for _ in range(3)))
    x = torch.randn(8, 3, 96, 96)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    repeat(training_step(optimizer, lambda: model(x).square().mean()), mark)


def adversaries_control(fault: bool, mark: Mark) -> None:
    """A generator and a critic, each with its optimizer, that learn in turns."""
    made = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh())
    critic = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))
    of_made, of_critic = (torch.optim.Adam(each.parameters()) for each in (made, critic))
    real, ones, zeros = torch.randn(256, 784), torch.ones(256, 1), torch.zeros(256, 1)
    loss = F.binary_cross_entropy_with_logits

    def step() -> None:
        pictures = made(torch.randn(256, 64))
        of_critic.zero_grad()
        (loss(critic(real), ones) + loss(critic(pictures.detach()), zeros)).backward()
        of_critic.step()
        of_made.zero_grad()
        loss(critic(pictures), ones).backward()
        of_made.step()

    repeat(step, mark)


def lbfgs_control(fault: bool, mark: Mark) -> None:
    """LBFGS with five evaluations of the whole data a step."""
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 1))
    x, y = torch.randn(4096, 64), torch.randn(4096, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    repeat(lambda: optimizer.step(closure), mark)
