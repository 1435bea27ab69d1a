"""The captures that tests of profiling.analysis read: each is read and summarised once."""

from functools import cache

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.report import Report
from profiling.analysis.summary import summarize
from profiling.timeline.opening import open_capture
from profiling.timeline.trace import Trace
from tests.paths import CAPTURES, SHARED

OWN = ("slow_eager", "slow_compile", "flash_eager", "flash_compile")  # in tests/captures
FOREIGN = tuple(  # beside the project where there is one, of another program, backward apart
    f"nanogpt_{attention}_eager.{kind}.gz"
    for attention in ("slow", "flash")
    for kind in ("sqlite", "trace.json")
)
REFERENCE = SHARED

own = pytest.mark.parametrize("capture", OWN)
foreign = pytest.mark.parametrize("capture", FOREIGN)
reference_is_here = pytest.mark.skipif(
    not REFERENCE.is_dir(), reason="the reference captures are not beside the project"
)


@cache
def trace_of(capture: str) -> Trace:
    if capture in OWN:
        return open_capture(CAPTURES / f"{capture}.sqlite.gz")
    return open_capture(REFERENCE / capture)


@cache
def report_of(capture: str) -> Report:
    return summarize(Analysis(trace_of(capture)))
