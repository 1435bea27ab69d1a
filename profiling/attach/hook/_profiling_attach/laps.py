"""Step times in milliseconds, taken without waiting for the GPU."""

import time
from collections import deque

FREE, PREPARED, CAPTURED = "free", "prepared", "captured"  # a profiler's part in a step


def uses_gpu(torch):
    """Whether this process has used a CUDA GPU so far."""
    return torch.cuda.is_available() and torch.cuda.is_initialized()


class Laps:
    """Times of the steps since the first, and whether a profiler was on.

    A moment is a CUDA event where the program uses a GPU, else a time of the host in ns.
    """

    def __init__(self, torch):
        self.cuda = torch.cuda if uses_gpu(torch) else None
        self.ms = []  # None: the GPU has not passed it yet, or it could not be timed
        self.labels = []
        self.last = None  # the moment at which the newest step ended
        self.pending = deque()  # (index in ms, event at the begin, event at the end)

    def now(self):
        """The present moment; None inside the capture of a CUDA graph."""
        if self.cuda is None:
            return time.perf_counter_ns()
        if self.is_capturing():
            return None
        event = self.cuda.Event(enable_timing=True)
        event.record()
        return event

    def is_capturing(self):
        """Whether the capture of a CUDA graph is under way, which would hold what is launched."""
        return self.cuda is not None and self.cuda.is_current_stream_capturing()

    def add(self, end, label):
        """A step from `last` to `end`. Returns the number of steps so far."""
        begin, self.last = self.last, end
        ms = self.ms
        self.labels.append(label)
        if self.cuda is None:
            ms.append((end - begin) / 1e6)
            return len(ms)
        ms.append(None)
        if begin is not None and end is not None:
            self.pending.append((len(ms) - 1, begin, end))
        return len(ms)

    def read(self, wait=False):
        """Read the laps whose ends the GPU has passed, or all of them. Returns how many are read
        from the first on."""
        while self.pending:
            index, begin, end = self.pending[0]
            if wait:
                end.synchronize()
            elif not end.query():
                return index
            self.ms[index] = begin.elapsed_time(end)
            self.pending.popleft()
        return len(self.ms)

    def with_label(self, label, first=0):
        """Times of the steps with this label, from index `first` on, in milliseconds."""
        pairs = zip(self.ms[first:], self.labels[first:])
        return [ms for ms, each in pairs if each == label and ms is not None]
