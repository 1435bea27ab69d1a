"""Waiting of OpenMP's threads for each other, configured before torch loads its library.

libgomp lets a thread that waits spin 300,000 times, some milliseconds, before it sleeps. Where
another process has one of the cores, the thread that is waited for does not run, and the others
burn the time that it needs. docs/benchmarks.md has the figures of this choice.
"""

import os

SPIN_COUNT = "GOMP_SPINCOUNT"
VARIABLES = ("OMP_WAIT_POLICY", SPIN_COUNT, "OMP_NUM_THREADS")  # decide how threads wait
ROUNDS = 10_000  # 3 % slower than 300,000 with the machine to itself


def spin_briefly() -> None:
    """Let waiting threads spin ROUNDS times only, unless the environment says how to wait.

    It has no effect once torch is imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(SPIN_COUNT, str(ROUNDS))


def wait_variables() -> dict[str, str | None]:
    """Values of VARIABLES in this process, by name; None if it is left to the library."""
    return {name: os.environ.get(name) for name in VARIABLES}


def usable_cores() -> int | None:
    """Number of cores that the system lets this process run on, or None if it does not say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()  # where processes are not bound to cores


def environment_for_others() -> dict[str, str]:
    """Environment for somebody else's program: its threads wait as its own libraries choose."""
    environ = dict(os.environ)
    if environ.get(SPIN_COUNT) == str(ROUNDS):
        del environ[SPIN_COUNT]
    return environ
