"""A comparison as one self-contained page. Called by the verbs compare and ab.

templates/compare.html.j2 lays out what the functions here prepare.
"""

from html import escape  # plotly takes some HTML in its texts, and names are anyone's
from typing import Any

from profiling.report.comparison_tables import all_tables, bucket_label, facts
from profiling.report.html import laid_out, render

Figure = dict[str, Any]

BASELINE, CANDIDATE, BETTER, WORSE = "var(--muted)", "var(--accent)", "var(--good)", "var(--bad)"
MARGIN = {"l": 60, "r": 20, "t": 10, "b": 40}
SMALL_SHARE = 0.001  # of the step: a smaller change is not drawn
WORDS = {"faster": "faster", "slower": "slower", "no_difference": "no difference"}
WORDS |= {"not_comparable": "not comparable"}


def comparison_page(comparison: dict[str, Any]) -> str:
    """The page as text."""
    figures = charts(comparison)
    return render(
        "compare.html.j2",
        figures,
        comparison=comparison,
        said=comparison["sentence"],
        word=WORDS[comparison["verdict"]],
        facts=facts(comparison),
        points=points(comparison),
        tables=[laid_out(table) for table in all_tables(comparison) if table.rows],
    )


def points(comparison: dict[str, Any]) -> str:
    """What a point of the step times is."""
    if comparison["baseline"]["kind"] == "training":
        return "Each point is a logged row, the median of its iterations"
    return "Each point is a step"


def charts(comparison: dict[str, Any]) -> dict[str, Figure]:
    figures = {"steps": step_chart(comparison)}
    if comparison["buckets"]:
        figures["waterfall"] = waterfall(comparison)
    if comparison["families"]:
        figures["families"] = family_chart(comparison)
    return figures


def waterfall(comparison: dict[str, Any]) -> Figure:
    """From the mean step of the baseline, part by part, to that of the candidate."""
    rows = comparison["buckets"]
    start_ms = sum(row["baseline_ms"] for row in rows)
    drawn = [row for row in rows if abs(row["delta_ms"]) >= SMALL_SHARE * start_ms]
    rest_ms = sum(row["delta_ms"] for row in rows if row not in drawn)
    labels = [escape(comparison["baseline"]["name"])]
    labels += [escape(bucket_label(row["bucket"])) for row in drawn]
    changes = [row["delta_ms"] for row in drawn]
    if abs(rest_ms) >= SMALL_SHARE * start_ms:
        labels.append("the rest")
        changes.append(rest_ms)
    end_ms = sum(row["candidate_ms"] for row in rows)
    bars = {
        "type": "waterfall",
        "x": [*labels, escape(comparison["candidate"]["name"])],
        "y": [start_ms, *changes, end_ms],
        "measure": ["absolute", *["relative"] * len(changes), "total"],
        "text": [f"{start_ms:.2f}", *(f"{ms:+.2f}" for ms in changes), f"{end_ms:.2f}"],
        "textposition": "outside",
        "cliponaxis": False,
        "increasing": {"marker": {"color": WORSE}},
        "decreasing": {"marker": {"color": BETTER}},
        "totals": {"marker": {"color": BASELINE}},
        "connector": {"line": {"color": "var(--line)", "width": 1}},
        "hovertemplate": "%{x}: %{text} ms<extra></extra>",
    }
    layout = {
        "yaxis": {"title": {"text": "ms a step"}, "rangemode": "tozero"},
        "xaxis": {"automargin": True, "type": "category"},
        "margin": MARGIN | {"t": 25},
        "showlegend": False,
    }
    return {"data": [bars], "layout": layout}


def family_chart(comparison: dict[str, Any]) -> Figure:
    """Families side by side, the one that takes the most on top."""
    rows = sorted(
        comparison["families"], key=lambda row: max(row["baseline_ms"], row["candidate_ms"])
    )
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": escape(comparison[side]["name"]),
            "y": [escape(row["family"]) for row in rows],
            "x": [row[f"{side}_ms"] for row in rows],
            "marker": {"color": colour},
            "hovertemplate": "%{y}: %{x:.3f} ms<extra>%{fullData.name}</extra>",
        }
        for side, colour in (("candidate", CANDIDATE), ("baseline", BASELINE))
    ]
    layout = {
        "barmode": "group",
        "xaxis": {"title": {"text": "ms of kernels a step"}},
        "yaxis": {"automargin": True, "type": "category"},
        "legend": {"orientation": "h", "y": 1.08, "traceorder": "reversed"},
        "margin": MARGIN | {"l": 90},
    }
    return {"data": data, "layout": layout}


def step_chart(comparison: dict[str, Any]) -> Figure:
    """Every step time of both sides (in an experiment: of every process), and their quartiles."""
    step = comparison["step_ms"]
    data = [
        {
            "type": "box",
            "name": escape(comparison[side]["name"]),
            "x": step[f"{side}_values"],
            "boxpoints": "all",
            "jitter": 0.5,
            "pointpos": 0,
            "marker": {"color": colour, "size": 4, "opacity": 0.7},
            "line": {"color": colour},
            "fillcolor": "rgba(0,0,0,0)",
            "hovertemplate": "%{x:.4g}<extra>%{fullData.name}</extra>",
        }
        for side, colour in (("candidate", CANDIDATE), ("baseline", BASELINE))
    ]
    layout = {
        "xaxis": {"title": {"text": step.get("unit", "ms a step")}},
        "yaxis": {"automargin": True},
        "margin": MARGIN | {"l": 90},
        "showlegend": False,
    }
    return {"data": data, "layout": layout}
