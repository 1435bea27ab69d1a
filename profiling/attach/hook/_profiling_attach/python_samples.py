"""Samples of Python's stack in a window: py-spy takes them, which `profiling run` starts.

`run` is told by a socket when they begin and end. py-spy counts time from its own start, so at
the end it is shown stairs: calls inside calls, each begun at a time that is noted.
"""

import ctypes
import json
import os
import socket
import statistics
import struct
import sys
import threading
import time
from contextlib import suppress

RATE_HZ = 200
MOST = 20_000  # samples: a longer window gets fewer a second
STAIRS = 20
PATIENCE_S = 10.0  # with `run`, which may have been killed
PR_SET_PTRACER = 0x59616D61
SAMPLES = b'{"python_samples":'  # beginning of an answer that is no fault


class PythonSamples:
    """Samples of the thread that makes it. Raises OSError where `run` is gone."""

    def __init__(self, path, window_s):
        self.rate_hz = min(RATE_HZ, max(1, MOST / window_s)) if window_s else RATE_HZ
        self.thread, self.native = threading.get_ident(), threading.get_native_id()
        self.run = socket.socket(socket.AF_UNIX)
        self.run.settimeout(PATIENCE_S)
        self.run.connect(path)
        credentials = self.run.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        let_read(struct.unpack("3i", credentials)[0])
        self.tell({"rate_hz": self.rate_hz})
        self.run.recv(1)  # py-spy has begun, or cannot

    def tell(self, what):
        self.run.sendall(json.dumps(what).encode() + b"\n")

    def end(self):
        """Return the samples as JSON. Raises OSError, or ValueError saying why there are none."""
        stairs_ns = []
        climb(stairs_ns, 0.5 / self.rate_hz)
        self.tell(
            {
                "thread": self.thread,
                "pid": os.getpid(),
                "tid": self.native,
                "stairs_ns": stairs_ns,
                "folders": [os.path.join(path, "") for path in sys.path if path],
            }
        )
        with self.run.makefile("rb") as file:
            answer = file.read()
        self.discard()
        if not answer.startswith(SAMPLES):
            raise ValueError(answer.decode() or "profiling run did not answer")
        return answer

    def discard(self):
        let_read(0)
        with suppress(OSError):
            self.run.shutdown(socket.SHUT_RDWR)  # forked processes have it open, too
        self.run.close()


def let_read(pid):
    """Let a process and those below it read this one, where Yama allows it to parents alone."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


def climb(stairs_ns, stair_s):
    """Note when each of STAIRS calls inside each other begins, and when the last one ends."""
    stairs_ns.append(time.time_ns())
    time.sleep(stair_s)
    if len(stairs_ns) < STAIRS:
        climb(stairs_ns, stair_s)
    else:
        stairs_ns.append(time.time_ns())


def seconds_of(laps_ms, steps):
    """Seconds that so many steps take, by the newest ones; None where none is known."""
    newest = [ms for ms in laps_ms[-10:] if ms is not None]
    return steps * statistics.median(newest) / 1000 if newest else None
