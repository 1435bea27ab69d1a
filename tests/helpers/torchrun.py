"""torchrun whose ranks are forked, from a process that has torch, instead of started anew.

`python -m tests.helpers.torchrun` takes torchrun's words. A server forks the ranks, as torchrun
itself soon has threads. A rank has no process group of its own. The ranks of torchrun as users
start it are tested in tests/training/test_distributed.py.
"""

import os
import signal
import socket

from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import (
    SubprocessHandler,
)
from torch.distributed.run import main

from profiling.launch.any_program.start import VARIABLE
from tests.helpers.fork_server import run_to_its_end, serve
from tests.helpers.forked import HOOKED, Forked


def fork_rank(requests: socket.socket, args: tuple[str, ...], env: dict[str, str]) -> Forked:
    """Fork what `args` starts anew, Python -u SCRIPT ..., with the hook if `env` has it."""
    hooked = ["-c", HOOKED] if VARIABLE in env else []
    return Forked([*hooked, *args[2:]], {**env, "PYTHONUNBUFFERED": "1"}, requests, output=1)


def send_signal(handler: SubprocessHandler, death_sig: signal.Signals | None = None) -> None:
    handler.proc.send_signal(death_sig or signal.SIGTERM)


if __name__ == "__main__":
    ours, theirs = socket.socketpair()
    if os.fork():
        theirs.close()
        SubprocessHandler._popen = lambda _, args, env: fork_rank(ours, args, env)
        SubprocessHandler.close = send_signal
        main()
    else:
        ours.close()
        if request := serve(theirs):
            theirs.close()
            run_to_its_end(request)
