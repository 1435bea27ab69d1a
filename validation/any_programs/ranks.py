"""Ranks of torchrun: `torchrun --nproc-per-node=2 ranks.py ddp_gloo`, `ddp_nccl`, `deepspeed`, and
`fsdp` on one GPU. `python ranks.py spawned` starts two itself."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

STEPS = 120
WIDTH = 256


def train(model: nn.Module, device: str) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        loss: Tensor = model(torch.randn(64, WIDTH, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 19 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.6f}", flush=True)


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))


def ddp_gloo() -> None:
    dist.init_process_group("gloo")
    train(nn.parallel.DistributedDataParallel(layers()), "cpu")


def ddp_nccl() -> None:
    """A GPU for each rank."""
    dist.init_process_group("nccl")
    device = f"cuda:{dist.get_rank()}"
    torch.cuda.set_device(device)
    train(nn.parallel.DistributedDataParallel(layers().to(device)), device)


def fsdp() -> None:
    """FSDP2, whose shards are whole on one GPU."""
    from torch.distributed.fsdp import fully_shard

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    model = layers().to(device)
    for layer in model.children():
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    train(model, device)


def deepspeed() -> None:
    """ZeRO 1 on the CPU, whose engine calls the optimizer's step."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    from deepspeed import initialize

    model = layers()
    config = {
        "train_micro_batch_size_per_gpu": 64,
        "zero_optimization": {"stage": 1},
    }
    optimizer = torch.optim.AdamW(model.parameters())
    engine = initialize(model=model, optimizer=optimizer, config=config)[0]
    for step in range(STEPS):
        loss: Tensor = engine(torch.randn(64, WIDTH)).square().mean()
        engine.backward(loss)
        engine.step()
        if step % 20 == 19 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.6f}", flush=True)


def spawned() -> None:
    """Two ranks that only init_process_group knows of."""
    from torch.multiprocessing.spawn import spawn

    spawn(spawned_rank, nprocs=2)


def spawned_rank(rank: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    meeting = Path("ranks").absolute().as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    train(nn.parallel.DistributedDataParallel(layers()), "cpu")
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
    if dist.is_initialized():
        dist.destroy_process_group()
