"""The window of steps that is captured: when it opens, and the recorder that captures it."""

import gzip
import os
import shutil
import statistics
import time
from contextlib import contextmanager

from _profiling_attach.laps import CAPTURED, FREE, PREPARED, uses_gpu
from _profiling_attach.leftovers import leftovers_removed
from _profiling_attach.python_samples import PythonSamples, seconds_of

KINDS = ("torch", "memory", "nsys")
LEAD = 3  # steps for which torch.profiler's tracer is on before the window
SETTLING = 10  # steps whose two halves are compared
STEADY = 0.10  # relative difference of their medians at which step times are steady
PATIENCE = 60  # steps after which the window opens although they are not: many runs are short
START_OF_RANKS = 30  # each rank alone would find another step
LATER = 50  # steps until the next try, where the program's own profiler is on
MOST_ALLOCATIONS = 200_000  # newest events of the allocator, about a kilobyte each
KINETO_LEVEL = "KINETO_LOG_LEVEL"
NEXT_MODEL = "the program made another optimizer, whose first steps are known late"


def planned_window(torch, settings, world_size):
    """The window that the settings ask for, or None. Raises ValueError where there can be none."""
    if settings.kind == "none":
        return None
    check_kind(torch, settings.kind)
    start = START_OF_RANKS if settings.start is None and world_size > 1 else settings.start
    return Window(torch, settings.kind, start, settings.steps, settings.stack, settings.samples)


def requested_window(torch, settings, request):
    """The window of a request. Raises ValueError where there can be none."""
    steps, kind = request.get("steps") or settings.steps, request.get("kind") or "torch"
    stack = kind == "stack" or settings.stack
    kind = "torch" if kind == "stack" else kind
    check_kind(torch, kind)
    return Window(torch, kind, request["start"], steps, stack, settings.samples)


def check_kind(torch, kind):
    """Raise ValueError with words for why this process has no window of a kind."""
    if kind not in KINDS:
        raise ValueError(f"no window of {kind}: it is none of {', '.join(KINDS)}")
    if kind != "torch" and not uses_gpu(torch):
        raise ValueError(f"no window of {kind}: torch uses no GPU in this process")


class Window:
    """One window of `steps` steps. `start` is None until step times are steady.

    With `stack` torch.profiler also records Python's functions; without, they are sampled if
    `samples` is a socket of `run`.
    """

    kineto_started = False  # by a window of this process

    def __init__(self, torch, kind, start, steps, stack=False, samples=None):
        self.torch, self.kind, self.start, self.steps = torch, kind, start, steps
        self.stack = stack
        self.socket = None if stack else samples
        self.samples = None  # while they are taken
        self.not_sampled = None  # why not
        self.label = FREE
        self.first = None  # step of the program with which it opened
        self.ended_by = None  # why it ended before its time
        self.notes = []
        self.profiler = None
        self.step_range = None
        self.preparing = False  # torch.profiler is being started by us

    @property
    def is_open(self):
        return self.label == CAPTURED

    def is_due(self, done, laps):
        """Whether the window opens now, behind `done` steps. Prepares it shortly before."""
        if self.start is None and done % SETTLING == 0:
            self.start = done + LEAD if self.steady(done, laps) else None
        if self.start is None:
            return False
        if self.label == FREE and done >= self.start - LEAD and self.kind == "torch":
            self.prepare(done)
            self.start_samples(seconds_of(laps.ms, LEAD + self.steps))
        return done >= self.start

    def steady(self, done, laps):
        laps.read(wait=True)
        newest = [ms for ms in laps.ms[-SETTLING:] if ms is not None]
        half = len(newest) // 2
        if not half:
            return False
        one, other = statistics.median(newest[:half]), statistics.median(newest[half:])
        return abs(other - one) <= STEADY * one or done >= PATIENCE

    def prepare(self, done):
        """Start torch.profiler's tracer, whose own start is not to be captured."""
        if getattr(self.torch.autograd.profiler, "_is_profiler_enabled", False):
            self.notes.append(f"the program's own torch.profiler was on at step {done}")
            self.start = done + LATER
            return
        activities = [self.torch.profiler.ProfilerActivity.CPU]
        if uses_gpu(self.torch):
            activities.append(self.torch.profiler.ProfilerActivity.CUDA)
        self.profiler = self.torch.profiler.profile(activities=activities, with_stack=self.stack)
        self.preparing = Window.kineto_started = True
        with self.quiet():
            self.profiler.prepare_trace()
        self.preparing = False
        self.label = PREPARED

    def start_samples(self, window_s):
        if self.socket is None or self.profiler is None:
            return
        try:
            self.samples = PythonSamples(self.socket, window_s)
        except Exception as error:  # the window goes on without
            self.not_sampled = repr(error)

    def end_samples(self):
        """The samples as JSON, or None."""
        samples, self.samples = self.samples, None
        try:
            return samples and samples.end()
        except Exception as error:
            self.not_sampled = str(error)
            return None

    @contextmanager
    def quiet(self):
        """Keep Kineto's own lines off stderr, which on a GPU say why there are no kernels.

        It reads the variable once: lines of the program's own profiler go too, if it comes later.
        """
        before = os.environ.get(KINETO_LEVEL)
        if uses_gpu(self.torch) or before is not None:
            yield
            return
        os.environ[KINETO_LEVEL] = "99"
        try:
            yield
        finally:
            del os.environ[KINETO_LEVEL]

    def open(self, done):
        """Start to capture. Returns whether it did."""
        if self.kind == "torch":
            if self.profiler is None:
                return False
            self.profiler.start_trace()
        elif self.kind == "nsys":
            self.torch.cuda.synchronize()
            self.torch.cuda.cudart().cudaProfilerStart()
        else:
            self.record_allocations()
        self.label, self.first = CAPTURED, done
        self.cpu_s, self.wall_s = time.process_time(), time.perf_counter()
        return True

    def range(self, name):
        """A range of this name in the capture, as a context manager."""
        if self.kind == "nsys":
            return self.torch.cuda.nvtx.range(name)
        return self.torch.autograd.profiler.record_function(name)

    def begin_step(self, number):
        self.end_step()
        self.step_range = self.range(f"iteration {number}")
        self.step_range.__enter__()

    def end_step(self):
        if self.step_range is not None:
            self.step_range.__exit__(None, None, None)
            self.step_range = None

    def close(self, stem):
        """Stop to capture, and write STEM and an ending. Returns the names of the files."""
        self.end_step()
        self.label = FREE
        self.cores_used = (time.process_time() - self.cpu_s) / (time.perf_counter() - self.wall_s)
        if self.kind == "nsys":
            self.torch.cuda.synchronize()
            self.torch.cuda.cudart().cudaProfilerStop()
            return []
        if self.kind == "memory":
            return self.write_allocations(stem)
        profiler, self.profiler = self.profiler, None
        profiler.stop_trace()
        return self.write_trace(profiler, stem, self.end_samples())

    def write_trace(self, profiler, stem, samples=None):
        """Write the trace, compressed. Kineto leaves none where the disk is full."""
        plain, partial, path = stem + ".tmp.json", stem + ".tmp.json.gz", stem + ".trace.json.gz"
        with leftovers_removed(plain, plain + ".tmp", partial):
            profiler.export_chrome_trace(plain)
            if not os.path.exists(plain):
                raise OSError("torch.profiler could not write its trace: is the disk full?")
            with open(plain, "rb") as trace, gzip.open(partial, "wb", compresslevel=6) as packed:
                if samples is not None:  # an object, of which these become members
                    packed.write(samples[:-1] + b"," + trace.read(100).partition(b"{")[2])
                shutil.copyfileobj(trace, packed, 1 << 20)
            os.replace(partial, path)
        return [os.path.basename(path)]

    def discard(self):
        """Stop what records a window that does not come, or that nobody wants."""
        self.end_step()
        label, self.label = self.label, FREE
        if self.samples is not None:
            self.samples.discard()
            self.samples = None
        if self.profiler is not None:
            profiler, self.profiler = self.profiler, None
            if label == PREPARED:
                profiler.start_trace()
            profiler.stop_trace()
        elif label == CAPTURED and self.kind == "memory":
            self.stop_history()

    def record_allocations(self):
        """Record the history, unless the program does so itself."""
        is_on = getattr(self.torch._C, "_cuda_isHistoryEnabled", None)
        self.own_history = not (is_on and is_on())
        if self.own_history:
            self.torch.cuda.memory._record_memory_history(max_entries=MOST_ALLOCATIONS)
        else:
            self.notes.append("the program records the memory's history itself: it is longer")

    def stop_history(self):
        if self.own_history:
            self.torch.cuda.memory._record_memory_history(None)

    def write_allocations(self, stem):
        partial, path = stem + ".memory.tmp", stem + ".memory.pickle"
        with leftovers_removed(partial):
            try:
                self.torch.cuda.memory._dump_snapshot(partial)
            finally:
                self.stop_history()
            os.replace(partial, path)
        return [os.path.basename(path)]
