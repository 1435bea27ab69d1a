"""The answer in one line. Called by what shows a report, and by verbs that show no more of it."""

from profiling.analysis.report import Report
from profiling.analysis.verdict import cpu
from profiling.causes import VERDICT


def verdict_line(report: Report) -> str:
    """'Bound by kernel launches: the GPU waits for ...'."""
    found = VERDICT[report.bottleneck.verdict]
    if found.name == "unknown":
        return f"No bottleneck named: {report.health.no_verdict or found.why}"
    line = f"Bound by {found.title}: {found.why}"
    if found.name == cpu.VERDICT and (phase := cpu.longest_phase(report)):
        share = 100 * phase.host_ms / report.window.wall_ms
        line += f", and {phase.name} takes {share:.0f} % of a step"
    return line
