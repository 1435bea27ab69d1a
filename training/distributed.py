"""The ranks of a torchrun job or of a Slurm step, or the one rank of a plain run."""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.constants import default_pg_nccl_timeout
from torch.distributed.rendezvous import rendezvous

from cli.interrupts import handle_signals
from profiling.flight_recorder import HOSTS_GROUP
from training.device import resolve_device
from training.torchrun import from_torchrun, launched

T = TypeVar("T")
log = logging.getLogger(__name__)
PATIENCE_S = 30.0  # ranks that start together meet within seconds
RUNS = count()  # of this process, the same on each rank


@dataclass(frozen=True)
class Ranks:
    """Who this process is among the processes of the run, and its device."""

    rank: int
    world_size: int
    device: torch.device
    began_s: float = field(default_factory=time.perf_counter)  # when the run began in this process

    @cached_property
    def device_name(self) -> str:
        """As the vendor writes it for a GPU, else cpu or mps."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return self.device.type

    @cached_property
    def hosts(self) -> dist.ProcessGroup | None:
        """All ranks, for what their hosts tell each other: no GPU is waited for, and none waits.

        None: the group of the run, which is gloo's where there is no GPU.
        """
        if self.device.type != "cuda":
            return None
        # gloo's own patience is three times as long as NCCL's
        return dist.new_group(
            backend="gloo", timeout=default_pg_nccl_timeout, group_desc=HOSTS_GROUP
        )

    @cached_property
    def hosts_beside(self) -> dist.ProcessGroup:
        """All ranks, for a thread beside the training: its collectives have an order of their own.

        All ranks ask for it first at the same place of the run.
        """
        return dist.new_group(backend="gloo")

    @property
    def suffix(self) -> str:
        """Of the names of files that several ranks write side by side."""
        return f"-rank{self.rank}" if self.world_size > 1 else ""

    def means(self, values: dict[str, Tensor]) -> dict[str, float]:
        """Of scalars, over the ranks, on each of them. Waits for the device that they are on."""
        mine = torch.stack(list(values.values())).cpu().double()
        means = torch.stack(self.gather(mine)).mean(0)
        return dict(zip(values, means.tolist(), strict=True))

    def sum(self, value: Tensor) -> Tensor:
        """Sum over the ranks, on each of them."""
        if self.world_size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def any(self, flag: bool) -> bool:
        """Whether the flag is up on any rank. The hosts of several wait for each other."""
        return self.any_of_each([flag])[0]

    def any_of_each(self, flags: list[bool]) -> list[bool]:
        """Whether each of these flags is up on any rank, in one exchange."""
        if self.world_size == 1:
            return flags
        up = torch.tensor(flags, dtype=torch.float32)
        dist.all_reduce(up, group=self.hosts)
        return [bool(ranks) for ranks in up]

    def gather(self, value: Tensor) -> list[Tensor]:
        """The value of each rank, on the CPU; `value` is a CPU tensor of one size everywhere."""
        if self.world_size == 1:
            return [value]
        all_values = [torch.empty_like(value) for _ in range(self.world_size)]
        dist.all_gather(all_values, value, group=self.hosts)
        return all_values

    def all_of(self, value: T) -> list[T]:
        """What each rank has for `value`, on each of them."""
        if self.world_size == 1:
            return [value]
        values: list[T | None] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.hosts)
        return cast(list[T], values)

    def from_first(self, make: Callable[[], T]) -> T:
        """What `make` returns on rank 0, on each of them; its ValueError ends them all."""
        if self.world_size == 1:
            return make()
        made, error = None, None
        if self.rank == 0:
            try:
                made = make()
            except ValueError as mistake:
                error = mistake
        box: list[object] = [made, error is None]
        dist.broadcast_object_list(box, src=0, device=self.device)
        if not box[1]:
            raise error or SystemExit(2)  # rank 0 says why, once
        return cast(T, box[0])

    def ended(self, why: str) -> SystemExit:
        """What ends a run of which all ranks know why: rank 0 says it, once.

        It does so now: the first rank that ends has torchrun end the others.
        """
        if self.world_size == 1:
            return SystemExit(why)
        if self.rank == 0:
            print(why, file=sys.stderr, flush=True)
        return SystemExit(1)


def this_life() -> str:
    """Names the part of torchrun's store that is this life's: the store is one for all jobs of a
    sweep, and for all restarts, and addresses in it go stale. Several agents count theirs apart."""
    here, everywhere = os.environ.get("LOCAL_WORLD_SIZE"), os.environ["WORLD_SIZE"]
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return f"{everywhere} ranks, life {restarts if here == everywhere else 0}"


def join(device: torch.device, world_size: int) -> None:
    """Waits for the other ranks, and makes the group of the run. ValueError names the place."""
    on_cuda = device.type == "cuda"
    address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    patience = threading.Timer(PATIENCE_S, say_waiting, (address, port))
    patience.daemon = True
    if from_torchrun("LOCAL_RANK", 0) == 0:  # for all of this host
        say_unknown(address)
        patience.start()
    try:
        store, rank, _ = next(rendezvous("env://"))
    except dist.DistError as error:
        reason = str(error).partition("\n")[0]
        if "EADDRINUSE" in reason:
            reason = "in use by another program of this host; choose another, or end that first"
        raise ValueError(f"MASTER_PORT={port} of MASTER_ADDR={address}: {reason}") from error
    finally:
        patience.cancel()
    dist.init_process_group(
        "nccl" if on_cuda else "gloo",
        store=dist.PrefixStore(f"{this_life()}, run {next(RUNS)}", store),
        rank=rank,
        world_size=world_size,
        device_id=device if on_cuda else None,
    )


def say_unknown(address: str) -> None:
    """PyTorch asks for the name again, for minutes: on some clusters it comes later than ranks."""
    try:
        socket.getaddrinfo(address, None)
    except (OSError, UnicodeError) as error:
        log.warning(
            "MASTER_ADDR=%s: no host of this name is known here (%s); waiting until it is",
            address,
            getattr(error, "strerror", error),
        )


def say_waiting(address: str, port: str) -> None:
    rank, world_size = os.environ["RANK"], os.environ["WORLD_SIZE"]
    log.warning(
        "rank %s of %s: has waited %.0f s for all ranks to meet at %s, port %s (MASTER_ADDR, "
        "MASTER_PORT)",
        *(rank, world_size, PATIENCE_S, address, port),
    )


@contextmanager
def started(device: str) -> Iterator[Ranks]:
    """Joins torchrun's process group where there is one; leaves it at the end.

    Raises ValueError naming `device` when it is not to be had.
    """
    began_s = time.perf_counter()
    local_rank, world_size = launched()
    mine = resolve_device(device, local_rank, world_size)
    if mine.type == "cuda":
        torch.cuda.set_device(mine)
    if world_size == 1:
        yield Ranks(0, 1, mine, began_s)
        return
    if mine.type == "mps":
        raise ValueError("device=mps: several ranks need cuda or cpu")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise ValueError(
                f"WORLD_SIZE={world_size}, but {name} is not set; start it as torchrun "
                f"--standalone --nproc_per_node={world_size} train.py ..., or unset WORLD_SIZE"
            )
    if not 0 < from_torchrun("MASTER_PORT", 0) < 1 << 16:  # each rank would choose its own for 0
        raise ValueError(f"MASTER_PORT={os.environ['MASTER_PORT']}: a port is from 1 to 65535")
    if (number := from_torchrun("RANK", 0)) >= world_size:  # the others would wait for ever
        raise ValueError(f"RANK={number}: there are {world_size} ranks (WORLD_SIZE), from 0 on")
    # it waits in C++, minutes, where no handler of Python's runs
    with handle_signals(signal.SIG_DFL):
        join(mine, world_size)
    try:
        yield Ranks(dist.get_rank(), world_size, mine, began_s)
    finally:
        dist.destroy_process_group()
