"""Programs that train on the CPU, in which something other than operators takes the time."""

import gc
import json
import os
import random
import threading
import time
from tempfile import TemporaryFile

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat
from validation.framework_programs.torch_parts import residual_mlp, training_step


def collects_garbage_each_step(fault: bool, mark: Mark) -> None:
    """Collects garbage behind each step, among 200,000 objects that stay."""
    table = [{"row": [n], "name": str(n)} for n in range(100_000)]
    model, x = residual_mlp(256, 3), torch.randn(256, 256)
    optimizer = torch.optim.AdamW(model.parameters())
    update = training_step(optimizer, lambda: (model(x) - x).square().mean())

    def step() -> None:
        update()
        if fault:
            gc.collect()

    repeat(step, mark)
    del table


def waits_for_a_lock(fault: bool, mark: Mark) -> None:
    """Takes a lock to note the loss, which a thread holds while it publishes; else only to copy."""
    lock, losses = threading.Lock(), list[float]()
    model, x = residual_mlp(256, 3), torch.randn(256, 256)
    optimizer = torch.optim.AdamW(model.parameters())

    def publish() -> None:
        while True:
            with lock:
                losses.clear()
                if fault:
                    time.sleep(0.08)  # a server answers
            time.sleep(0.005)

    threading.Thread(target=publish, daemon=True).start()

    def step() -> None:
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with lock:
            losses.append(loss.item())

    repeat(step, mark)


def writes_each_sample_to_disk(fault: bool, mark: Mark) -> None:
    """Writes a line for each sample's loss and lets the disk confirm it; else one line a step."""
    model, x = residual_mlp(256, 2), torch.randn(128, 256)
    optimizer = torch.optim.AdamW(model.parameters())
    file = TemporaryFile("w", dir=".")  # noqa: SIM115 kept to the end

    def step() -> None:
        each = (model(x) - x).square().mean(1)
        each.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        losses = each.tolist()
        for number, loss in enumerate(losses if fault else [sum(losses)]):
            print(json.dumps({"sample": number, "loss": loss}), file=file, flush=True)
            if fault:
                os.fsync(file.fileno())

    repeat(step, mark)


def plays_one_world(fault: bool, mark: Mark) -> None:
    """Asks the policy for 400 moves in turn, in a world of Python; else for all of them at once."""
    policy = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 4))
    optimizer = torch.optim.Adam(policy.parameters())
    moves = (1, -1, 8, -8)

    def play() -> tuple[Tensor, Tensor, Tensor]:
        place, seen, chosen, rewards = 0, [], [], []
        for _ in range(400):
            board = torch.zeros(64)
            board[place] = 1
            with torch.no_grad():
                action = torch.distributions.Categorical(logits=policy(board)).sample()
            place = (place + moves[int(action)]) % 64
            seen.append(board)
            chosen.append(action)
            rewards.append(float(place == 63) - 0.01 * random.random())
        return torch.stack(seen), torch.stack(chosen), torch.tensor(rewards)

    def play_at_once() -> tuple[Tensor, Tensor, Tensor]:
        boards = F.one_hot(torch.randint(64, (400,)), 64).float()
        with torch.no_grad():
            actions = torch.distributions.Categorical(logits=policy(boards)).sample()
        return boards, actions, (actions == 0).float()

    def loss_of() -> Tensor:
        boards, actions, rewards = play() if fault else play_at_once()
        chances = torch.distributions.Categorical(logits=policy(boards)).log_prob(actions)
        loss: Tensor = -(chances * rewards.flip(0).cumsum(0).flip(0)).mean()
        return loss

    repeat(training_step(optimizer, loss_of), mark)
