"""The same comparison in W&B: a Workspace and a Report. Called by `python -m profiling dashboard`.

Both can be made without a login and without a network; only publish() talks to W&B.
"""

import json
from dataclasses import dataclass

import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from profiling.metric_names import (
    CAPTURE_MEDIA,
    ENERGY_PER_TOKEN,
    FIGURES,
    GPU,
    LOSS,
    SPEED,
    TOKENS_PER_S,
    VAL_LOSS,
    Metric,
)

Panel = wr.LinePlot | wr.BarPlot | wr.MediaBrowser | wr.RunComparer
WALL_TIME = "RelativeTime(Wall)"
TWO_WIDE, PANEL_HEIGHT = 12, 8
UNFILTERABLE = "'\"\\=<>"
NO_LOGIN = (
    "W&B: no API key; run `wandb login` or set WANDB_API_KEY, or see what would be made: --dry-run"
)


@dataclass(frozen=True)
class Views:
    """Which runs, and what they are told apart by.

    Raises ValueError for a group that wandb-workspaces cannot filter by: it puts the name into an
    expression of its own, and escapes nothing.
    """

    entity: str
    project: str
    group: str | None  # only its runs
    by: str  # a key of the configuration

    def __post_init__(self) -> None:
        if self.group and set(self.group) & set(UNFILTERABLE):
            raise ValueError(
                f"--group {self.group}: wandb-workspaces cannot filter by a name with any of "
                f"{UNFILTERABLE}"
            )

    @property
    def title(self) -> str:
        return f"runs by {self.by}"

    @property
    def filters(self) -> ws.And | str:
        return ws.And(ws.Metric("Group") == self.group) if self.group else ""


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


def panels(by: str) -> dict[str, list[Panel]]:
    """Of each section, in order."""
    bars = (bar(metric, by) for metric in (TOKENS_PER_S, ENERGY_PER_TOKEN))
    return {
        "Loss": [
            curve(VAL_LOSS, by),
            curve(VAL_LOSS, by, WALL_TIME),
            *(curve(metric, by) for metric in LOSS[1:]),
        ],
        "Speed and memory": [*bars, *(curve(metric, by) for metric in SPEED)],
        "GPU": [curve(metric, by) for metric in GPU],
        "Captures": [
            wr.MediaBrowser(title=key, media_keys=[key], num_columns=2) for key in CAPTURE_MEDIA
        ],
        "Configurations": [wr.RunComparer(diff_only="split")],
    }


def workspace(views: Views) -> ws.Workspace:
    pinned = ["run:displayName", f"config:{views.by}.value"]
    pinned += [f"summary:{metric.name}" for metric in FIGURES]
    return ws.Workspace(
        entity=views.entity,
        project=views.project,
        name=views.title,
        sections=[
            ws.Section(
                name=name,
                panels=[*found],
                is_open=True,
                panel_settings=ws.SectionPanelSettings(x_axis="iter"),
            )
            for name, found in panels(views.by).items()
        ],
        settings=ws.WorkspaceSettings(x_axis="iter", max_runs=100),
        runset_settings=ws.RunsetSettings(
            groupby=[ws.Config(views.by)], filters=views.filters, pinned_columns=pinned
        ),
    )


def report(views: Views) -> wr.Report:
    blocks: list[wr.P | wr.H2 | wr.PanelGrid] = [
        wr.P(
            f"Lines are means over the runs of one {views.by}, bands reach from the least to the "
            "greatest run. The x axis is the iteration unless a title says wall time."
        )
    ]
    runset = wr.Runset(  # of the report's own project
        name=views.group or "all runs", groupby=[f"config.{views.by}"], filters=views.filters
    )
    for name, found in panels(views.by).items():
        for index, panel in enumerate(found):
            x, y = index % 2 * TWO_WIDE, index // 2 * PANEL_HEIGHT
            panel.layout = wr.Layout(x=x, y=y, w=TWO_WIDE, h=PANEL_HEIGHT)
        blocks += [wr.H2(name), wr.PanelGrid(runsets=[runset], panels=[*found])]
    return wr.Report(
        entity=views.entity,
        project=views.project,
        title=views.title,
        blocks=[*blocks],
        width="fluid",
    )


def as_json(views: Views) -> str:
    """What publish() would send; sends nothing."""
    # no public way to see a view unsent: pyproject.toml bounds the version for it
    models = {"workspace": workspace(views)._to_model(), "report": report(views)._to_model()}
    content = {
        name: model.model_dump(mode="json", by_alias=True, exclude_none=True)
        for name, model in models.items()
    }
    return json.dumps(content, indent=1) + "\n"


def publish(views: Views) -> list[tuple[str, str]]:
    """Makes both in W&B; (what, address) of each. ValueError without login, or as W&B refuses."""
    check_login()
    made: list[tuple[str, str]] = []
    for name, make in (("workspace", workspace), ("report", report)):
        try:
            made.append((name, make(views).save().url))
        except Exception as error:  # wandb raises its own kinds, of several layers
            done = "".join(f"; the {what} was made: {url}" for what, url in made)
            raise ValueError(f"W&B: the {name} was not made: {error}{done}") from error
    return made


def check_login() -> None:
    """wandb.Api() would ask for a key on the terminal, where nobody may be."""
    try:
        found = wandb.login(prompt=False)
    except Exception as error:  # a key that is none, a server that refuses it
        raise ValueError(f"W&B: {error}; run `wandb login`, or use --dry-run") from error
    if not found:
        raise ValueError(NO_LOGIN)
