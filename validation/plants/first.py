"""The first series: twelve faults, from which the rules of the verdict were made."""

import time
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from data.batches import Batches
from model import GPT
from training.step.graphs import GraphedStep
from training.step.step import Step
from validation.plants.planting import Plant, call_before, call_before_update, replace_method

EAGER = "attention=flash kernels=compiled compile=false"
GRAPHS = "attention=flash kernels=compiled compile=true"
WIDE = f"{GRAPHS} n_layer=4 n_head=16 block_size=512 batch_size=32 dropout=0"


def slow_loader() -> None:
    """The loader sleeps."""
    call_before(Batches, "draw", lambda *_: time.sleep(0.006))


def sorting_loader() -> None:
    """The loader sorts on the CPU."""
    numbers = np.random.default_rng(0).random(2_000_000)
    call_before(Batches, "draw", lambda *_: np.sort(numbers))


def pageable_copies() -> None:
    """Each step copies pageable memory."""
    images = torch.zeros(32 << 20)  # 128 MB
    call_before(Batches, "draw", lambda batches, *_: images.to(batches.device))


def item_in_every_step() -> None:
    """Call .item() on three statistics of each parameter."""

    def log_weights(step: Step | GraphedStep, _: float) -> None:
        plain = step.step if isinstance(step, GraphedStep) else step
        for parameter in plain.parameters:
            for statistic in (torch.norm, torch.amax, torch.amin):
                statistic(parameter.detach()).item()

    call_before_update(log_weights)


def item_in_every_layer() -> None:
    """Call .item() on two checks in each layer."""

    def check(module: nn.Module, inputs: object, output: Tensor) -> None:
        if output.is_cuda and torch.cuda.is_current_stream_capturing():
            return  # the warm-up reads kernels' names out of a graph, which cannot wait
        assert torch.isfinite(module.get_parameter("weight")).all().item()
        assert torch.isfinite(output).all().item()

    @cache  # once for each model
    def hook(model: GPT) -> None:
        for module in model.get_submodule("transformer.h").modules():
            if hasattr(module, "weight"):
                module.register_forward_hook(check)

    call_before(GPT, "forward", lambda model, *_: hook(model))


def python_stall() -> None:
    """Sleep before each update."""
    call_before_update(lambda *_: time.sleep(0.010))


def python_work() -> None:
    """A Python loop before each update."""
    call_before_update(lambda *_: sum(number * number for number in range(400_000)))


def unfused_elementwise() -> None:
    """GELU spelled out in float32."""

    def gelu(x: Tensor) -> Tensor:
        x = x.float()
        inner = 0.7978845608 * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1.0 + torch.tanh(inner))

    replace_method(nn.GELU, "forward", lambda _, x: gelu(x))


FIRST = {
    "slow_loader": Plant("data", GRAPHS, slow_loader),
    "sorting_loader": Plant("data", GRAPHS, sorting_loader),
    "pageable_copies": Plant("data", GRAPHS, pageable_copies),
    "item_in_every_step": Plant("synchronization", GRAPHS, item_in_every_step),
    "item_in_every_layer": Plant("synchronization", f"{EAGER} batch_size=128", item_in_every_layer),
    "tiny_batch": Plant(
        "launch",
        f"{EAGER} batch_size=2",
        without=f"{EAGER} batch_size=128",
        work_without=64,
    ),
    "python_stall": Plant("cpu", GRAPHS, python_stall),
    "python_work": Plant("cpu", GRAPHS, python_work),
    "tiny_graphs": Plant(
        "gpu_latency",
        f"{GRAPHS} batch_size=1",
        without=f"{GRAPHS} batch_size=64",
        work_without=64,
    ),
    "unfused_elementwise": Plant("gpu_memory", f"{EAGER} batch_size=256", unfused_elementwise),
    "large_matmuls": Plant("gpu_compute", f"{WIDE} n_embd=2048", without=f"{WIDE} n_embd=512"),
    # two GPUs without peer-to-peer and shared memory
    "slow_link": Plant(
        "communication",
        f"{GRAPHS} gradient_accumulation_steps=2",
        ranks=2,
        environ={"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
    ),
}
