"""A process of this project: its first call `begin`, how its threads wait, and a quick end.

`begin` comes before anything else is imported, and has few imports itself, because a Ctrl-C that
comes during them is still a traceback.
"""

import atexit
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType, TracebackType

# libgomp, which torch loads, lets a thread that waits spin 300,000 times, some milliseconds, before
# it sleeps. If another process has one of the cores, the thread that is waited for does not run,
# and the others burn the time that it needs. docs/benchmarks.md has the figures of this choice.
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


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR = "\x1b[?25h"  # a progress bar hides it

began_s: float | None = None  # time.perf_counter at `begin`; None: a run has taken it

last_acts: list[Callable[[], object]] = []  # called by `leave`, such as the release of a lock


def begin() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP end the process at once; let threads wait as cli.process says.

    Blocks of `cli.interrupts` handle the signals otherwise.
    """
    global began_s
    began_s = time.perf_counter()
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, leave)
    sys.unraisablehook = handle_unraisable
    sys.excepthook = handle_uncaught
    spin_briefly()


def take_began_s() -> float:
    """Time when the process began, for its first run, which imports all; later ones begin now."""
    global began_s
    taken_s, began_s = began_s, None
    return time.perf_counter() if taken_s is None else taken_s


def leave(number: int, frame: FrameType | None = None) -> None:
    """Signal handler: end the process without an exception, which somebody could catch or lose."""
    try:
        while last_acts:
            last_acts.pop()()
        if sys.stdout.isatty():
            sys.stdout.write(SHOW_CURSOR)
        sys.stdout.flush()
    except Exception:  # it is closed, or in the midst of a write
        pass
    os._exit(128 + number)


def handle_unraisable(lost: "sys.UnraisableHookArgs") -> None:
    """End the process if Python drops a Ctrl-C, as in a destructor or a callback of C."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        leave(signal.SIGINT)
    sys.__unraisablehook__(lost)


def handle_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Report a missing package in one line, as cli.extras does; of other errors a traceback."""
    if isinstance(error, ModuleNotFoundError):
        from cli.extras import refuse_missing_package

        refuse_missing_package(error)
    sys.__excepthook__(kind, error, trace)


# a profiler's library in this process writes what it has in an exit handler of C
INJECTED = ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")

succeeded = False


def begin_many_imports() -> None:
    """Turn the garbage collector off until `resume_garbage_collection`.

    Call it before anything registers an exit handler: the one registered first runs last.
    """
    gc.disable()
    atexit.register(leave_without_freeing)


def resume_garbage_collection() -> None:
    """Turn the garbage collector on again, with all present objects in the oldest generation.

    It searches new objects often and these rarely.
    """
    gc.freeze()
    gc.unfreeze()  # both together move every object to the oldest generation, without a search
    gc.enable()


def succeed() -> None:
    """Let the process end with exit code 0 and without freeing its objects; its work is done."""
    global succeeded
    succeeded = True


def leave_without_freeing() -> None:
    """Exit handler that runs last: end at once, so that the system takes the memory back whole.

    It does so only after `succeed`, and if no profiler is injected, whose library would lose data.
    """
    if not succeeded or any(os.environ.get(name) for name in INJECTED):
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream:
                stream.flush()
    except (OSError, ValueError):  # Python's own exit reports it
        return
    os._exit(0)
