"""Makes ranges of the samples of Python's stack in a trace. Called by chrome_json."""

from itertools import chain

import numpy as np

from profiling.shared.python_samples import PythonSamples
from profiling.timeline.chrome_events import THREAD_BITS
from profiling.timeline.reading import Names
from profiling.timeline.trace import Columns


def ranges_of(samples: PythonSamples, names: Names, base_ns: int) -> Columns:
    """The functions of each sample, outermost first, for one nanosecond from its time on.

    `base_ns` is what the trace's times count from. Raises ValueError for numbers that fit nothing.
    """
    numbers = [*samples.stack, *chain.from_iterable(samples.stacks)]
    if min(numbers, default=0) < 0 or len(samples.stack) != len(samples.times_ns):
        raise ValueError("python_samples")
    try:
        stacks = [samples.stacks[number] for number in samples.stack]
        function = np.fromiter(chain.from_iterable(stacks), np.int64)
        name = names.numbers_of(samples.names)[function]
    except IndexError as error:
        raise ValueError(f"python_samples: {error}") from error
    depth = np.array([len(stack) for stack in stacks], np.int64)
    start_ns = np.repeat(np.array(samples.times_ns, np.int64) - base_ns, depth)
    process = np.full(len(function), samples.pid, np.int64)
    return {
        "start_ns": start_ns,
        "end_ns": start_ns + 1,
        "name": name,
        "closed": np.ones(len(function), bool),
        "process": process,
        "thread": process << THREAD_BITS | samples.tid,
    }
