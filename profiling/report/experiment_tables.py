"""The tables of an A/B experiment. Called by its console, Markdown and page."""

from typing import Any

from profiling.report.tables import Column, Table

WORDS = {"faster": "faster", "slower": "slower", "no_difference": "no difference"}


def values(experiment: dict[str, Any]) -> Table:
    result = experiment["result"]
    rows = [
        {
            "label": row["label"],
            "processes": len(row["processes"]),
            "median": f"{row['median']:,.{3 if row['median'] < 1000 else 0}f}",
            "spread": 100 * row["spread"] / row["median"],
            "within": row["spread_within_percent"],
        }
        for row in result["values"]
    ]
    columns = [
        Column(experiment["factor"]["key"], "label", "code", True),
        Column("processes", "processes", "number", True),
        Column(f"median, {result['unit']}", "median", "text", True),
        Column("between processes", "spread", "percent", True),
        Column("within a process", "within", "percent", True),
    ]
    note = "Medians of the processes' median steps; spreads are interquartile ranges."
    return Table("values", "Step times", note, columns, rows)


def comparisons(experiment: dict[str, Any]) -> Table:
    rows = [
        {
            "pair": f"{row['candidate']} / {row['baseline']}",
            "ratio": f"{row['ratio']:.4f}",
            "interval": f"{row['ci95'][0]:.4f} to {row['ci95'][1]:.4f}",
            "noise": f"{row['noise_percent']:.2f} %",
            "verdict": WORDS[row["verdict"]],
        }
        for row in experiment["result"]["comparisons"]
    ]
    columns = [
        Column("pair", "pair", "code", True),
        Column("ratio", "ratio", "text", True),
        Column("95 % interval", "interval", "text", True),
        Column("A/A noise", "noise", "text", True),
        Column("verdict", "verdict", "text", True),
    ]
    note = (
        "The interval is over processes (Welch's t on logarithms). A/A noise: what two groups of "
        "equal processes differ by, from the repeats; an interval that touches it is no difference."
    )
    return Table("ratios", "Against the first value", note, columns, rows)
