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
from cli.process import take_began_s
from profiling.shared.run_files import HOSTS_GROUP
from training.machine.device import resolve_device
from training.machine.torchrun import from_torchrun, local_rank_and_world_size

T = TypeVar("T")
log = logging.getLogger(__name__)
PATIENCE_S = 30.0  # before a warning; ranks that start together meet within seconds
RUNS = count()  # numbers the runs of this process, alike on each rank


@dataclass(frozen=True)
class Ranks:
    """This process's rank among the ranks of the run, its device, and exchanges with the others."""

    rank: int
    world_size: int
    device: torch.device
    began_s: float = field(default_factory=time.perf_counter)  # when the run began in this process

    @cached_property
    def device_name(self) -> str:
        """Name of the device: the vendor's for a GPU, else cpu or mps."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return self.device.type

    @cached_property
    def hosts(self) -> dist.ProcessGroup | None:
        """Process group of all ranks for exchanges between hosts, which wait for no GPU.

        None without GPUs: the default group, which is gloo's then.
        """
        if self.device.type != "cuda":
            return None
        # gloo's default timeout is three times as long as NCCL's
        group: dist.ProcessGroup = dist.new_group(
            backend="gloo", timeout=default_pg_nccl_timeout, group_desc=HOSTS_GROUP
        )
        return group

    @cached_property
    def hosts_beside(self) -> dist.ProcessGroup:
        """Process group of all ranks for a thread beside the training.

        The thread's collectives come in an order of their own, so they need their own group. All
        ranks must first use this property at the same place in the run, which creates the group.
        """
        group: dist.ProcessGroup = dist.new_group(backend="gloo")
        return group

    @property
    def suffix(self) -> str:
        """Suffix for names of files that several ranks write side by side; empty for one rank."""
        return f"-rank{self.rank}" if self.world_size > 1 else ""

    def means(self, values: dict[str, Tensor]) -> dict[str, float]:
        """Means of scalars over the ranks, the same on each rank. Waits for the scalars' device."""
        mine = torch.stack(list(values.values())).cpu().double()
        means = torch.stack(self.gather(mine)).mean(0)
        return dict(zip(values, means.tolist(), strict=True))

    def sum(self, value: Tensor) -> Tensor:
        """Sum of `value` over the ranks, the same on each rank."""
        if self.world_size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def any(self, flag: bool) -> bool:
        """Whether the flag is up on any rank. The hosts of the ranks wait for each other."""
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

    def gather_objects(self, value: T) -> list[T]:
        """The values of all ranks in their order, the same list on each rank."""
        if self.world_size == 1:
            return [value]
        values: list[T | None] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.hosts)
        return cast(list[T], values)

    def from_first(self, make: Callable[[], T]) -> T:
        """Calls `make` on rank 0 and returns its result on each rank.

        If it raises ValueError, rank 0 raises that and the others raise SystemExit(2).
        """
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

    def exit_with(self, why: str) -> SystemExit:
        """Makes the SystemExit for a run that all ranks end for the same reason.

        Rank 0 prints the reason at once: as soon as one rank ends, torchrun ends the others.
        """
        if self.world_size == 1:
            return SystemExit(why)
        if self.rank == 0:
            print(why, file=sys.stderr, flush=True)
        return SystemExit(1)


def store_prefix() -> str:
    """Prefix in torchrun's store for this life of the job.

    All jobs of a sweep and all restarts share one store, and addresses in it go stale. With several
    agents the restarts are not counted, because each agent counts only its own.
    """
    here, everywhere = os.environ.get("LOCAL_WORLD_SIZE"), os.environ["WORLD_SIZE"]
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return f"{everywhere} ranks, life {restarts if here == everywhere else 0}"


def make_process_group(device: torch.device, world_size: int) -> None:
    """Waits for the other ranks and makes the default process group.

    Raises ValueError naming the address and port if the ranks cannot meet there.
    """
    on_cuda = device.type == "cuda"
    address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    patience = threading.Timer(PATIENCE_S, warn_waiting, (address, port))
    patience.daemon = True
    if from_torchrun("LOCAL_RANK", 0) == 0:  # one warning for each host
        warn_unknown_host(address)
        patience.start()
    try:
        store, rank, _ = next(rendezvous("env://"))
    except dist.DistError as error:
        reason = str(error).partition("\n")[0]
        if "EADDRINUSE" in reason:
            reason = (
                "in use by another program on this host; choose another port, or end that program "
                "first"
            )
        raise ValueError(f"MASTER_PORT={port} of MASTER_ADDR={address}: {reason}") from error
    finally:
        patience.cancel()
    dist.init_process_group(
        "nccl" if on_cuda else "gloo",
        store=dist.PrefixStore(f"{store_prefix()}, run {next(RUNS)}", store),
        rank=rank,
        world_size=world_size,
        device_id=device if on_cuda else None,
    )


def warn_unknown_host(address: str) -> None:
    """Warns if the host name `address` is not known here.

    PyTorch tries the name again for minutes: on some clusters it appears later than the ranks.
    """
    try:
        socket.getaddrinfo(address, None)
    except (OSError, UnicodeError) as error:
        log.warning(
            "MASTER_ADDR=%s: this host name is not known (%s); waiting until it can be resolved",
            address,
            getattr(error, "strerror", error),
        )


def warn_waiting(address: str, port: str) -> None:
    rank, world_size = os.environ["RANK"], os.environ["WORLD_SIZE"]
    log.warning(
        "rank %s of %s: has waited %.0f s for all ranks to connect at %s, port %s (MASTER_ADDR, "
        "MASTER_PORT)",
        *(rank, world_size, PATIENCE_S, address, port),
    )


@contextmanager
def join_run(device: str) -> Iterator[Ranks]:
    """Joins the process group of the run if it has several ranks; leaves it at the end.

    Raises ValueError naming `device` if it is not available, or torchrun's variable that is wrong.
    """
    began_s = take_began_s()
    local_rank, world_size = local_rank_and_world_size()
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
                f"WORLD_SIZE={world_size}, but {name} is not set; start training with torchrun "
                f"--standalone --nproc_per_node={world_size} train.py ..., or unset WORLD_SIZE"
            )
    if not 0 < from_torchrun("MASTER_PORT", 0) < 1 << 16:  # each rank would choose its own for 0
        raise ValueError(f"MASTER_PORT={os.environ['MASTER_PORT']}: a port must be from 1 to 65535")
    if (number := from_torchrun("RANK", 0)) >= world_size:  # the others would wait for ever
        raise ValueError(f"RANK={number}: must be from 0 to one less than WORLD_SIZE={world_size}")
    with handle_signals(signal.SIG_DFL):  # C++ code waits, for minutes, and runs no Python handler
        make_process_group(mine, world_size)
    try:
        yield Ranks(dist.get_rank(), world_size, mine, began_s)
    finally:
        dist.destroy_process_group()
