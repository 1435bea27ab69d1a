"""The dashboard's comparison in W&B: a Workspace and a Report. Called by the verb dashboard.

Both can be made without a login and without a network; only publish() talks to W&B.
"""

import json
from dataclasses import dataclass

import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from profiling.shared.gpu_clock import HELD_DOWN, IN_WORDS
from profiling.shared.metric_names import (
    BEST_VAL_LOSS,
    CAPTURE_GPU,
    CAPTURE_HOST,
    CAPTURE_MEDIA,
    CAPTURE_PARTS,
    ENERGY_PER_TOKEN,
    FASTEST_RANK,
    FIGURES,
    GPU,
    LOSS,
    MFU,
    PEAK_BYTES,
    RANKS,
    SLOWEST_RANK,
    SPEED,
    STEP_MS,
    TOKENS_PER_S,
    TRAINING_PHASES,
    VAL_LOSS,
    Metric,
    metric_of,
)

Panel = (
    wr.LinePlot
    | wr.BarPlot
    | wr.MediaBrowser
    | wr.RunComparer
    | wr.ParallelCoordinatesPlot
    | wr.ParameterImportancePlot
)
# where the wall time of a run went, in its summary
RUN_PARTS = tuple(
    f"time/{part}_s"
    for part in ("start_up", "compile", "capture", "training", "evaluation", "checkpoint")
)
THROTTLED = tuple(
    Metric(f"gpu/{name}", f"clock held down by {IN_WORDS[by]}", "% of the time")
    for name, by in HELD_DOWN.items()
)
# of the runs that `compare` and `ab` make: the candidate's step time over the baseline's
VERDICT = ("verdict/ratio_low", "verdict/ratio", "verdict/ratio_high")
WALL_TIME = "RelativeTime(Wall)"
OFTEN_SWEPT = ("learning_rate", "batch_size", "dropout")  # axes in addition to the keys of --by
TWO_WIDE, PANEL_HEIGHT = 12, 8
UNFILTERABLE = "'\"\\=<>"
NO_LOGIN = (
    "W&B: no API key; run `wandb login` or set WANDB_API_KEY, or use --dry-run to see what would "
    "be created"
)


@dataclass(frozen=True)
class Views:
    """The runs to show, and the keys that group them.

    Raises ValueError for a group or a tag that wandb-workspaces cannot filter by: it puts the name
    into an expression of its own without escapes.
    """

    entity: str
    project: str
    group: str | None  # show only runs of this group
    by: tuple[str, ...]  # keys of the configuration; a chart has a line for each value of the first
    tag: str | None = None  # show only runs with this tag
    extra: tuple[str, ...] = ()  # names of more metrics, a chart each
    baseline: str | None = None  # id of the run that the others are compared with
    ranks: bool = False  # show the waits between ranks, which runs of several ranks log

    def __post_init__(self) -> None:
        for flag, name in (("--group", self.group), ("--tag", self.tag)):
            if name and set(name) & set(UNFILTERABLE):
                raise ValueError(
                    f"{flag} {name}: wandb-workspaces cannot filter by a name with any of "
                    f"{UNFILTERABLE}"
                )

    @property
    def title(self) -> str:
        return f"runs by {', '.join(self.by)}"

    @property
    def filters(self) -> ws.And | str:
        of_group = [ws.Metric("Group") == self.group] if self.group else []
        of_tag = [ws.Tags().isin([self.tag])] if self.tag else []
        return ws.And(*of_group, *of_tag) if of_group + of_tag else ""


def curve(metric: Metric, by: str, x: str = "iter") -> wr.LinePlot:
    over = " over wall time" if x == WALL_TIME else ""
    return wr.LinePlot(
        title=f"{metric.title}{over} by {by}",
        x=x,
        y=[metric.name],
        title_x="wall time" if over else "iteration",
        title_y=metric.unit if metric.scale == 1 else metric.name,
        groupby=wr.Config(by),
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
        max_runs_to_show=100,
    )


def bar(metric: Metric, by: str) -> wr.BarPlot:
    return wr.BarPlot(
        title=f"{metric.title} by {by}",
        metrics=[metric.name],
        groupby=wr.Config(by),
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
        title_x=metric.unit if metric.scale == 1 else metric.name,
    )


def parts(title: str, names: tuple[str, ...], by: str, unit: str) -> wr.BarPlot:
    """Bars of several values of the summary, means over the runs of one `by`."""
    return wr.BarPlot(
        title=title,
        metrics=[*names],
        groupby=wr.Config(by),
        groupby_aggfunc="mean",
        title_x=unit,
    )


def captured_steps(by: str) -> list[wr.BarPlot]:
    """Bars of captured steps: the parts, which add up to a step, and the phases."""
    bars = [parts(f"parts of a captured step by {by}", CAPTURE_PARTS, by, "ms")]
    for whose, kind in (("GPU", CAPTURE_GPU), ("host", CAPTURE_HOST)):
        names = tuple(f"{kind}/{phase}" for phase in TRAINING_PHASES)
        bars.append(parts(f"{whose} time of each phase by {by}", names, by, "ms"))
    return bars


def coordinates(keys: tuple[str, ...]) -> wr.ParallelCoordinatesPlot:
    """Parallel coordinates: a line for each run, from its keys to its speed and best loss."""
    shown = dict.fromkeys((*keys, *OFTEN_SWEPT))
    columns = [wr.ParallelCoordinatesPlotColumn(metric=wr.Config(key)) for key in shown]
    for metric in (TOKENS_PER_S, BEST_VAL_LOSS):
        end = wr.SummaryMetric(metric.name)
        columns.append(wr.ParallelCoordinatesPlotColumn(metric=end, display_name=metric.title))
    return wr.ParallelCoordinatesPlot(title="keys, speed and best loss", columns=columns)


def panels(views: Views) -> dict[str, list[Panel]]:
    """The panels that answer each question, in order; a section without panels is left out."""
    by = views.by[0]
    of_ranks = (*RANKS, SLOWEST_RANK, FASTEST_RANK) if views.ranks else ()
    speeds = (STEP_MS, TOKENS_PER_S, MFU)
    memory = [metric for metric in SPEED if metric.unit == PEAK_BYTES.unit]
    host = [metric for metric in SPEED if metric not in (*speeds, *memory)]
    against = "step time over the baseline's, with its 95 % interval: below 1 is faster"
    sections: dict[str, list[Panel]] = {
        "Which is faster, and is it certain?": [
            *(bar(metric, by) for metric in (TOKENS_PER_S, STEP_MS)),
            parts(against, VERDICT, "candidate.name", "ratio"),
            *(curve(metric, by) for metric in speeds),
        ],
        "Where does the time go?": [
            parts(f"wall time of the run by {by}", RUN_PARTS, by, "s"),
            *captured_steps(by),
            *(curve(metric, by) for metric in host),
        ],
        "Does it learn the same?": [
            bar(BEST_VAL_LOSS, by),
            curve(VAL_LOSS, by),
            curve(VAL_LOSS, by, WALL_TIME),
            *(curve(metric, by) for metric in LOSS[1:]),
        ],
        "How much memory does it need?": [
            bar(PEAK_BYTES, by),
            *(curve(metric, by) for metric in memory),
        ],
        "What does the GPU do, and what holds it down?": [
            bar(ENERGY_PER_TOKEN, by),
            *(curve(metric, by) for metric in (*GPU, *THROTTLED)),
        ],
        "Which rank waits for which?": [curve(metric, by) for metric in of_ranks],
        "Others": [curve(metric_of(name), by) for name in views.extra],
        "What did the captures see?": [
            wr.MediaBrowser(title=key, media_keys=[key], num_columns=2) for key in CAPTURE_MEDIA
        ],
        "Which keys make the difference?": [
            coordinates(views.by),
            wr.ParameterImportancePlot(with_respect_to=BEST_VAL_LOSS.name),
            wr.RunComparer(diff_only="split"),
        ],
    }
    return {name: own for name, own in sections.items() if own}


def workspace(views: Views) -> ws.Workspace:
    pinned = ["run:displayName", *map(column, views.by)]
    pinned += [f"summary:{metric.name}" for metric in FIGURES]
    return ws.Workspace(
        entity=views.entity,
        project=views.project,
        name=views.title,
        sections=[
            ws.Section(
                name=name,
                panels=[*own],
                is_open=True,
                panel_settings=ws.SectionPanelSettings(x_axis="iter"),
            )
            for name, own in panels(views).items()
        ],
        settings=ws.WorkspaceSettings(x_axis="iter", max_runs=100),
        runset_settings=ws.RunsetSettings(
            groupby=[ws.Config(key) for key in views.by],
            filters=views.filters,
            pinned_columns=pinned,
            baseline_run=views.baseline,
        ),
    )


def column(key: str) -> str:
    """Name of a key's column in the table of runs, as in config:profile.value.steps."""
    section, dot, rest = key.partition(".")
    return f"config:{section}.value{dot}{rest}"


def report(views: Views) -> wr.Report:
    blocks: list[wr.P | wr.H2 | wr.PanelGrid] = [
        wr.P(
            f"Lines are means over the runs of one {views.by[0]}; bands reach from the lowest to "
            "the highest run. The x axis is the iteration unless the title says wall time."
        )
    ]
    runset = wr.Runset(  # without a project it is that of the report
        name=views.group or views.tag or "all runs",
        groupby=[f"config.{key}" for key in views.by],
        filters=views.filters,
    )
    for name, own in panels(views).items():
        for index, panel in enumerate(own):
            x, y = index % 2 * TWO_WIDE, index // 2 * PANEL_HEIGHT
            panel.layout = wr.Layout(x=x, y=y, w=TWO_WIDE, h=PANEL_HEIGHT)
        blocks += [wr.H2(name), wr.PanelGrid(runsets=[runset], panels=[*own])]
    return wr.Report(
        entity=views.entity,
        project=views.project,
        title=views.title,
        blocks=[*blocks],
        width="fluid",
    )


def as_json(views: Views) -> str:
    """The JSON that publish() would send; nothing is sent."""
    # There is no public way to see a view unsent, so pyproject.toml bounds the library's version.
    models = {
        "workspace": workspace(views)._to_model(),
        "report": report(views)._to_model(),  # type: ignore[no-untyped-call]
    }
    content = {
        name: model.model_dump(mode="json", by_alias=True, exclude_none=True)
        for name, model in models.items()
    }
    return json.dumps(content, indent=1) + "\n"


def publish(views: Views) -> list[tuple[str, str]]:
    """Creates both in W&B and returns (kind, address) of each.

    Raises ValueError without a login, and where W&B refuses.
    """
    check_login()
    made: list[tuple[str, str]] = []
    for name, make in (("workspace", workspace), ("report", report)):
        try:
            made.append((name, make(views).save().url))  # type: ignore[no-untyped-call]
        except Exception as error:  # wandb raises its own kinds, of several layers
            done = "".join(f"; the {what} was created: {url}" for what, url in made)
            raise ValueError(f"W&B: the {name} was not created: {error}{done}") from error
    return made


def check_login() -> None:
    """Raises ValueError without a login, whereas wandb.Api() would prompt and wait for a key."""
    try:
        logged_in = wandb.login(prompt=False)
    except Exception as error:  # an invalid key, a server that refuses it
        raise ValueError(f"W&B: {error}; run `wandb login`, or use --dry-run") from error
    if not logged_in:
        raise ValueError(NO_LOGIN)
