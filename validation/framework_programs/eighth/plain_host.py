"""Programs of PyTorch alone: the host compiles, allocates or launches."""

import itertools

import torch
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, residual_mlp, training_step


class Annealed(nn.Module):
    """Attention whose temperature falls with the number of steps, which the module counts."""

    def __init__(self, width: int, seen: int | Tensor) -> None:
        super().__init__()
        self.project, self.seen = nn.Linear(width, 3 * width), seen

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) * x.shape[-1] ** -0.5
        heated = scores / (1 + 10 / (1 + self.seen))
        out: Tensor = x + heated.softmax(-1) @ v
        return out


def plain_recompiles(fault: bool, mark: Mark) -> None:
    """Counts steps in an int of a compiled module; without the fault in a tensor.

    torch.compile takes an int of a module for a constant, so the host compiles each step anew.
    """
    torch._dynamo.config.recompile_limit = 100_000
    torch._dynamo.config.accumulated_recompile_limit = 100_000
    width = size(1024, 16)
    with torch.device(DEVICE):
        model = Annealed(width, 0 if fault else torch.zeros(()))
        x = torch.randn(size(16, 2), size(512, 8), width)
    compiled = torch.compile(model, backend=size("inductor", "eager"))

    def step() -> None:
        model.seen += 1
        compiled(x)

    with torch.no_grad():
        repeat(step, mark)


def plain_nearly_full(fault: bool, mark: Mark) -> None:
    """Trains on clouds of three sizes in a part of the GPU's memory, under max_split_size_mb:128.

    Large blocks then serve tensors of their own size alone: those of the last size are freed and
    others allocated in each step. Without the fault blocks are split, and serve all sizes.
    """
    torch.set_float32_matmul_precision("high")
    width = size(256, 16)
    with torch.device(DEVICE):
        model = residual_mlp(width, size(3, 1))
        clouds = [torch.randn(size(n, n // 10_000), width) for n in (400_000, 500_000, 600_000)]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    following = itertools.cycle(clouds)

    def loss() -> Tensor:
        out: Tensor = model(next(following))
        return out.square().mean()

    step = training_step(optimizer, loss)
    for _ in clouds:
        step()
    if DEVICE == "cuda":
        _, total = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction(1.4 * torch.cuda.max_memory_allocated() / total)
        torch.cuda.empty_cache()
    repeat(step, mark)


def advantages_in_loop(rewards: Tensor, values: Tensor, alive: Tensor) -> Tensor:
    """Generalised advantages, from the last time to the first; (times, worlds)."""
    advantages, last = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
    for time in reversed(range(len(rewards))):
        surprise = rewards[time] + 0.99 * alive[time] * values[time + 1] - values[time]
        last = surprise + 0.99 * 0.95 * alive[time] * last
        advantages[time] = last
    return advantages


def advantages_by_doubling(rewards: Tensor, values: Tensor, alive: Tensor) -> Tensor:
    """Generalised advantages of all times at once: the reach of the sums doubles."""
    total = rewards + 0.99 * alive * values[1:] - values[:-1]
    factor, reach = 0.99 * 0.95 * alive, 1
    while reach < len(rewards):
        total = torch.cat([total[:-reach] + factor[:-reach] * total[reach:], total[-reach:]])
        zeros = torch.zeros_like(factor[-reach:])
        factor = torch.cat([factor[:-reach] * factor[reach:], zeros])
        reach *= 2
    return total


def plain_advantages(fault: bool, mark: Mark) -> None:
    """Updates a policy by advantages that a loop computes time by time; without it all at once.

    Each of 512 times is a dozen kernels for 64 numbers, which take longer to launch than to run.
    """
    times, worlds, width = size(512, 8), size(64, 4), size(256, 16)
    with torch.device(DEVICE):
        critic = nn.Sequential(nn.Linear(64, width), residual_mlp(width, 2), nn.Linear(width, 1))
        seen, rewards = torch.randn(times + 1, worlds, 64), torch.randn(times, worlds)
        alive = (torch.rand(times, worlds) > 0.01).float()
    optimizer = torch.optim.Adam(critic.parameters(), 3e-4)
    advantages_of = advantages_in_loop if fault else advantages_by_doubling

    def step() -> None:
        with torch.no_grad():
            values = critic(seen)[..., 0]
            returns = advantages_of(rewards, values, alive) + values[:-1]
        for _ in range(4):
            loss = (critic(seen[:-1])[..., 0] - returns).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    repeat(step, mark)
