"""JSON that a verb wrote, given in place of a capture: the message says what to give instead."""

import json

import pytest

from profiling.shared.json_records import to_json
from profiling.timeline.made_results import result_words
from profiling.verbs import compare, report
from tests.helpers.reports import MANIFEST
from tests.paths import CAPTURES, PROJECT

GOLDENS = PROJECT / "tests" / "goldens"


def test_a_report_already_made_is_named_by_report_and_compare(tmp_path):
    made, capture = tmp_path / "made.json", str(CAPTURES / "flash_compile.sqlite.gz")
    report.main([capture, "--json", str(made)])
    line = (
        f"{made}: is a report already made by report --json, not a capture; give the capture "
        "instead: flash_compile.sqlite.gz"
    )
    for call in (
        lambda: report.main([str(made)]),
        lambda: compare.main([str(made), capture]),
        lambda: compare.main([capture, str(made)]),
    ):
        with pytest.raises(ValueError, match="is a report") as caught:
            call()
        assert str(caught.value) == line


@pytest.mark.parametrize(
    ("text", "what", "files"),
    [
        (
            (GOLDENS / "compare-eager.json").read_text(),
            "a comparison already made by compare",
            ": slow_eager.sqlite.gz, flash_eager.sqlite.gz",
        ),
        ((GOLDENS / "ab-bare.json").read_text(), "an experiment already made by ab", ""),
        (to_json(MANIFEST), "the manifest of a capture", ""),
        (
            json.dumps({"schema_version": 1, "ranks": [{"file": name} for name in "abcd"]}),
            "a report already made by report --json",
            ": a, b and 2 more",
        ),
    ],
)
def test_what_a_verb_wrote_is_named(text, what, files):
    words = f"is {what}, not a capture; give the capture instead{files}"
    assert result_words(text.encode()) == words


@pytest.mark.parametrize(
    "text",
    [
        '{"schema_version": 1, "capture": {"file": "a"}',  # cut off
        '{"capture": {"file": "a"}}',
        '{"schema_version": 1}',
        "[1, 2]",
        '{"schemaVersion": 1, "deviceProperties": []}',
    ],
)
def test_other_json_is_not(text):
    assert result_words(text.encode()) is None
