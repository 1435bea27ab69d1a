"""A process beside this one, for what needs torch: who asks for a GPU keeps memory of it."""

import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def process_beside() -> ProcessPoolExecutor:
    """Starts one that works off what is submitted; Ctrl-C is answered here, once."""
    quiet = (signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(1, get_context("spawn"), signal.signal, quiet)
