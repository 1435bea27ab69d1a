"""Samples of what Python does in a window: the stack of the thread that trains, again and again.

torch.profiler's own stacks cost something at each call of a function. A sample costs some 20 us,
and up to 0.4 ms where threads are slow to wake.
"""

import json
import os
import random
import sys
import threading
import time

PERIOD_S = 0.005, 0.015  # at random between these, or it may go with the program's own steps
MOST = 50_000  # samples: some minutes
OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
MEMBER = "python_samples"  # of the trace


class PythonSampler:
    """Samples the thread that makes it, in a thread of its own, from `start` to `stop`."""

    def __init__(self):
        self.sampled, self.native = threading.get_ident(), threading.get_native_id()
        self.functions, self.stacks = {}, {}  # code, numbers of functions -> number
        self.times_ns, self.stack = [], []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self):
        self.thread.start()

    def run(self):
        draw = random.Random(0).uniform  # the program's own numbers stay as they are
        while len(self.stack) < MOST:
            self.take()
            if self.stopped.wait(draw(*PERIOD_S)):
                return

    def take(self):
        frame = sys._current_frames().get(self.sampled)
        self.times_ns.append(time.time_ns())
        codes = []
        while frame is not None:
            if not frame.f_code.co_filename.startswith(OURS):
                codes.append(frame.f_code)
            frame = frame.f_back
        functions = self.functions
        numbers = tuple(functions.setdefault(code, len(functions)) for code in reversed(codes))
        self.stack.append(self.stacks.setdefault(numbers, len(self.stacks)))

    def stop(self):
        """Stop, and return the samples as JSON: at each time, what was open since the last one."""
        self.stopped.set()
        self.thread.join()
        folders = sorted((os.path.join(p, "") for p in sys.path if p), key=len, reverse=True)
        samples = {
            "pid": os.getpid(),
            "tid": self.native,
            "names": [function_name(code, folders) for code in self.functions],
            "stacks": list(self.stacks),
            "times_ns": self.times_ns,
            "stack": self.stack,
        }
        return json.dumps(samples)


def function_name(code, folders):
    """The function as torch.profiler names it, without the folder of sys.path that it is in."""
    file = code.co_filename
    inside = next((file[len(folder) :] for folder in folders if file.startswith(folder)), file)
    return f"{inside}({code.co_firstlineno}): {code.co_name}"
