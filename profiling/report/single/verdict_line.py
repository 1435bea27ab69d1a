"""The verdict in one line. Called by modules that show a report or only this line of it."""

from profiling.analysis.records import Report
from profiling.analysis.verdict import cpu
from profiling.analysis.verdict.cpu_operators import WORTH
from profiling.shared.causes import VERDICT


def verdict_line(report: Report) -> str:
    """The verdict as a line, as in 'Bound by kernel launches: the GPU waits for ...'."""
    verdict = VERDICT[report.bottleneck.verdict]
    if verdict.name == "unknown":
        return f"No bottleneck can be named: {report.health.no_verdict or verdict.why}"
    line = f"Bound by {verdict.title}: {verdict.why}"
    if report.on_cpu and verdict.name != cpu.VERDICT:
        went_on = verdict.without_gpu or verdict.waiting
        return f"Bound by {verdict.title}: {went_on}, and the run has no GPU"
    if verdict.name == cpu.VERDICT and (phase := cpu.longest_phase(report)):
        share = phase.host_ms / report.window.wall_ms
        if share >= WORTH:  # a shorter one does not bound it
            line += f", and {phase.name} takes {100 * share:.0f} % of a step"
    return line
