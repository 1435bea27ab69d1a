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
        self.passed = []  # events that are read, for new moments
        self.now = time.perf_counter_ns if self.cuda is None else self.event_now

    def event_now(self):
        """The present moment on the GPU; None inside the capture of a CUDA graph."""
        if self.is_capturing():
            return None
        event = self.passed.pop() if self.passed else self.cuda.Event(enable_timing=True)
        event.record()
        return event

    def is_capturing(self):
        """Whether the capture of a CUDA graph is under way, which would hold what is launched."""
        return self.cuda is not None and self.cuda.is_current_stream_capturing()

    def extend(self, ends, label):
        """Add steps that ended at these moments, the first of which began at `last`."""
        begin, self.last = self.last, ends[-1]
        self.labels += [label] * len(ends)
        ms = self.ms
        for end in ends:
            if self.cuda is None:
                ms.append((end - begin) / 1e6)
            else:
                if begin is not None and end is not None:
                    self.pending.append((len(ms), begin, end))
                ms.append(None)
            begin = end

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
            self.passed.append(begin)
        return len(self.ms)

    def with_label(self, label, first=0):
        """Times of the steps with this label, from index `first` on, in milliseconds."""
        pairs = zip(self.ms[first:], self.labels[first:])
        return [ms for ms, each in pairs if each == label and ms is not None]
