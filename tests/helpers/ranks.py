"""The ranks of a run, forked from one process that has imported what each of them needs.

torchrun starts each rank anew, and each imports torch: two seconds of a core. The additions of
torchrun itself, restarts, signals and one end for all, are tested with it in
tests/training/test_distributed.py and test_restart.py.
"""

import multiprocessing
import os
import runpy
import sys
import time
from multiprocessing.connection import wait
from pathlib import Path

# one for all of pytest's process, so that whoever forks from it names the same modules
forked = multiprocessing.get_context("forkserver")
forked.set_forkserver_preload(
    [
        __name__,
        "torch._dynamo",  # fully_shard brings it, and so does a stack that gloo is asked for
        "train",
        "configs.command_line",
        "training.step.replicas",
        "training.step.shards",
        "training.disk.shard_files",
    ]
)


def output_of_ranks(ranks: int, words: list[str], folder: Path, limit_s: float = 170) -> str:
    """Run the script `words[0]` on each rank, assert that all succeed, and return all output."""
    output = folder / "output"
    output.write_text("")
    from torch.distributed import TCPStore  # conftest.py sets variables before torch is imported

    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    environ = {
        **os.environ,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # it is there, as torchrun's is
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    whos = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    started = [forked.Process(target=run_rank, args=(words, environ | who, output)) for who in whos]
    for rank in started:
        rank.start()
    end_s = time.monotonic() + limit_s
    try:
        running = {rank.sentinel: rank for rank in started}
        while running:
            ended = wait(running, end_s - time.monotonic())
            assert ended, f"not done within {limit_s} s:\n{output.read_text()}"
            for sentinel in ended:
                rank = running.pop(sentinel)
                rank.join()
                assert rank.exitcode == 0, output.read_text()
        return output.read_text()
    finally:
        for rank in started:
            rank.kill()
            rank.join()


def run_rank(words: list[str], environ: dict[str, str], output: Path) -> None:
    """Run the script as one rank, in a child process."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = list(words)
    runpy.run_path(words[0], run_name="__main__")
