"""Table of the changes of `whatif` that predict what the pairs of validation.pairs change.

Written before a pair with such a change was measured. A class that is not here has no such change:
faster arithmetic (bf16, tf32, doubles, fused kernels, other layouts, compiled models), other work
(a larger batch, no recomputing), and faults that are these.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PredictedBy:
    change: str  # of whatif, as it is typed
    verdict: str  # class of the report's ranking whose gain says what the change buys at most


DATA = PredictedBy("--no data", "data")
SYNC = PredictedBy("--no sync", "synchronization")
COPIES = PredictedBy("--no copies", "copies")
ALLOCATION = PredictedBy("--no allocation", "allocation")
CPU = PredictedBy("--no cpu", "cpu")
CHECKS = "aten::isfinite|aten::all|aten::is_nonzero"  # operators of an assertion on a tensor

# class of a pair's change (of a fault that is taken out, its verdict)
PREDICTED_BY = {
    "data": DATA,
    "workers": DATA,  # a bound: eight workers may still be late
    "synchronization": SYNC,
    "no_item": SYNC,
    "no_checks": PredictedBy(f"--without {CHECKS}", SYNC.verdict),
    "copies": COPIES,
    "pinned": COPIES,  # a bound: nothing waits for a pinned copy, which still takes its time
    "allocation": ALLOCATION,
    "no_empty_cache": ALLOCATION,
    "no_scratch": ALLOCATION,
    "cpu": CPU,
    "no_log": CPU,
    "no_save": CPU,
    "graphs": PredictedBy("--graphs", "launch"),
}
