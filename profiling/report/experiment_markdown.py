"""An A/B experiment as Markdown. Called by profiling.verbs.ab."""

from typing import Any

from profiling.report import experiment_tables
from profiling.report.comparison_markdown import escaped, markdown_table
from profiling.report.comparison_tables import buckets, families


def experiment_markdown(experiment: dict[str, Any]) -> str:
    """The whole document."""
    key = experiment["factor"]["key"]
    lines = [f"# {escaped(key)}: {escaped(', '.join(experiment['factor']['labels']))}", ""]
    lines += [f"**{escaped(one['sentence'])}**  " for one in experiment["comparisons"]]
    lines += ["", *(f"- warning: {escaped(w)}" for w in experiment["result"]["warnings"])]
    lines += ["", *markdown_table(experiment_tables.values(experiment))]
    lines += ["", *markdown_table(experiment_tables.comparisons(experiment))]
    for comparison in experiment["comparisons"]:
        lines += [
            "",
            *(f"- not alike: {escaped(r)}" for r in comparison["comparability"]["reasons"]),
        ]
        for table in (buckets(comparison), families(comparison)):
            if table.rows:
                lines += ["", *markdown_table(table)]
    lines += ["", f"{len(experiment['runs'])} processes, each of {experiment['steps']} timed steps"]
    lines += [
        f"after {experiment['warm_up'] + 1} of warm-up: {escaped(' '.join(experiment['words']))}"
    ]
    return "\n".join(lines) + "\n"
