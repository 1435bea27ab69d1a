"""Predictions of scale for measured steps: docs/scale.md has the tables that are printed."""

from benchmarks.__main__ import main
from benchmarks.predicted import COUNTS, MEASURED
from tests.paths import PROJECT


def test_the_tables_of_the_documentation_are_printed(capsys):
    main(["predicted"])
    printed = [line for line in capsys.readouterr().out.splitlines() if line]
    said = (PROJECT / "docs" / "scale.md").read_text("utf-8").splitlines()
    assert len(printed) == 4 + len(MEASURED) + len(COUNTS)
    assert [line for line in printed if line not in said] == []


def test_a_longer_step_keeps_more(capsys):
    main(["predicted", "step_ms=54.6"])
    longer = capsys.readouterr().out.splitlines()[-1]
    assert longer.startswith("| 1,024 |") and " 94 % |" in longer
