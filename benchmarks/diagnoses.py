"""What the report says of runs whose bottleneck was planted. Called by planted and foreign."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profiling.analysis.capture import open_report
from profiling.analysis.report import Bottleneck


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Bottleneck):
    """What the report says of a run with a plant."""

    plant: str
    planted: str  # the verdict that would be right
    step_ms: float
    idle_ms: float | None  # None without GPU activity


def diagnosed(name: str, planted: str, capture: Path) -> Diagnosis:
    report = open_report(capture).report
    return Diagnosis(
        **vars(report.bottleneck),
        plant=name,
        planted=planted,
        step_ms=report.window.step_ms.median,
        idle_ms=report.breakdown.idle_ms if report.breakdown else None,
    )


def print_confusion(rows: Sequence[Diagnosis]) -> None:
    """Planted classes down, verdicts across."""
    pairs = Counter((row.planted, row.verdict) for row in rows)
    classes = sorted({name for pair in pairs for name in pair})
    print(f"\n| planted \\ verdict | {' | '.join(classes)} |\n|{'---|' * (len(classes) + 1)}")
    for planted in sorted({row.planted for row in rows}):
        counts = " | ".join(str(pairs[planted, verdict] or "") for verdict in classes)
        print(f"| {planted} | {counts} |")
    right = sum(row.verdict == row.planted for row in rows)
    print(f"\n{right} of {len(rows)} verdicts are right")
