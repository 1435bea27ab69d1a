"""An A/B experiment on the terminal. Called by profiling.verbs.ab."""

from typing import Any

from rich.console import Console
from rich.text import Text

from profiling.report import experiment_tables
from profiling.report.comparison_console import COLOURS, print_table
from profiling.report.comparison_tables import buckets, families


def print_experiment(experiment: dict[str, Any], console: Console) -> None:
    """Each verdict in a sentence, the figures under it, and what the captures say of the reason."""
    console.print()
    for comparison in experiment["comparisons"]:
        console.print(
            Text(comparison["sentence"], COLOURS.get(comparison["verdict"], "bold")), soft_wrap=True
        )
    for warning in experiment["result"]["warnings"]:
        console.print(Text(f"warning: {warning}", "yellow"), soft_wrap=True)
    print_table(experiment_tables.values(experiment), console)
    print_table(experiment_tables.comparisons(experiment), console)
    for comparison in experiment["comparisons"]:
        for reason in comparison["comparability"]["reasons"]:
            console.print(Text(f"  not alike: {reason}", "yellow"), soft_wrap=True)
        for note in comparison["comparability"]["notes"]:
            console.print(Text(f"  note: {note}", "dim"), soft_wrap=True)
        for table in (buckets(comparison), families(comparison)):
            if table.rows:
                print_table(table, console)
