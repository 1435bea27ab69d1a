"""Predictions of scale for measured steps: docs/scale.md has the tables that are printed."""

from tests.paths import PROJECT
from validation.__main__ import VALIDATION
from validation.predicted import COUNTS, MEASURED


def test_the_tables_of_the_documentation_are_printed(capsys):
    VALIDATION.run(["predicted"])
    printed = [line for line in capsys.readouterr().out.splitlines() if line]
    said = (PROJECT / "docs" / "scale.md").read_text("utf-8").splitlines()
    assert len(printed) == 4 + len(MEASURED) + len(COUNTS)
    assert [line for line in printed if line not in said] == []


def test_a_longer_step_keeps_more(capsys):
    VALIDATION.run(["predicted", "step_ms=54.6"])
    longer = capsys.readouterr().out.splitlines()[-1]
    assert longer.startswith("| 1,024 |") and " 94 % |" in longer
