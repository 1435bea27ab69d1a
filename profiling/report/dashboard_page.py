"""Many runs side by side on one self-contained page. Called by dashboard_command and its server.

templates/dashboard.html.j2 lays out what the functions here prepare, dashboard.js draws charts when
they come into view.
"""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from profiling.analysis.runs.folder import RunFolder
from profiling.analysis.runs.groups import Section, loss_that_all_reach, sections_of
from profiling.metric_names import GPU, LATER_GPU, SPEED, TRAIN_LOSS, VAL_LOSS, Metric, metric_of
from profiling.report import dashboard_charts as charts
from profiling.report import dashboard_tables as tables
from profiling.report import dashboard_words as words
from profiling.report.html import laid_out, render


def dashboard_page(
    runs: list[RunFolder],
    *,
    notes: list[str] = (),
    loss: float | None = None,
    extra: list[str] = (),
    links_from: Path | None = None,
    version: str | None = None,
) -> str:
    """The page as text.

    notes: what a reader should know of the files.
    loss: for the time to it; None: the lowest that all runs of a section reach.
    extra: more metrics to draw; ValueError for one that no run has.
    links_from: the folder of the page, to link captures from; None: name them without a link.
    version: of a page that is served: it asks now and then whether there is a newer one.
    """
    check_metrics(runs, extra)
    figures: dict[str, charts.Figure] = {}
    parts = [
        section_part(section, number, loss, extra, links_from, figures)
        for number, section in enumerate(sections_of(runs))
    ]
    return render(
        "dashboard.html.j2",
        figures,
        parts=parts,
        title=title_of(runs, parts),
        subtitle=subtitle_of(runs),
        notes=notes,
        version=version,
    )


def check_metrics(runs: list[RunFolder], names: list[str]) -> None:
    from cli.errors import suggestion

    logged = dict.fromkeys(name for run in runs for name in run.columns)
    for name in names:
        if name not in logged:
            near = suggestion(name, logged) or f"; there are {', '.join(logged)}"
            raise ValueError(f"--metric {name}: no run has logged it{near}")


def section_part(
    section: Section,
    number: int,
    loss: float | None,
    extra: list[str],
    links_from: Path | None,
    figures: dict[str, charts.Figure],
) -> dict[str, Any]:
    """What the template says about one text; its charts go into `figures`."""
    loss = loss_that_all_reach(section.runs) if loss is None else loss
    drawn = {
        "loss": charts.curves(section, VAL_LOSS),
        "loss_time": charts.curves(section, VAL_LOSS, over_time=True),
        "train": charts.curves(section, TRAIN_LOSS),
        "reach": charts.time_to_each_loss(section, loss),
        "steps": charts.step_times(section),
    }
    names = {name: f"s{number}-{name}" for name, figure in drawn.items() if figure}
    figures |= {names[name]: figure for name, figure in drawn.items() if figure}
    return {
        "id": f"s{number}",
        "name": section.name,
        "time_axis": section.time_axis,
        "headline": words.headline(section),
        "findings": words.findings(section, loss),
        "loss": loss,
        "legend": [
            (str(i), group.label, len(group.runs), charts.colour_of(i))
            for i, group in enumerate(section.groups)
        ],
        "charts": names,
        "step_height": 90 + 26 * len(drawn["steps"]["data"]) if drawn["steps"] else 0,
        "speed": small_charts(section, number, SPEED, figures),
        "gpu": small_charts(section, number, (*GPU, *later_gpus(section)), figures),
        "why_no_gpu": why_no_gpu(section),
        "extra": small_charts(section, number, extra_metrics(extra), figures),
        "summary": laid_out(tables.summary_table(section, loss)),
        "settings": laid_out(tables.settings_table(section)),
        "runs": laid_out(tables.runs_table(section)),
        "captures": [entry for run in section.runs if (entry := captures_of(run, links_from))],
    }


def extra_metrics(names: list[str]) -> list[Metric]:
    shown = {metric.name for metric in (VAL_LOSS, TRAIN_LOSS, *SPEED, *GPU)}
    return [metric_of(name) for name in dict.fromkeys(names) if name not in shown]


def later_gpus(section: Section) -> list[Metric]:
    """The same metrics of a run's further GPUs, as far as they were logged."""
    logged = sorted({name for run in section.runs for name in run.columns})
    found = [metric_of(name) for name in logged if re.fullmatch(LATER_GPU, name)]
    return [metric for metric in found if metric.title != metric.name]


def why_no_gpu(section: Section) -> str:
    reasons = dict.fromkeys(run.in_force.get("gpu_metrics") for run in section.runs)
    return "; ".join(str(reason) for reason in reasons if reason) or "no sampler ran"


def small_charts(
    section: Section, number: int, metrics: Any, figures: dict[str, charts.Figure]
) -> dict[str, Any]:
    """Charts of those metrics that some run has, and the titles of the others."""
    made, missing = [], []
    for metric in metrics:
        figure = charts.curves(section, metric, common=True)
        if figure is None:
            missing.append(metric.title)
            continue
        name = f"s{number}-{metric.name}"
        figures[name] = figure
        made.append((name, metric.title, metric.unit))
    return {"made": made, "missing": missing}


def captures_of(run: RunFolder, links_from: Path | None) -> dict[str, Any] | None:
    """The files of a run's captures, with links from the page where one can be followed."""
    if not run.captures:
        return None
    files = []
    for path in run.captures:
        link = None
        if links_from is not None:
            relative = os.path.relpath(path.resolve(), links_from.resolve())
            link = quote(relative.replace(os.sep, "/"))
        files.append({"name": path.name, "link": link, "path": str(path)})
    return {"run": run.name, "files": files}


def title_of(runs: list[RunFolder], parts: list[dict[str, Any]]) -> str:
    labels = [label for _, label, *_ in parts[0]["legend"]]
    if len(parts) == 1 and 1 < len(labels) <= 3:
        return " against ".join(labels)
    return f"{len(runs)} run{'s' if len(runs) > 1 else ''}"


def subtitle_of(runs: list[RunFolder]) -> str:
    texts = dict.fromkeys(str(run.config.get("dataset")) for run in runs)
    machines = dict.fromkeys(str(run.in_force.get("device")) for run in runs)
    versions = dict.fromkeys(f"torch {run.in_force.get('torch')}" for run in runs)
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    return " · ".join([count, *(", ".join(part) for part in (texts, machines, versions))])
