"""The same comparison in W&B: a Workspace and a Report. Called by dashboard_command.

Both can be made without a login and without a network; only publish() talks to W&B.
"""

import json
from typing import Any

import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from profiling.metric_names import (
    CAPTURE_MEDIA,
    ENERGY_PER_TOKEN,
    GPU,
    LOSS,
    MFU,
    PEAK_BYTES,
    SPEED,
    STEP_MS,
    TOKENS_PER_S,
    VAL_LOSS,
    Metric,
)

TITLE = "slow and flash attention"
BY = "attention"  # the key of the configuration that runs are told apart by
WALL_TIME = "RelativeTime(Wall)"
PINNED = (TOKENS_PER_S, STEP_MS, MFU, PEAK_BYTES, ENERGY_PER_TOKEN)
TWO_WIDE, PANEL_HEIGHT = 12, 8
UNFILTERABLE = "'\"\\=<>"
NO_LOGIN = (
    "W&B: no API key; run `wandb login` or set WANDB_API_KEY, or see what would be made: --dry-run"
)


def curve(metric: Metric, x: str = "iter") -> wr.LinePlot:
    over = " over wall time" if x == WALL_TIME else ""
    return wr.LinePlot(
        title=f"{metric.title}{over} by {BY}",
        x=x,
        y=[metric.name],
        title_x="wall time" if over else "iteration",
        title_y=metric.unit if metric.scale == 1 else metric.name,
        groupby=wr.Config(BY),
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
        max_runs_to_show=100,
    )


def bar(metric: Metric, reduce: str = "mean") -> wr.BarPlot:
    return wr.BarPlot(
        title=f"{metric.title} by {BY}",
        metrics=[metric.name],
        groupby=wr.Config(BY),
        groupby_aggfunc=reduce,
        groupby_rangefunc="minmax",
        title_x=metric.unit if metric.scale == 1 else metric.name,
    )


def panels() -> dict[str, list[Any]]:
    """Of each section, in order."""
    return {
        "Loss": [curve(VAL_LOSS), curve(VAL_LOSS, WALL_TIME), *map(curve, LOSS[1:])],
        "Speed and memory": [*map(bar, (TOKENS_PER_S, ENERGY_PER_TOKEN)), *map(curve, SPEED)],
        "GPU": [curve(metric) for metric in GPU],
        "Captures": [
            wr.MediaBrowser(title=key, media_keys=[key], num_columns=2) for key in CAPTURE_MEDIA
        ],
        "Configurations": [wr.RunComparer(diff_only="split")],
    }


def workspace(entity: str, project: str, group: str | None) -> ws.Workspace:
    pinned = ["run:displayName", f"config:{BY}.value"]
    pinned += [f"summary:{metric.name}" for metric in PINNED]
    return ws.Workspace(
        entity=entity,
        project=project,
        name=TITLE,
        sections=[
            ws.Section(
                name=name,
                panels=found,
                is_open=True,
                panel_settings=ws.SectionPanelSettings(x_axis="iter"),
            )
            for name, found in panels().items()
        ],
        settings=ws.WorkspaceSettings(x_axis="iter", max_runs=100),
        runset_settings=ws.RunsetSettings(
            groupby=[ws.Config(BY)],
            filters=only(group),
            pinned_columns=pinned,
        ),
    )


def report(entity: str, project: str, group: str | None) -> wr.Report:
    blocks: list[Any] = [
        wr.P(
            "Lines are means over the runs of one attention, bands reach from the least to the "
            "greatest run. The x axis is the iteration unless a title says wall time."
        )
    ]
    for name, found in panels().items():
        for index, panel in enumerate(found):
            x, y = index % 2 * TWO_WIDE, index // 2 * PANEL_HEIGHT
            panel.layout = wr.Layout(x=x, y=y, w=TWO_WIDE, h=PANEL_HEIGHT)
        blocks += [wr.H2(name), wr.PanelGrid(runsets=[runset(group)], panels=found)]
    return wr.Report(entity=entity, project=project, title=TITLE, blocks=blocks, width="fluid")


def check_group(group: str | None) -> None:
    """wandb-workspaces puts the name into an expression of its own, and escapes nothing."""
    if group and set(group) & set(UNFILTERABLE):
        raise ValueError(
            f"--group {group}: wandb-workspaces cannot filter by a name with any of {UNFILTERABLE}"
        )


def runset(group: str | None) -> wr.Runset:
    """Of the report's own project."""
    return wr.Runset(
        name=group or "all runs",
        groupby=[f"config.{BY}"],
        filters=only(group),
    )


def only(group: str | None) -> ws.And | str:
    return ws.And(ws.Metric("Group") == group) if group else ""


def as_json(entity: str, project: str, group: str | None) -> str:
    """What publish() would send; sends nothing."""
    check_group(group)
    views = {"workspace": workspace, "report": report}
    # no public way to see a view unsent: pyproject.toml bounds the version for it
    models = {name: make(entity, project, group)._to_model() for name, make in views.items()}
    content = {
        name: model.model_dump(mode="json", by_alias=True, exclude_none=True)
        for name, model in models.items()
    }
    return json.dumps(content, indent=1)


def publish(entity: str, project: str, group: str | None) -> list[tuple[str, str]]:
    """Makes both in W&B; (what, address) of each. ValueError without login, or as W&B refuses."""
    check_group(group)
    check_login()
    made = []
    for name, make in (("workspace", workspace), ("report", report)):
        try:
            made.append((name, make(entity, project, group).save().url))
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
