"""Power of a GPU beside a process of any program, by the driver's energy counter. Used by records.

The counter is renewed every 100 ms. So it is polled ten times as often, and power is taken from one
new value to another: no stale value lies at either end.
"""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pynvml
from pynvml import NVMLError

from profiling.recording.nvml import ENERGY, READINGS, handle_of

POLL_S = 0.01


@dataclass(frozen=True)
class Reading:
    at_s: float  # time.perf_counter
    joules: float


@contextmanager
def energy_readings(uuid: str | None) -> Iterator[list[Reading]]:
    """Gives a list that gets each new value of the counter as long as the block runs.

    It stays empty without a GPU, `uuid` None; a driver that refuses the counter is named on stderr.
    """
    readings: list[Reading] = []
    if uuid is None:
        yield readings
        return
    ended = threading.Event()
    thread = threading.Thread(target=poll, args=(uuid, readings, ended), daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        ended.set()
        thread.join()


def poll(uuid: str, readings: list[Reading], ended: threading.Event) -> None:
    """Append each new value of the counter until `ended` is set."""
    try:
        pynvml.nvmlInit()
        gpu = handle_of(uuid)
        while not ended.wait(POLL_S):
            joules = READINGS[ENERGY](gpu)
            if not readings or joules != readings[-1].joules:
                readings.append(Reading(time.perf_counter(), joules))
    except NVMLError as error:
        print(f"no energy: NVML answers {error}", file=sys.stderr)
    finally:
        with suppress(NVMLError):
            pynvml.nvmlShutdown()


def mean_power_w(readings: Sequence[Reading], begin_s: float, end_s: float) -> float | None:
    """Mean power from the first new value within the time to the last; None with fewer than two."""
    within = [reading for reading in readings if begin_s <= reading.at_s <= end_s]
    if len(within) < 2:
        return None
    first, last = within[0], within[-1]
    return (last.joules - first.joules) / (last.at_s - first.at_s)
