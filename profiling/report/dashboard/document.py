"""Document of many runs side by side on one page. Called by the verb dashboard and its server.

A page has a part for each text that runs were trained on. templates/dashboard.html.j2 adds the
reader's switches to the Document, dashboard.js draws its charts.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.errors import suggestion
from profiling.analysis.runs import groups
from profiling.analysis.runs.folder import TRAINING_TIME, WALL_TIME, RunFolder
from profiling.report.dashboard import dashboard_charts, tables, words
from profiling.report.dashboard.dashboard_charts import curves
from profiling.report.document import (
    Block,
    Bullets,
    Chart,
    Document,
    Figure,
    Finding,
    Paragraph,
    Section,
    SideBySide,
    Verdict,
)
from profiling.report.renderers.page import page
from profiling.shared.metric_names import (
    GPU,
    LATER_GPU,
    RANKS,
    SPEED,
    STEPS_PER_S,
    TOKENS_PER_S,
    TRAIN_LOSS,
    VAL_LOSS,
    Metric,
    metric_of,
)

TIMES = {
    WALL_TIME: "Wall time counts from the start of a run and includes compiling, evaluations and "
    "checkpoints.",
    TRAINING_TIME: "Training time is the sum of the step times, because some of these runs "
    "logged no wall time (time/elapsed_s). Compiling, evaluations and checkpoints do not count.",
}


@dataclass(frozen=True)
class Part:
    """A part of the page: the runs that were trained on one text."""

    name: str  # s0, s1, ...: prefix of the names of its sections and charts
    section: groups.Section
    loss: float | None  # validation loss for the time to it

    @property
    def optional_columns(self) -> list[str]:
        return tables.optional_columns(self.section)

    @property
    def legend_keys(self) -> str:
        """The keys in all labels, where the legend has so many that it shows their values alone."""
        keys = {
            " · ".join(piece.partition("=")[0] for piece in group.label.split(", "))
            for group in self.section.groups
        }
        many = len(self.section.groups) > tables.MOST_SIDE_BY_SIDE
        return keys.pop() if many and len(keys) == 1 and "=" in self.section.groups[0].label else ""

    def legend_label(self, group: groups.Group) -> str:
        if not self.legend_keys:
            return group.label
        return " · ".join(piece.partition("=")[2] for piece in group.label.split(", "))


def dashboard_page(
    runs: list[RunFolder],
    *,
    notes: Sequence[str] = (),
    loss: float | None = None,
    extra: Sequence[str] = (),
    links_from: Path | None = None,
    mark: str | None = None,
    bare: bool = False,
) -> str:
    """The HTML text of the page.

    notes: what a reader should know about the files.
    loss: validation loss for the time to it; None: the lowest that all runs of a part reach.
    extra: more metrics to draw; raises ValueError for one that no run has.
    links_from: the page's folder, from which captures are linked; None: name them without a link.
    mark: for a page that is served, how far its files were read; the page asks for what follows.
    bare: leave plotly out, for a page that has it already and only takes over the changes.
    """
    check_metrics(runs, extra)
    parts = [
        Part(f"s{number}", own, groups.loss_that_all_reach(own.runs) if loss is None else loss)
        for number, own in enumerate(groups.sections_of(runs))
    ]
    sections = [
        section
        for part in parts
        for section in part_sections(part, extra, links_from, len(parts) > 1)
    ]
    title, count = title_of(runs, parts), run_count(runs)
    subtitle = " · ".join([*([count] if title != count else []), *subtitle_of(runs)])
    return page(
        Document(title, [subtitle], verdict(parts, notes), sections),
        "dashboard.html.j2",
        toolbars={f"{part.name}-summary": part for part in parts},
        curve_styles=dashboard_charts.curve_styles,
        mark=mark,
        bare=bare,
    )


def check_metrics(runs: list[RunFolder], names: Sequence[str]) -> None:
    logged = dict.fromkeys(name for run in runs for name in run.columns)
    for name in names:
        if name not in logged:
            near = suggestion(name, logged) or f"; the runs logged {', '.join(logged)}"
            raise ValueError(f"--metric {name}: no run logged this metric{near}")


def title_of(runs: list[RunFolder], parts: list[Part]) -> str:
    labels = [group.label for group in parts[0].section.groups]
    if len(parts) == 1 and 1 < len(labels) <= 3:
        return " against ".join(labels)
    return run_count(runs)


def subtitle_of(runs: list[RunFolder]) -> list[str]:
    """Texts or programs, machines and versions of torch of the runs."""
    texts = dict.fromkeys(
        groups.program_name(run.command) if run.command else str(run.config.get("dataset"))
        for run in runs
    )
    machines = dict.fromkeys(str(run.in_force.get("device")) for run in runs)
    versions = dict.fromkeys(f"torch {run.in_force.get('torch')}" for run in runs)
    return [", ".join(each) for each in (texts, machines, versions)]


def run_count(runs: list[RunFolder]) -> str:
    return f"{len(runs)} run{'s' if len(runs) > 1 else ''}"


def verdict(parts: list[Part], notes: Sequence[str]) -> list[Block]:
    blocks: list[Block] = []
    for part in parts:
        blocks += [Paragraph(f"on {part.section.name}", "note")] if len(parts) > 1 else []
        blocks.append(Verdict(words.headline(part.section)))
        blocks.append(Bullets(None, words.findings(part.section, part.loss)))
    apart = (
        f"These runs are of {len(parts)} different texts or programs. They are shown separately "
        "below, because their losses cannot be compared."
    )
    warnings = [apart, *notes] if len(parts) > 1 else notes
    return blocks + [Finding("warning", warning) for warning in warnings]


def part_sections(
    part: Part, extra: Sequence[str], links_from: Path | None, many: bool
) -> list[Section]:
    """The sections of one part. With `many` parts each has a title in the navigation."""
    name = part.name
    summary = tables.summary_table(name, part.section, part.loss)
    settings = tables.settings_table(name, part.section)
    differ = settings if settings.rows else Paragraph("Only seeds and names differ.", "note")
    more, short = small_charts(part, extra_metrics(extra)), part.section.name if many else None
    return [
        Section(f"{name}-summary", summary.title, [summary], short=short),
        *([] if of_programs(part) else [loss_section(part)]),
        speed_section(part),
        *ranks_section(part),
        gpu_section(part),
        *scatter_section(part),
        Section(f"{name}-more", "More metrics", more, short="More"),
        Section(f"{name}-settings", settings.title, [differ], short="Configurations"),
        runs_section(part, links_from),
    ]


def of_programs(part: Part) -> bool:
    """Whether the runs are those of a program of others, whose losses and tokens nobody knows."""
    return all(run.tokens is None for run in part.section.runs)


def loss_section(part: Part) -> Section:
    name, runs, time = part.name, part.section, part.section.time_axis
    dotted = "" if part.loss is None else f", dotted: {part.loss:g}"
    evaluated = curves(runs, VAL_LOSS)
    over_time = curves(runs, VAL_LOSS, over_time=True)
    reach = dashboard_charts.time_to_each_loss(runs, part.loss)
    drawn = [
        titled_chart(f"{name}-loss", "validation loss over iterations", evaluated, 320),
        titled_chart(f"{name}-loss_time", f"validation loss over {time}", over_time, 320),
        titled_chart(f"{name}-train", "training loss", curves(runs, TRAIN_LOSS), 280),
        titled_chart(f"{name}-reach", f"{time} to a validation loss{dotted}", reach, 280),
    ]
    none = [] if evaluated else [Paragraph("No evaluation has been logged yet.", "note")]
    lead = (
        "Lines are means over the seeds, up to where all of them have values; thin lines are "
        f"single runs. Bands reach from the lowest to the highest value. {TIMES[time]}"
    )
    return Section(f"{name}-loss", "Loss", [*none, SideBySide(drawn)], lead=lead)


def speed_section(part: Part) -> Section:
    boxes = dashboard_charts.step_boxes(part.section)
    steps, height = dashboard_charts.step_times(boxes), 90 + 26 * len(boxes)
    chart = titled_chart(f"{part.name}-steps", "step times, ms", steps, height)
    lead = (
        "Step times of each run, or of each configuration if there are many runs. The box "
        "contains the middle half; whiskers reach from 1 to 99 %. A value is the median of "
        "iterations that were logged together. Iterations at the start and under a profiler are "
        "left out."
    )
    speed = [STEPS_PER_S if each == TOKENS_PER_S and of_programs(part) else each for each in SPEED]
    return Section(
        f"{part.name}-speed",
        "Speed and memory",
        [chart, *small_charts(part, speed)],
        short="Speed",
        lead=lead if boxes else "",
    )


def ranks_section(part: Part) -> list[Section]:
    """The section on waits between ranks; none where runs had one rank each, or logged no waits."""
    table = tables.ranks_table(part.name, part.section)
    if not table.rows:
        return []
    return [Section(table.name, table.title, [table, *small_charts(part, RANKS)], lead=table.note)]


def gpu_section(part: Part) -> Section:
    logged = sorted({metric for run in part.section.runs for metric in run.columns})
    later = [metric_of(metric) for metric in logged if re.fullmatch(LATER_GPU, metric)]
    known = [metric for metric in later if metric.title != metric.name]  # metrics of further GPUs
    metrics = [*GPU, *known]
    blocks = small_charts(part, metrics)
    lead = "Means over the iterations of each logged row, as reported by the driver."
    if not any(metric.name in logged for metric in metrics):
        reasons = dict.fromkeys(run.in_force.get("gpu_metrics") for run in part.section.runs)
        why = "; ".join(str(reason) for reason in reasons if reason) or "no sampler ran"
        blocks, lead = [Paragraph(f"These runs logged no GPU metrics: {why}.", "note")], ""
    return Section(f"{part.name}-gpu", "GPU", blocks, lead=lead)


def scatter_section(part: Part) -> list[Section]:
    """A chart with a point for each run, whose axes the reader chooses; none for a single run."""
    table = tables.runs_table(part.name, part.section)
    figure = dashboard_charts.scatter_of_runs(part.section, table)
    if len(part.section.runs) < 2 or not figure:
        return []
    name, title = f"{part.name}-scatter", "Runs by key and result"
    chart = Chart(f"{name}-points", "a point for each run", figure, 360, numbers=False)
    return [Section(name, title, [chart], short="Scatter")]


def extra_metrics(names: Sequence[str]) -> list[Metric]:
    shown = {metric.name for metric in (VAL_LOSS, TRAIN_LOSS, *SPEED, *RANKS, *GPU)}
    return [metric_of(name) for name in dict.fromkeys(names) if name not in shown]


def small_charts(part: Part, metrics: Iterable[Metric]) -> list[Block]:
    """Charts of the metrics that some run has, and a line with the titles of the others."""
    drawn = [(metric, curves(part.section, metric, common=True)) for metric in metrics]
    made = []
    for metric, figure in drawn:
        title = f"{metric.title}, {metric.unit}" if metric.unit else metric.title
        made.append(titled_chart(f"{part.name}-{metric.name}", title, figure, 250))
    missing = ", ".join(metric.title for metric, figure in drawn if not figure)
    rest = [Paragraph(f"Not logged by these runs: {missing}.", "note")] if missing else []
    return [SideBySide(made), *rest]


def titled_chart(name: str, title: str, figure: Figure | None, height: int) -> Chart:
    return Chart(name, title, figure, height, title)


def runs_section(part: Part, links_from: Path | None) -> Section:
    captures = tables.captures_table(part.name, part.section, links_from)
    none = Paragraph(
        "No run has a capture; train with profile=nsys or profile=torch to make one.", "note"
    )
    verdicts = tables.verdicts_table(part.name, part.section)
    blocks: list[Block] = [
        *([verdicts] if verdicts.rows else []),
        tables.runs_table(part.name, part.section),
        captures if captures.rows else none,
    ]
    return Section(f"{part.name}-runs", "Runs", blocks)
