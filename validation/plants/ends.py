"""Faults that end a rank, a host or a collective in iteration AT of the real trainer."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial

import torch.distributed as dist

from validation.plants.planting import Plant
from validation.plants.ranks import LATE, rank

AT = 17
LOST = "PLANT_LOST_HOST"  # set in the environment of the torchrun that is killed
# NCCL's watchdog aborts a rank once it has waited PATIENCE_S, and four times WAIT_FOR_DUMP_MS more;
# the late rank sleeps longer than that
PATIENCE_S, WAIT_FOR_DUMP_MS, HANG_S = 10, 4000, 34


def call_at(fault: Callable[[], None]) -> None:
    """Call `fault` before the micro-steps of iteration AT."""
    import train  # not above: it starts what a run needs

    original: Callable[..., None] = train.accumulate
    name = "accumulate"

    def with_fault(*arguments: object) -> None:
        _step, _batches, iteration, _spans = arguments
        if iteration == AT:
            fault()
        original(*arguments)

    setattr(train, name, with_fault)


def kill_rank() -> None:
    if rank() == LATE and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)


def kill_host(torchrun: int) -> None:
    """Kill torchrun and this rank, as the loss of their host would."""
    if os.environ.get(LOST):
        with suppress(ProcessLookupError):  # another rank has killed it
            os.kill(torchrun, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def put_lost_host() -> None:
    limit_patience()  # NCCL notices nothing else of the lost ranks
    # read at the start: once another rank has killed torchrun, this rank has another parent
    call_at(partial(kill_host, os.getppid()))


def sleep_late() -> None:
    if rank() == LATE:
        time.sleep(HANG_S)


def put_hang() -> None:
    limit_patience()
    call_at(sleep_late)


def limit_patience() -> None:
    """End collectives that wait for PATIENCE_S, where ten minutes are usual."""
    name, patience = "init_process_group", timedelta(seconds=PATIENCE_S)
    setattr(dist, name, partial(dist.init_process_group, timeout=patience))


NCCL = {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": str(WAIT_FOR_DUMP_MS)}
ENDS = {
    "killed_rank": Plant("resumed", "go_on=true", partial(call_at, kill_rank)),
    "lost_host": Plant("resumed", "go_on=true", put_lost_host, environ=NCCL),
    "hang": Plant("absent", "", put_hang, environ=NCCL),
}
