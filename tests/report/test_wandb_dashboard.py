"""Dashboard in W&B: its panels name metrics of the trainer; offline, and on a fake server."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from profiling.analysis.difference.comparison_records import Comparison
from profiling.analysis.open_report import open_report
from profiling.launch import wandb_log, wandb_verdict
from profiling.recording.sampler import GpuSampler
from profiling.shared.json_records import read_json
from profiling.shared.metric_names import ALL, CAPTURE_MEDIA, metric_of
from tests.fakes.fake_wandb_server import FakeWandbServer
from tests.paths import CAPTURES, GOLDENS, PROJECT
from training.metrics.rank_waits import waits_of

AXES = {"iter", "_absolute_runtime"}
AXIS_OF_LR = "config:learning_rate.value"  # one of those that a sweep often has
PUBLISH = """
from profiling.report.dashboard.wandb_views import Views, publish
print(publish(Views("me", "p", "g", ("attention",))))
"""


def values_of(content, key: str) -> list:
    """Every value of `key` in nested JSON."""
    if isinstance(content, list):
        return [value for item in content for value in values_of(item, key)]
    if not isinstance(content, dict):
        return []
    here = [content[key]] if key in content else []
    return here + [value for item in content.values() for value in values_of(item, key)]


def panel_metrics(spec) -> set[str]:
    """Names the metrics on both axes of the panels."""
    panels = [p for p in values_of(spec, "config") if isinstance(p, dict) and "metrics" in p]
    return {name for p in panels for name in (*p["metrics"], *values_of(p, "xAxis"))}


def content_of(*given: object, **keys: object) -> dict:
    """Workspace and report of the project me/nano."""
    from profiling.report.dashboard.wandb_views import Views, as_json  # a second, for these alone

    return json.loads(as_json(Views("me", "nano", *given, **keys)))


@pytest.fixture
def spec():
    return content_of("slow-flash", ("attention",))


@pytest.fixture
def logged(run, rows):
    """Names in a run's metrics.jsonl and summary.json, and those that the sampler of a GPU has.

    Also those that captures and comparisons add to a run's summary in W&B.
    """
    out_dir = run()
    names = {name for row in rows(out_dir).values() for name in row}
    names |= set(json.loads((out_dir / "summary.json").read_text()))
    sampler = (PROJECT / "profiling/recording/nvml.py").read_text("utf-8")
    names |= {
        f"gpu/{name}" for name in re.findall(r'"([a-z_]+_(?:percent|w|j|mhz|c|bytes))"', sampler)
    }
    report = open_report(CAPTURES / "flash_compile.sqlite.gz").report
    names |= {f"capture/{name}" for name, _ in wandb_log.summary(report)}
    names |= set(wandb_log.phases_ms(report))
    golden = read_json(GOLDENS / "compare-compile.json", Comparison)
    names |= {f"verdict/{name}" for name in wandb_verdict.figures(golden)}
    of_two_ranks = waits_of(np.full((2, 1), 6.0), np.array([[1.0], [2.0]])).metrics()
    return names | set(GpuSampler([], 100).read(tokens_per_s=1.0)) | set(of_two_ranks)


@pytest.mark.slow
@pytest.mark.parametrize("view", ("workspace", "report"))
def test_every_metric_of_a_panel_is_logged(spec, logged, view):
    named = panel_metrics(spec[view])
    answers = {"verdict/ratio", "capture/gpu_ms/forward", "time/evaluation_s", "val/loss"}
    assert answers | {"memory/peak_bytes", "gpu/throttle_power_percent"} <= named
    assert named - AXES <= logged, "panels without data"


def test_every_known_metric_is_logged(logged):
    # a captured step logs the first, programs of others have the next two
    others = {"profile/step_ms", "time/mean_step_ms", "perf/steps_per_s"}
    assert set(ALL) - others <= logged


@pytest.mark.parametrize("view", ("workspace", "report"))
def test_what_the_dashboard_shows(spec, view):
    panels = values_of(spec[view], "viewType")
    assert {"Run History Line Plot", "Bar Chart", "Run Comparer", "Media Browser"} <= set(panels)
    lines = [c for c in values_of(spec[view], "config") if isinstance(c, dict) and "xAxis" in c]
    loss = [c["xAxis"] for c in lines if c["metrics"] == ["val/loss"]]
    assert loss == ["iter", "_absolute_runtime"], "over iterations and over wall time"
    assert {c["groupBy"] for c in lines} == {"attention.value"}
    shown = {key for keys in values_of(spec[view], "mediaKeys") for key in keys}
    assert shown == set(CAPTURE_MEDIA)
    filters = [f for f in values_of(spec[view], "filters") if isinstance(f, list)]
    assert [f[0]["key"] for f in filters] == [{"section": "run", "name": "group"}] * len(filters)
    assert {f[0]["value"] for f in filters} == {"slow-flash"}


def test_a_group_that_the_library_would_mangle_is_refused():
    with pytest.raises(ValueError, match="--group a=b: .* cannot filter"):
        content_of("a=b", ("attention",))
    with pytest.raises(ValueError, match="--tag a'b: .* cannot filter"):
        content_of(None, ("attention",), tag="a'b")


def test_any_key_that_differs_and_any_metric_makes_a_workspace():
    made = content_of(None, ("profile.steps", "lr"), "mine", ("my/metric",), "abc")
    for view in made.values():
        lines = [c for c in values_of(view, "config") if isinstance(c, dict) and "xAxis" in c]
        assert {c["groupBy"] for c in lines} == {"profile.value.steps"}
        assert ["my/metric"] in [c["metrics"] for c in lines]
        axes = [column["accessor"] for each in values_of(view, "columns") for column in each]
        assert axes[:3] == ["config:profile.value.steps", "config:lr.value", AXIS_OF_LR]
        assert axes[-2:] == ["summary:perf/tokens_per_s", "summary:best_val_loss"]
        assert set(values_of(view, "targetKey")) == {"best_val_loss"}, "parameter importance"
        keys = [
            f["key"] for each in values_of(view, "filters") if isinstance(each, list) for f in each
        ]
        assert {"section": "run", "name": "tags"} in keys
    assert values_of(made["workspace"], "baselineRunId")
    (pinned,) = [p for p in values_of(made["workspace"], "columnPinned") if p]
    assert list(pinned)[:4] == [
        "run:displayName",
        "config:profile.value.steps",
        "config:lr.value",
        "summary:best_val_loss",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("view", ("workspace", "report"))
def test_who_is_waited_for_is_shown_where_it_is_asked_for(spec, logged, view):
    asked = content_of("slow-flash", ("attention",), ranks=True)
    more = panel_metrics(asked[view]) - panel_metrics(spec[view])
    assert {"time/wait_ms", "time/straggler_ms", "time/slowest_rank"} <= more <= logged


def test_the_wait_of_each_rank_is_named_after_it():
    assert metric_of("time/wait_ms/rank12").title == "rank 12: wait for the last rank"
    assert metric_of("time/wait_ms/rank12").unit == metric_of("time/wait_ms").unit == "ms per step"


def test_metrics_of_other_gpus_are_named_after_the_first():
    assert metric_of("gpu2/power_w").title == "GPU 2: power"
    assert metric_of("gpu2/power_w").unit == "W"
    assert metric_of("gpu2/fans").title == metric_of("brand/new").title.replace(
        "brand/new", "gpu2/fans"
    )


class ViewServer(FakeWandbServer):
    """Answers what wandb-workspaces asks for as well, and keeps the views that it was sent."""

    def __init__(self):
        super().__init__()
        self.views: list[dict] = []

    def graphql(self, query: str, variables: dict) -> dict:
        if "GetProjects" in query:
            page = {"endCursor": None, "hasNextPage": False}
            return {"models": {"totalCount": 0, "edges": [], "pageInfo": page}}
        if "upsertModel" in query:
            project = {"id": "1", "name": "p", "entityName": "me", "description": "", "access": ""}
            return {"result": {"project": project, "model": project, "inserted": True}}
        if "upsertView" in query:
            self.views.append(variables)
            project = {"id": "1", "name": "p", "entityName": "me"}
            view = {key: variables[key] for key in ("name", "displayName", "spec", "type")}
            view |= {"id": f"view{len(self.views)}", "description": "", "project": project}
            return {"upsertView": {"view": view, "inserted": True}}
        return super().graphql(query, variables)


def published(home: Path, **environ: str) -> subprocess.CompletedProcess:
    """Publishes in a process of its own: wandb keeps its login for as long as one lasts."""
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(home), "WANDB_SILENT": "true", **environ}
    command = [sys.executable, "-c", PUBLISH]
    return subprocess.run(
        command, cwd=PROJECT, env=clean, capture_output=True, text=True, timeout=150
    )


@pytest.mark.slow
def test_publishing_sends_both_views(tmp_path):
    server = ViewServer()
    try:
        done = published(tmp_path, WANDB_BASE_URL=server.url, WANDB_API_KEY="a" * 40)
    finally:
        server.close()
    assert done.returncode == 0, done.stderr
    workspace, report = server.views
    assert (workspace["type"], report["type"]) == ("project-view", "runs")
    assert "val/loss" in panel_metrics(json.loads(workspace["spec"]))
    assert "val/loss" in panel_metrics(json.loads(report["spec"]))
    assert f"{server.url}/me/p" in done.stdout


@pytest.mark.slow
def test_without_a_login_the_way_to_one_is_said(tmp_path):
    done = published(tmp_path, WANDB_BASE_URL="http://127.0.0.1:9")
    assert (
        "wandb login` or set WANDB_API_KEY, or use --dry-run to see what would be created"
    ) in done.stderr


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_one_line(tmp_path):
    done = published(
        tmp_path,
        WANDB_BASE_URL="http://127.0.0.1:9",
        WANDB_API_KEY="a" * 40,
        WANDB_HTTP_TIMEOUT="1",
    )
    assert "ValueError: W&B: " in done.stderr.strip().splitlines()[-1]
