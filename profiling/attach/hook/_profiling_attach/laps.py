"""Step times in milliseconds, taken without waiting for the GPU."""

import statistics
import time
from collections import deque
from functools import partial
from itertools import compress, count

FREE, PREPARED, CAPTURED = "free", "prepared", "captured"  # a profiler's part in a step
UNTIMED = False  # the moment of an end that is not timed
WHOLE = 200  # steps that are all timed, at the beginning and behind a window
SPACING_MS = 10.0  # between timed steps: the two events of one and their reading take up to 10 us
# One step of so many is timed. Primes, as loops log every tenth or hundredth step.
STRIDES = (1, 3, 7, 11, 23, 47)


def uses_gpu(torch):
    """Whether this process has used a CUDA GPU so far."""
    return torch.cuda.is_available() and torch.cuda.is_initialized()


def event_maker(torch):
    """Function that makes a CUDA event with a time.

    record() of torch.cuda.Event first makes a Stream in Python. That of torch.Event is in C, and
    has not been tried before PyTorch 2.6.
    """
    if torch.__version__ >= "2.6":
        return partial(torch.Event, "cuda", enable_timing=True)
    return partial(torch.cuda.Event, enable_timing=True)


class Laps:
    """Times of the steps since the first, and whether a profiler was on.

    A moment is a CUDA event where the program uses a GPU, else a time of the host in ns. On a GPU
    only one short step of several is timed, once there are enough.
    """

    def __init__(self, torch):
        self.cuda = torch.cuda if uses_gpu(torch) else None
        self.ms = []  # None: the GPU has not passed it yet, or it was not timed
        self.labels = []
        self.last = None  # the moment at which the newest step ended
        self.pending = deque()  # (index in ms, event at the begin, event at the end)
        self.passed = []  # events that are read, for new moments
        self.stride = 1
        self.to_skip = 0  # next ends that are not timed
        self.has_begun = False  # the last event began a timed step
        self.was_capturing = False  # a moment fell into the capture of a CUDA graph
        self.whole_until = WHOLE
        self.now = time.perf_counter_ns if self.cuda is None else self.event_now
        self.new_event = None if self.cuda is None else event_maker(torch)

    def event_now(self):
        """The present moment on the GPU; None inside the capture of a CUDA graph, UNTIMED where no
        timed step begins or ends."""
        if self.to_skip:
            self.to_skip -= 1
            return UNTIMED
        if self.stride > 1:
            self.has_begun = not self.has_begun
            if not self.has_begun:
                self.to_skip = self.stride - 2
        if self.is_capturing():
            self.was_capturing = True
            return None
        event = self.passed.pop() if self.passed else self.new_event()
        event.record()
        return event

    def skip(self, most):
        """Skip the next ends, at most so many, that are not timed. Returns their number."""
        skipped = min(self.to_skip, most)
        self.to_skip -= skipped
        return skipped

    def is_capturing(self):
        """Whether the capture of a CUDA graph is under way, which would hold what is launched."""
        return self.cuda is not None and self.cuda.is_current_stream_capturing()

    def extend(self, ends, label):
        """Add steps that ended at these moments, the first of which began at `last`."""
        begins, self.last = [self.last, *ends[:-1]], ends[-1]
        self.labels += [label] * len(ends)
        if self.cuda is None:
            self.ms += [(end - begin) / 1e6 for begin, end in zip(begins, ends)]
            return
        for at in compress(count(), ends):  # few, where not every step is timed
            if begins[at]:
                self.pending.append((len(self.ms) + at, begins[at], ends[at]))
        self.ms += [None] * len(ends)

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
            begins_another = self.pending and self.pending[0][1] is end
            if not begins_another and end is not self.last:
                self.passed.append(end)
        return len(self.ms)

    def time_every_step(self):
        """Time all steps of a window, and the next ones behind it."""
        self.stride, self.to_skip, self.has_begun = 1, 0, False
        self.whole_until = len(self.ms) + WHOLE

    def choose_stride(self):
        """Choose how many steps there are to a timed one, by how long the newest took."""
        if self.cuda is None or len(self.ms) < self.whole_until:
            return
        newest = [ms for ms in self.ms[-WHOLE:] if ms is not None]
        if not newest:
            return
        spacing = SPACING_MS / max(statistics.median(newest), 1e-3)
        self.stride = max(stride for stride in STRIDES if stride <= max(spacing, 1))

    def with_label(self, label, first=0):
        """Times of the steps with this label, from index `first` on, in milliseconds."""
        pairs = zip(self.ms[first:], self.labels[first:])
        return [ms for ms, each in pairs if each == label and ms is not None]
