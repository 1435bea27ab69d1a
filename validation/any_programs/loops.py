"""Training loops of PyTorch alone: `python loops.py NAME`."""

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 120
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH = 256


def layers(inputs: int = WIDTH, outputs: int = WIDTH) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, WIDTH), nn.GELU(), nn.Linear(WIDTH, outputs)).to(DEVICE)


def rows(count: int = 64, width: int = WIDTH) -> Tensor:
    return torch.randn(count, width, device=DEVICE)


def say(step: int, loss: Tensor) -> None:
    if step % 20 == 19:
        print(f"step {step}: loss {loss.item():.6f}")


def gan() -> None:
    """Two steps of a critic for each of the generator."""
    generator, critic = layers(16, 32), layers(32, 1)
    of_generator = torch.optim.Adam(generator.parameters())
    of_critic = torch.optim.RMSprop(critic.parameters(), lr=1e-4)
    for step in range(STEPS):
        for _ in range(2):
            made = generator(rows(64, 16)).detach()
            loss = critic(made).mean() - critic(rows(64, 32)).mean()
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
        loss = -critic(generator(rows(64, 16))).mean()
        of_generator.zero_grad()
        loss.backward()
        of_generator.step()
        say(step, loss)


def lbfgs() -> None:
    model, x = layers(), rows()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = (model(x) - x).square().mean()
        loss.backward()
        return loss

    for step in range(STEPS):
        say(step, optimizer.step(closure))


def grad_scaler() -> None:
    """Gradients that are not finite now and then, so that steps are skipped; four micro-batches."""
    model, scaler = layers(), torch.amp.GradScaler(DEVICE, init_scale=2.0**10)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(STEPS):
        for _ in range(4):
            x = rows()
            with torch.autocast(DEVICE, torch.float16 if DEVICE == "cuda" else torch.bfloat16):
                loss = (model(x) - x).square().mean() / 4
            scaler.scale(loss * (float("inf") if step % 40 == 7 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        say(step, loss)


def train_step(
    model: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer, x: Tensor
) -> Tensor:
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def train(model: Callable[[Tensor], Tensor], weights: nn.Module) -> None:
    optimizer = torch.optim.AdamW(weights.parameters())
    for step in range(STEPS):
        say(step, train_step(model, optimizer, rows()))


def plain() -> None:
    model = layers()
    train(model, model)


def compiled_model() -> None:
    model = layers()
    train(torch.compile(model), model)


def reduce_overhead() -> None:
    """CUDA graphs that torch.compile records by itself, of forward and of backward."""
    model = layers()
    train(torch.compile(model, mode="reduce-overhead"), model)


def compiled_step() -> None:
    """One graph holds forward, backward and the optimizer."""
    model = layers()
    optimizer = torch.optim.AdamW(model.parameters(), capturable=DEVICE == "cuda")

    @torch.compile
    def advance(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for step in range(STEPS):
        say(step, advance(rows()))


def own_graphs() -> None:
    """A CUDA graph of the whole step; without a GPU the step itself."""
    model, x = layers(), rows()
    optimizer = torch.optim.AdamW(model.parameters(), capturable=DEVICE == "cuda")

    def advance() -> Tensor:
        loss: Tensor = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    if DEVICE == "cpu":
        for step in range(STEPS):
            say(step, advance())
        return
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            advance()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = advance()
    for step in range(STEPS):
        x.copy_(rows())
        graph.replay()
        say(step, loss)


def loader_workers() -> None:
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(
        TensorDataset(torch.randn(STEPS * 16, WIDTH)),
        batch_size=32,
        num_workers=2,
        pin_memory=DEVICE == "cuda",
    )
    step = 0
    for _ in range(2):
        for (batch,) in loader:
            x = batch.to(DEVICE, non_blocking=True)
            say(step, train_step(model, optimizer, x))
            step += 1


def own_profiler() -> None:
    """A profiler of the program's own, which goes first: it counts its own steps.

    On the CPU alone: beside nsys, PyTorch's profiler sees no GPU.
    """
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.profiler.schedule(wait=60, warmup=1, active=5, repeat=1)
    with torch.profiler.profile(schedule=schedule) as profiler:
        for step in range(STEPS):
            loss = train_step(model, optimizer, rows())
            profiler.step()
            say(step, loss)
    on_cpu = torch.profiler.DeviceType.CPU
    names = [event.name for event in profiler.events() if event.device_type == on_cpu]
    print("its own profile:", sum(name.startswith("ProfilerStep") for name in names), "steps,")
    print(sum(name == "aten::addmm" for name in names), "calls of addmm")


def inference() -> None:
    model, x = layers(), rows()
    with torch.no_grad():
        for _ in range(STEPS):
            x = model(x)
    print(f"sum {x.sum().item():.6f}")


def ends_with_an_error() -> None:
    """Ends with exit code 1 and a traceback in the middle of an epoch."""
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        loss = model(rows()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        say(step, loss)
    raise RuntimeError("the data set is damaged")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
