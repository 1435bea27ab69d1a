"""Compare the kernels of two sides, matched by name: gone, new, or in both and changed.

Called by comparison.
"""

import re

from profiling.analysis.difference.compared import Compared
from profiling.analysis.difference.comparison_records import (
    KernelChange,
    KernelChanges,
    KernelOnOneSide,
)

# Inductor numbers the kernels of a graph as it makes them: any change of the graph renumbers all
TRITON_NUMBER = re.compile(r"^(triton_\w+?)_\d+$")
CHANGED_SHARE = 0.01  # of the kernel's own time: a smaller change does not count
LEAST_SHARE = 0.0005  # of the step: a smaller change does not count either
SAME_COUNT = 0.01  # launches a step; one launch more in a whole capture does not count

Kernels = dict[str, list[KernelOnOneSide]]


def kernel_changes(baseline: Compared, candidate: Compared) -> KernelChanges:
    """Added, removed and changed kernels, the largest first; a side not captured has no kernels.

    All are empty where a side's capture lost too many kernels: then it is not known what is added
    or removed.
    """
    if baseline.no_verdict or candidate.no_verdict:
        return KernelChanges(added=[], removed=[], changed=[])
    one, other = (
        group_by_match(baseline.captured.kernels),
        group_by_match(candidate.captured.kernels),
    )
    return KernelChanges(
        added=unmatched_kernels(other, one),
        removed=unmatched_kernels(one, other),
        changed=changed_kernels(one, other, least_ms=LEAST_SHARE * baseline.mean_ms),
    )


def match_name(name: str) -> str:
    """The name by which a kernel is matched; Triton's names lose their number."""
    return TRITON_NUMBER.sub(r"\1", name)


def group_by_match(kernels: tuple[KernelOnOneSide, ...]) -> Kernels:
    groups: Kernels = {}
    for kernel in kernels:
        groups.setdefault(match_name(kernel.name), []).append(kernel)
    return groups


def unmatched_kernels(kernels: Kernels, there: Kernels) -> list[KernelOnOneSide]:
    """The kernels without a match in `there`, the longest first."""
    unmatched = [kernel for name, rows in kernels.items() if name not in there for kernel in rows]
    return sorted(unmatched, key=lambda kernel: -kernel.ms)


def changed_kernels(baseline: Kernels, candidate: Kernels, least_ms: float) -> list[KernelChange]:
    """Kernels of both sides whose time or number changed; kernels that match share one row."""
    rows = [change(name, baseline[name], candidate[name]) for name in baseline if name in candidate]
    changes = [
        row
        for row in rows
        if abs(row.delta_ms) > max(least_ms, CHANGED_SHARE * row.baseline_ms)
        or abs(row.candidate_count - row.baseline_count) > SAME_COUNT
    ]
    return sorted(changes, key=lambda row: -abs(row.delta_ms))


def change(
    name: str, baseline: list[KernelOnOneSide], candidate: list[KernelOnOneSide]
) -> KernelChange:
    names = {kernel.name for kernel in [*baseline, *candidate]}
    one_ms, other_ms = (sum(kernel.ms for kernel in side) for side in (baseline, candidate))
    return KernelChange(
        name=names.pop() if len(names) == 1 else name,
        family=baseline[0].family,
        baseline_count=sum(kernel.count for kernel in baseline),
        candidate_count=sum(kernel.count for kernel in candidate),
        baseline_ms=one_ms,
        candidate_ms=other_ms,
        delta_ms=other_ms - one_ms,
        percent=(other_ms / one_ms - 1) * 100 if one_ms else None,
    )
