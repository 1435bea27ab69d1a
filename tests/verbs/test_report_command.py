"""`python -m profiling report` and `export`: outputs, messages, exit codes."""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli import files
from profiling.analysis.open_report import open_report
from profiling.report.document import Table, shown_blocks
from profiling.report.single.document import report_document
from profiling.shared.json_records import to_json
from profiling.verbs import export
from profiling.verbs import report as command
from tests.helpers.reports import MANIFEST
from tests.paths import CAPTURES, PROJECT

CAPTURE = str(CAPTURES / "flash_compile.sqlite.gz")


def test_without_an_output_one_screen_is_printed_and_the_verdict_last(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert command.main([CAPTURE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 24 <= len(lines) <= 40 and max(map(len, lines)) <= 100
    assert lines[0] == "flash_compile.sqlite.gz · NVIDIA H200"
    assert lines[-1] == lines[3] and lines[3].startswith("Bound by GPU compute")
    assert any("--full prints the whole" in line for line in lines)


def test_in_full_all_is_printed_with_what_to_do_next_and_the_verdict_last(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert command.main([CAPTURE, "--full"]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert len(lines) > 90
    for section in report_document(open_report(Path(CAPTURE)).report).sections:
        for block in shown_blocks(section.blocks, "page"):
            title = block.title if isinstance(block, Table) else getattr(block, "heading", None)
            on_page_alone = not isinstance(block, Table) and "terminal" not in block.places
            assert not title or on_page_alone or f"\n{title}\n" in said, title
    assert f"python -m profiling export {CAPTURE} --perfetto" in said
    assert lines[-1] == lines[3] and lines[3].startswith("Bound by GPU compute")


def test_json_on_stdout_is_nothing_but_json(capsys):
    assert command.main([CAPTURE, "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema_version"] == 1 and report["window"]["steps"] == 20


def test_json_alone_imports_nothing_that_draws(tmp_path):
    code = f"""
import sys
from profiling.verbs import report
report.main([{CAPTURE!r}, "--json", {str(tmp_path / "r.json")!r}])
print(*sorted({{"jinja2", "plotly", "rich", "webbrowser"}} & sys.modules.keys()), sep=",")
"""
    said = subprocess.check_output([sys.executable, "-c", code], cwd=PROJECT, text=True)
    assert said.startswith("Bound by") and said.splitlines()[2] == ""


def test_every_output_in_one_go_tells_the_verdict_and_the_files(tmp_path, capsys):
    paths = [str(tmp_path / name) for name in ("r.json", "r.md", "r.html")]
    command.main([CAPTURE, "--json", paths[0], "--markdown", paths[1], "--html", paths[2]])
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("Bound by") and said[1] == "written: " + ", ".join(paths)
    assert "<!doctype html>" in Path(paths[2]).read_text("utf-8")[:20]
    assert Path(paths[1]).read_text("utf-8").startswith("## ")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.html", "r.json", "r.md"]


def test_a_run_folder_is_its_newest_capture_with_its_manifest(tmp_path, capsys):
    folder = tmp_path / "out" / "profile"
    folder.mkdir(parents=True)
    shutil.copy(CAPTURES / "slow_eager.sqlite.gz", folder / "nsys.sqlite.gz")
    (folder / "window-1.json").write_text(to_json(MANIFEST))
    assert command.main([str(tmp_path / "out"), "--json", "-"]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["capture"]["manifest"] == "window-1.json" and report["roofline"]["mfu"] > 0.05
    assert "reading" in err


def test_a_manifest_can_lie_elsewhere(tmp_path, capsys):
    manifest = tmp_path / "other.json"
    manifest.write_text(to_json(MANIFEST))
    command.main([CAPTURE, "--manifest", str(manifest), "--json", "-"])
    assert json.loads(capsys.readouterr().out)["run"]["config"]["n_layer"] == 6


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "CAPTURE"),
        (["nowhere.sqlite"], "nowhere.sqlite"),
        ([""], "CAPTURE: is empty; name a folder or a file"),
        ([CAPTURE, "--phases", ""], "--phases: is empty; give one or more, separated by commas"),
        ([CAPTURE, "--htlm", "x"], "--htlm"),
        ([CAPTURE, "--open"], "--html"),
        ([CAPTURE, "--full", "--json", "-"], "--full"),
        ([CAPTURE, "--device", "7"], "device=7"),
        ([CAPTURE, "--device", "x"], "--device"),
        ([CAPTURE, "--step", "nothing"], "step=nothing"),
        ([CAPTURE, "--phases", "nothing"], "phases=nothing"),
        ([CAPTURE, "--json", "-", "--html", "-"], "same FILE"),
        ([CAPTURE, "--json", "/nowhere/at/all.json"], "does not exist; create it first"),
        ([CAPTURE, "--json", "."], r"\.: the name must end in \.json"),
        ([CAPTURE, "--manifest", "nowhere.json"], "nowhere.json"),
    ],
)
def test_a_mistake_is_told_in_one_line(words, told):
    with pytest.raises(ValueError, match=told) as error:
        command.main(words)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_verbs_are_listed_and_a_mistake_exits_with_2(tmp_path):
    def run(*words):
        command = [sys.executable, "-m", "profiling", *words]
        return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60)

    listed = run("--help").stdout
    assert "\n  report " in listed and "\n  export " in listed
    wrong = run("report", str(tmp_path / "no.sqlite"))
    assert wrong.returncode == 2 and wrong.stdout == ""
    assert len(wrong.stderr.splitlines()) == 1 and "no.sqlite" in wrong.stderr
    assert "--perfetto" in run("export", "--help").stdout


def test_export_writes_either_kind_and_refuses_other_names(tmp_path, capsys):
    for name in ("t.json", "t.json.gz"):
        assert export.main([CAPTURE, "--perfetto", str(tmp_path / name)]) == 0
        assert "ui.perfetto.dev" in capsys.readouterr().out
    plain = (tmp_path / "t.json").read_bytes()
    assert gzip.decompress((tmp_path / "t.json.gz").read_bytes()) == plain
    export.main([CAPTURE, "--perfetto", str(tmp_path / "again.json.gz")])
    assert (tmp_path / "again.json.gz").read_bytes() == (tmp_path / "t.json.gz").read_bytes()
    with pytest.raises(ValueError, match="must end in .json"):
        export.main([CAPTURE, "--perfetto", str(tmp_path / "t.txt")])
    with pytest.raises(ValueError, match="--perfetto"):
        export.main([CAPTURE])


def test_what_fails_halfway_leaves_the_old_file(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(KeyError), files.replacement_for(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    files.write_text(path, "new")
    assert path.read_text() == "new"
