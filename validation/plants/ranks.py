"""Faults of one rank among several, which the report of all ranks should name, and no fault."""

import os
import time
from collections.abc import Callable

import torch
from torch import Tensor

from configs.schema import Config
from data.batches import Batches
from training.machine.parallel import rows_travel
from training.step import layout
from training.step.graphs import GraphedStep
from training.step.step import Step
from validation.plants.planting import Plant, call_before, replace_method

LATE = 1  # the rank with the fault
PRODUCTS, SIZE = 24, 4096  # extra matrix products, about 0.2 ms each on an H200
SLEEP_S = 0.040  # longer than a step of 124M, or a host that runs ahead would hide it
GRAPHS = "attention=flash kernels=compiled compile=true dropout=0"
WIDE = (
    "attention=flash kernels=compiled compile=false dropout=0 n_layer=8 n_head=16 n_embd=2048 "
    "batch_size=32"
)


def rank() -> int:
    return int(os.environ.get("RANK", 0))


def call_before_forward(fault: Callable[..., object]) -> None:
    """Call `fault` before each forward, except while a CUDA graph records: it would be replayed."""

    def outside_graphs(*arguments: object) -> None:
        if not torch.cuda.is_current_stream_capturing():
            fault(*arguments)

    for step in (Step, GraphedStep):
        call_before(step, "forward", outside_graphs)


def make_multiply() -> Callable[..., None]:
    """Function that multiplies a random matrix by itself PRODUCTS times on the GPU.

    The matrix is made at the first call. It is random, since products of ones draw less power than
    training.
    """
    made: list[Tensor] = []

    def multiply(*_: object) -> None:
        if not made:
            chance = torch.Generator("cuda").manual_seed(1)  # the run's own goes on undisturbed
            normal = torch.randn(SIZE, SIZE, generator=chance, device="cuda", dtype=torch.bfloat16)
            made.append(normal)
        for _number in range(PRODUCTS):
            torch.mm(made[0], made[0])

    return multiply


def extra_products() -> None:
    """One rank runs more kernels in forward."""
    if rank() == LATE:
        call_before_forward(make_multiply())


def products_in_turns() -> None:
    """Another rank runs more kernels in each iteration, in a pseudo-random order that all know."""
    world_size, multiply = int(os.environ.get("WORLD_SIZE", 1)), make_multiply()
    count = 0

    def in_turn(*_: object) -> None:
        nonlocal count
        count += 1
        if (count * 2654435761 >> 16) % world_size == rank():
            multiply()

    call_before_forward(in_turn)


def slow_loader() -> None:
    """The loader of one rank sleeps."""
    if rank() == LATE:
        call_before(Batches, "draw", lambda *_: time.sleep(SLEEP_S))


def python_stall() -> None:
    """One rank sleeps before each update."""
    if rank() == LATE:
        for step in (Step, GraphedStep):
            call_before(step, "update", lambda *_: time.sleep(SLEEP_S))


def refuse_rows(config: Config, world_size: int, vocab_size: int) -> bool:
    """Replacement of training.machine.parallel.rows_travel for `larger_share`: False, or
    ValueError.

    Ranks that exchange rows expect as many from each, so a rank cannot have more tokens.
    """
    if rows_travel(config, world_size, vocab_size):
        least = vocab_size // (world_size * config.block_size) + 1
        raise ValueError(
            f"batch_size={config.batch_size}: ranks exchange a row for each token here, as many "
            f"from each, so none can have a larger share; give batch_size={least} or more"
        )
    return False


def larger_share() -> None:
    """One rank has half as many tokens again."""
    layout.rows_travel = refuse_rows  # type: ignore[attr-defined]  # it imports that name
    if rank() != LATE:
        return
    draw = Batches.draw

    def draw_more(batches: Batches, iteration: int, micro_step: int) -> tuple[Tensor, Tensor]:
        x, y = draw(batches, iteration, micro_step)
        half = len(x) // 2
        return torch.cat((x, x[:half])), torch.cat((y, y[:half]))

    replace_method(Batches, "draw", draw_more)


OF_RANKS = {
    "no_fault": Plant("balanced", GRAPHS, ranks=2),
    "extra_products": Plant("gpu_compute", GRAPHS, extra_products, ranks=2, late_rank=LATE),
    "rank_loader": Plant("data", GRAPHS, slow_loader, ranks=2, late_rank=LATE),
    "rank_stall": Plant("cpu", GRAPHS, python_stall, ranks=2, late_rank=LATE),
    "larger_share": Plant("gpu_compute", WIDE, larger_share, ranks=2, late_rank=LATE),
    "products_in_turns": Plant("jitter", GRAPHS, products_in_turns, ranks=2),
    "ranks_link": Plant(
        "communication",
        GRAPHS,
        ranks=2,
        environ={"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
    ),
}
