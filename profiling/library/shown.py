"""Answers of the public functions: their records, shown in a notebook, on a terminal, in a file."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from os import PathLike
from pathlib import Path

from rich.console import Console

from profiling.analysis.difference.comparison_records import Comparison, Experiment, Outcome
from profiling.analysis.open_report import Capture
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.ranks.summary import RanksAnalysis
from profiling.analysis.records import Report
from profiling.report.document import Document
from profiling.report.ranks.document import ranks_document
from profiling.report.ranks.timeline import timeline_of
from profiling.report.renderers import terminal
from profiling.report.renderers.frame import frame
from profiling.report.renderers.markdown import markdown
from profiling.report.renderers.page import page
from profiling.report.single.document import report_document
from profiling.shared.json_records import to_json
from profiling.verbs import results
from profiling.verbs.report import sources_of

HEIGHT = 720  # CSS pixels
COLUMNS = 100  # of summary()


@dataclass(frozen=True, eq=False, repr=False)
class Shown:
    """An answer: `record` has its figures, the fields of --json (docs/report-schema.md)."""

    record: Report | RanksReport | Comparison | Experiment
    sentence: str  # the verdict in words
    _screen: Document  # as the verb prints it
    _whole: Callable[[Path | None], Document]  # of a page: in this file, or None: inline

    def summary(self) -> str:
        """Text of 100 columns that the verb prints, without colours."""
        text = StringIO()
        console = Console(file=text, width=COLUMNS, highlight=False, force_jupyter=False)
        terminal.show(self._screen, console)
        return text.getvalue()

    def to_json(self) -> str:
        """JSON text of the record, as --json writes it."""
        return to_json(self.record)

    def html(self, path: str | PathLike[str]) -> None:
        """Write the page of --html. Raises ValueError where `path` cannot be written."""
        place = Path(path)
        results.check_new(place, *results.ENDINGS["html"])
        results.put(place, page(self._whole(place), as_json=self.to_json()))

    def show(self, height: int = HEIGHT) -> None:
        """Show the page of --html in a notebook, `height` CSS pixels high; elsewhere print the
        text.

        A notebook keeps the page, about 2 MB, among its outputs.
        """
        if not in_notebook():
            results.show(self._screen)
            return
        content = page(self._whole(None), as_json=self.to_json())
        bundle = {"text/html": frame(content, self.sentence, height), "text/plain": self.summary()}
        display(bundle)

    def _repr_markdown_(self) -> str:
        return markdown(self._screen)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.sentence}>"


@dataclass(frozen=True, eq=False, repr=False)
class CaptureReport(Shown):
    """The report of a capture, or of the captures of several ranks."""

    record: Report | RanksReport  # RanksReport: of several ranks

    @property
    def verdict(self) -> str:
        """The name of what limits the step, such as compute; of several ranks that of who is
        late."""
        record = self.record
        return record.verdict if isinstance(record, RanksReport) else record.bottleneck.verdict


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonReport(Shown):
    """The comparison of two captures or runs."""

    record: Comparison

    @property
    def verdict(self) -> Outcome:
        """One of the four answers: faster, slower, equal, cannot_tell; or not_comparable."""
        return self.record.verdict

    @property
    def ratio(self) -> float:
        """Step time of `after` divided by that of `before`: below 1 it is faster."""
        return self.record.step_ms.ratio

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the ratio; None where the data give none."""
        return self.record.step_ms.ci95


@dataclass(frozen=True, eq=False, repr=False)
class ExperimentReport(Shown):
    """The experiment of two commands, over several processes of each."""

    record: Experiment

    @property
    def verdict(self) -> Outcome:
        """One of the four answers: faster, slower, equal, cannot_tell."""
        return self.record.comparisons[0].verdict

    @property
    def ratio(self) -> float:
        """Step time of `b` divided by that of `a`, over processes: below 1 it is faster."""
        return self.record.comparisons[0].step_ms.ratio

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the ratio."""
        return self.record.comparisons[0].step_ms.ci95


def page_of_capture(capture: Capture, place: Path | None) -> Document:
    """The document of a page; one that lies in a file links to the sources of kernels beside it."""
    sources = sources_of(capture.trace, place) if place else None
    return report_document(capture.report, capture.step_events, sources)


def page_of_ranks(analysis: RanksAnalysis, place: Path | None) -> Document:
    return ranks_document(analysis.report, timeline_of(analysis))


def in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this process; IPython in a terminal is none."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def display(bundle: dict[str, str]) -> None:
    """Make an output of the cell: the same by MIME type."""
    import_module("IPython.display").display(bundle, raw=True)
