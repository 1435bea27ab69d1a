"""A capture with its manifest and the report of both. Called by the verbs that read one."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from profiling.analysis.analysis import Analysis, last_complete
from profiling.analysis.gpu_time.step_events import StepEvents, step_events
from profiling.analysis.records import ProgramSteps, Report
from profiling.analysis.runs.program import program_steps
from profiling.analysis.runs.run_clocks import RunClocks, clocks_of_run
from profiling.analysis.summary import summarize
from profiling.analysis.whatif.whatif import what_would_help
from profiling.analysis.whatif.whatif_records import WhatIf
from profiling.shared.manifest import Manifest
from profiling.timeline import opening
from profiling.timeline.trace import Trace


@dataclass(frozen=True, eq=False)
class Capture:
    """An opened capture, analysed when its report is first read."""

    analysis: Analysis
    manifest: Manifest | None
    manifest_name: str | None
    clocks: RunClocks | None = None  # GPU clocks of the run in whose folder the capture lies
    program_steps: ProgramSteps | None = None  # of a program of others in that folder

    @property
    def trace(self) -> Trace:
        return self.analysis.trace

    @cached_property
    def plain_report(self) -> Report:
        """The report without predictions, for those who show none: a replay takes a while."""
        return self.summarized(None)

    @cached_property
    def report(self) -> Report:
        return self.summarized(what_would_help(self.analysis, self.manifest))

    def summarized(self, what_if: WhatIf | None) -> Report:
        named = self.manifest, self.manifest_name
        return summarize(self.analysis, *named, self.clocks, self.program_steps, what_if)

    @cached_property
    def step_events(self) -> StepEvents | None:
        return self.events_of_steps(None)

    def events_of_steps(self, chosen: tuple[int, int] | None) -> StepEvents | None:
        """The events of the steps from one number to another, or of those that step_events
        chooses."""
        return step_events(self.analysis, chosen)


def open_report(
    path: Path,
    manifest: Path | None = None,
    *,
    step: str | None = None,
    phases: list[str] | None = None,
    device: int | None = None,
    process: int | None = None,
    beside: Path | None = None,
) -> Capture:
    """Open the capture at `path`, or the newest one if that is a run folder or its profile/.

    The manifest is the file `manifest`, or else the one beside `beside`, or else the one beside the
    capture. `step`, `phases`, `device`, `process`: see Analysis. Raises ValueError with a message
    of one line.
    """
    trace = opening.open_capture(path)
    named_manifest: tuple[str, Manifest] | None
    if manifest is not None:
        try:
            named_manifest = manifest.name, opening.read_manifest(manifest)
        except ValueError as error:
            cure = "give the window-N.json that was written beside the capture"
            raise ValueError(f"--manifest {error}; {cure}") from error
    else:
        named_manifest = opening.find_manifest(beside or path, trace)
    name, content = named_manifest or (None, None)
    clocks = program = None
    if content:
        clocks = clocks_of_run([beside or trace.file])
        try:
            program = program_steps(beside or trace.file, content.rank, content.world_size)
        except ValueError as error:
            trace.warnings.append(f"how steps were recognised is not known: {error}")
    last = last_complete(content, step)
    analysis = Analysis(trace, step, phases, device, process, last_iteration=last)
    return Capture(analysis, content, name, clocks, program)
