"""The ranks of a run, each forked by tests.helpers.forked.

torchrun starts each rank anew, and each imports torch: two seconds of a core. The additions of
torchrun itself, restarts, signals and one end for all, are tested with it in
tests/training/test_distributed.py and test_restart.py; its ranks are forked with TORCHRUN.
"""

import os
import time
from collections.abc import Callable

from tests.helpers.forked import Forked

TORCHRUN_LOOKS_S = 0.1  # how often torchrun looks whether a rank has failed
TORCHRUN = ("-m", "tests.helpers.torchrun")


def output_of_ranks(ranks: int, words: list[str]) -> str:
    """Run the script `words[0]` on each rank, assert that all succeed, and return all output."""
    codes, output = ended_ranks(ranks, words, end=Forked.kill)
    assert codes == [0] * ranks, output
    return output


def ended_ranks(
    ranks: int, words: list[str], limit_s: float = 170, end: Callable = Forked.terminate
) -> tuple[list[int], str]:
    """Exit codes and output of the ranks; when one fails, `end` the others."""
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
    started = [Forked(words, environ | who) for who in whos]
    end_s = time.monotonic() + limit_s
    try:
        while None in (codes := [rank.poll() for rank in started]):
            if any(codes) or time.monotonic() > end_s:
                time.sleep(TORCHRUN_LOOKS_S)  # what the others do meanwhile is theirs to do
                for rank in started:
                    end(rank)
                break
            time.sleep(0.02)
        output = "".join(rank.communicate(timeout=30)[0] for rank in started)
        assert time.monotonic() < end_s, f"not done within {limit_s} s:\n{output}"
        return [rank.wait() for rank in started], output
    finally:
        for rank in started:
            rank.kill()
            rank.stdout.close()
