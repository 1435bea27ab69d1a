"""A helper process for work that needs torch: a process that asks for a GPU keeps memory of it."""

import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def process_beside() -> ProcessPoolExecutor:
    """Start a process that runs what is submitted. It ignores Ctrl-C, which this one handles."""
    quiet = (signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(1, get_context("spawn"), signal.signal, quiet)
