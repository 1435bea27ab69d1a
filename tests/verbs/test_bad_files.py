"""Files and folders that a verb cannot use: the message names each and says what to give."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.paths import CAPTURES

CAPTURE = str(CAPTURES / "slow_eager.sqlite.gz")
WINDOW = "give the window-N.json that was written beside the capture"
LAB = "give a file of python -m profiling attention --backward --json FILE"
PAGE = "give a .ncu-rep, or a page of it as .csv"
RUN = "give the out_dir of a run"
SNAPSHOT = "record a snapshot with profile=memory"
SITTING = "20260101T000000Z-1.json"
OTHER = "give another folder with --out"
AGAIN = "copy or capture it again"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Make the current folder one with a text, JSON that is cut off, and an empty folder."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("hello\n")
    Path("cut.json").write_text('{"schema_version": 1, "capture": {')
    Path("cut.trace.json").write_text('{"traceEvents": [{"ph": "X", "cat": "kern')
    Path("cut.trace.json.gz").write_bytes(b"\x1f\x8b\x08\x00damaged")
    Path("empty").mkdir()
    for path in ("out/results.json", "out/bench.json", f"kept/main/{SITTING}"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text('{"schema_version": 1')


@pytest.mark.parametrize(
    ("words", "what", "cure"),
    [
        (f"report {CAPTURE} --manifest none", "--manifest none: cannot be read: No such", WINDOW),
        (f"report {CAPTURE} --manifest cut.json", "--manifest cut.json: is damaged", WINDOW),
        (f"scale {CAPTURE} --gpus 8 --manifest empty", "--manifest empty: cannot be read", WINDOW),
        (f"whatif {CAPTURE} --swap attention=flash --lab text.txt", "--lab text.txt: is dam", LAB),
        (f"whatif {CAPTURE} --swap attention=flash --lab none", "--lab none: cannot be read", LAB),
        ("ncu empty", "empty: is a folder", PAGE),
        ("ncu none.csv", "none.csv: no such file", PAGE),
        (f"log {CAPTURE} --run none", "--run none: no such folder", RUN),
        (f"log {CAPTURE} --run text.txt", "--run text.txt: is a file, not a folder", RUN),
        ("report none --fit", "--fit: none does not exist", SNAPSHOT),
        ("mcp --skill text.txt", "text.txt/profiling-nanogpt: is a file or has a", "name a folder"),
        ("export cut.json --perfetto o.json", 'it has no "traceEvents"', "give a trace of torch"),
        ("export cut.trace.json --perfetto o.json", "cut.trace.json: is cut off", AGAIN),
        ("export cut.trace.json.gz --perfetto o.json", "cut.trace.json.gz: is cut off", AGAIN),
        ("ab attention=slow,math --out out", "out/results.json: is damaged", OTHER),
        ("bench device=cpu --out out", "out/bench.json: is damaged", OTHER),
        ("history kept", f"kept/main/{SITTING}: is damaged", "restore this file, or remove it"),
        ("scrub text.txt -o s.json", "text.txt: cannot be scrubbed", "give a .sqlite"),
        (
            "ab --against baseline:x --baselines empty -- python x.py",
            "empty: has no baseline x",
            "make it: python -m profiling baseline save x -- COMMAND",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_to_give(files, words, what, cure):
    verb, *rest = words.split()
    with pytest.raises(ValueError, match=f"{re.escape(what)}.*; .*{re.escape(cure)}") as error:
        import_module(f"profiling.verbs.{verb}").main(rest)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "writer"),
    [
        ("ab attention=slow,math --out mine", "experiment"),
        ("ab --out mine -- python x.py ::: python y.py", "experiment"),
        ("baseline save main --out mine -- python x.py", "experiment"),
        ("bench device=cpu --out mine", "bench"),
    ],
)
def test_a_folder_with_files_of_others_is_refused_and_stays(files, words, writer):
    Path("mine").mkdir()
    Path("mine/report.html").write_text("mine")
    verb, *rest = words.split()
    said = f"^--out mine: contains report.html, which no {writer} has written; give another folder$"
    with pytest.raises(ValueError, match=said):
        import_module(f"profiling.verbs.{verb}").main(rest)
    assert Path("mine/report.html").read_text() == "mine" and len(list(Path("mine").iterdir())) == 1


def test_a_scrubbed_copy_says_of_which_capture_of_a_folder(files, capsys):
    command = import_module("profiling.verbs.scrub")
    Path("empty", "one.sqlite.gz").write_bytes(Path(CAPTURE).read_bytes())
    assert command.main(["empty", "-o", "copy.sqlite.gz"]) == 0
    said = capsys.readouterr().out
    assert said == "copy.sqlite.gz: scrubbed copy of empty/one.sqlite.gz\n"
