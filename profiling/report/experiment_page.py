"""An A/B experiment as one self-contained page. Called by profiling.verbs.ab."""

from html import escape
from typing import Any

from profiling.report import experiment_tables
from profiling.report.comparison_page import Figure, family_chart, waterfall
from profiling.report.comparison_tables import all_tables
from profiling.report.html import laid_out, render

PALETTE = ("muted", "accent", "attention", "norm", "optimizer", "loss", "softmax", "elementwise")


def experiment_page(experiment: dict[str, Any]) -> str:
    """The page as text."""
    figures = {"processes": process_chart(experiment)}
    parts = []
    for number, comparison in enumerate(experiment["comparisons"]):
        if comparison["buckets"]:
            figures[f"waterfall-{number}"] = waterfall(comparison)
        if comparison["families"]:
            figures[f"families-{number}"] = family_chart(comparison)
        tables = [laid_out(table) for table in all_tables(comparison) if table.rows]
        for table in tables:
            table["name"] += f"-{number}"
        parts.append({"number": number, "comparison": comparison, "tables": tables})
    return render(
        "experiment.html.j2",
        figures,
        experiment=experiment,
        parts=parts,
        tables=[laid_out(make(experiment)) for make in TABLES],
        chart_height=120 + 70 * len(experiment["factor"]["labels"]),
    )


TABLES = (experiment_tables.values, experiment_tables.comparisons)


def process_chart(experiment: dict[str, Any]) -> Figure:
    """Every process as a point, a box for each value; the first value on top."""
    rows = list(enumerate(experiment["result"]["values"]))
    data = [
        {
            "type": "box",
            "name": escape(row["label"]),
            "x": row["processes"],
            "boxpoints": "all",
            "jitter": 0.4,
            "pointpos": 0,
            "marker": {"color": f"var(--{PALETTE[number % len(PALETTE)]})", "size": 7},
            "fillcolor": "rgba(0,0,0,0)",
            "hovertemplate": "%{x:.4f}<extra>%{fullData.name}</extra>",
        }
        for number, row in reversed(rows)
    ]
    layout = {
        "xaxis": {"title": {"text": experiment["result"]["unit"]}},
        "yaxis": {"automargin": True},
        "margin": {"l": 90, "r": 20, "t": 10, "b": 44},
        "showlegend": False,
    }
    return {"data": data, "layout": layout}
