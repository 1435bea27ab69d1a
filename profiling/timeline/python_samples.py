"""Makes ranges of the samples of Python's stack that `run` puts into a trace of torch.profiler.

Called by chrome_json. A sample stands for the time since the one before: while C code keeps
Python's lock, the sampler waits, and then sees the function that called it.
"""

import numpy as np

from profiling.timeline.chrome_events import PythonSamples
from profiling.timeline.reading import Names
from profiling.timeline.trace import Columns

THREAD_BITS = 32
LEAST = 15  # samples: of fewer, which function has most of them is chance


def ranges_of(samples: PythonSamples, names: Names, base_ns: int) -> Columns | None:
    """The functions that were open, one range each for as long as samples have them at that place.

    `base_ns` is what the trace's times count from. None for less than LEAST samples. Raises
    ValueError for numbers that fit nothing.
    """
    if len(samples.times_ns) < LEAST:
        return None
    function, start_ns, end_ns = open_functions(samples)
    count = len(function)
    number = names.numbers_of(samples.names)
    process = np.full(count, samples.pid, np.int64)
    return {
        "start_ns": np.array(start_ns, np.int64) - base_ns,
        "end_ns": np.array(end_ns, np.int64) - base_ns,
        "name": number[np.array(function, np.int64)],
        "closed": np.ones(count, bool),
        "process": process,
        "thread": process << THREAD_BITS | samples.tid,
    }


def open_functions(samples: PythonSamples) -> tuple[list[int], list[int], list[int]]:
    """(place in `names`, start, end) of each function that was open."""
    found: list[tuple[int, int, int]] = []
    opened: list[tuple[int, int]] = []  # (function, start), the outermost first
    before_ns = samples.times_ns[0]
    try:
        for time_ns, number in zip(samples.times_ns[1:], samples.stack[1:], strict=True):
            stack = samples.stacks[number]
            same = 0
            while same < min(len(stack), len(opened)) and stack[same] == opened[same][0]:
                same += 1
            found += [(function, start, before_ns) for function, start in opened[same:]]
            opened[same:] = [(function, before_ns) for function in stack[same:]]
            before_ns = time_ns
        found += [(function, start, before_ns) for function, start in opened]
        if any(not 0 <= function < len(samples.names) for function, _, _ in found):
            raise IndexError("a function without a name")
    except IndexError as error:
        raise ValueError(f"python_samples: {error}") from error
    found.sort(key=lambda each: (each[1], -each[2]))
    functions, starts, ends = zip(*found, strict=True) if found else ((), (), ())
    return list(functions), list(starts), list(ends)
