"""The functions that `from profiling import ...` gives say what the verbs say."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import profiling
from profiling import ab, compare, open_capture, run
from profiling.__main__ import main
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.records import Report
from profiling.verbs.compare import main as compare_verb
from profiling.verbs.report import main as report_verb
from tests.paths import CAPTURES, PROJECT

SLOW, FLASH = CAPTURES / "slow_compile.sqlite.gz", CAPTURES / "flash_compile.sqlite.gz"
RANKS = CAPTURES / "ranks" / "hidden_waits"
RUNS = PROJECT / "profiling" / "examples" / "runs"
PYTHON = sys.executable
LIBRARY = (PROJECT / "docs" / "library.md").read_text("utf-8")
FENCE = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize(("path", "kind"), [(SLOW, Report), (RANKS, RanksReport)])
def test_a_capture_is_reported_as_by_the_verb(path, kind, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    report_verb([str(path), "--json", str(tmp_path / "report.json")])
    line = capsys.readouterr().out.splitlines()[0]
    opened = open_capture(path)
    assert isinstance(opened.record, kind)
    assert opened.to_json() == (tmp_path / "report.json").read_text()
    assert opened.sentence == line and line in repr(opened)
    assert opened.verdict == ("gpu_memory" if kind is Report else "straggler")
    report_verb([str(path)])
    printed = capsys.readouterr().out
    assert printed.startswith(opened.summary())
    opened.show()  # not in a notebook
    assert capsys.readouterr().out == opened.summary()
    assert opened._repr_markdown_().startswith(f"## {line.replace('_', '')}")


def test_a_comparison_is_that_of_the_verb(tmp_path):
    asked = ["--equal-within=30", "--step=forward", "--json", str(tmp_path / "comparison.json")]
    compare_verb([str(SLOW), str(FLASH), *asked])
    written = json.loads((tmp_path / "comparison.json").read_text())
    compared = compare(SLOW, FLASH, equal_within_percent=30, step="forward")
    assert json.loads(compared.to_json()) == written
    assert written["equal_within_percent"] == 30 and compared.verdict == written["verdict"]
    assert compared.ratio == written["step_ms"]["ratio"]
    assert list(compared.interval) == written["step_ms"]["ci95"]
    compared.html(tmp_path / "comparison.html")
    assert "flash_compile against slow_compile" in (tmp_path / "comparison.html").read_text("utf-8")


def test_steps_phases_and_device_can_be_chosen():
    chosen = open_capture(SLOW, step="forward", phases=["log"], device=0).record
    assert chosen.window.step_name == "forward"
    with pytest.raises(ValueError, match="^phases=nixda: no range has this name; there are "):
        open_capture(SLOW, phases="nixda")  # one name, no letters
    with pytest.raises(ValueError, match=r"phases=bacward: .*; did you mean backward\?$"):
        open_capture(SLOW, phases=["forward", "bacward"])
    with pytest.raises(ValueError, match=r"step=iteraton: .*; did you mean iteration\?$"):
        open_capture(SLOW, step="iteraton")  # the ranges are called iteration 10, ...


def test_a_folder_with_files_of_others_is_no_place_for_an_experiment(tmp_path):
    (tmp_path / "mine.txt").touch()
    said = f"^out={tmp_path}: contains mine.txt, which no experiment has written; give another fo"
    with pytest.raises(ValueError, match=said):
        ab("python a.py", "python b.py", out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("path", ["--help", "-x.json"])
def test_a_path_is_no_flag(path):
    for call in (lambda: open_capture(path), lambda: compare(path, path)):
        with pytest.raises(ValueError, match=f"^{path}: no such file or folder$"):
            call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: open_capture("nowhere.sqlite"), "report nowhere.sqlite"),
        (lambda: open_capture(SLOW, device=7), f"report {SLOW} --device 7"),
        (lambda: open_capture(RANKS, process=5), f"report {RANKS} --process 5"),
        (lambda: compare(SLOW, "nowhere"), f"compare {SLOW} nowhere"),
        (
            lambda: compare(SLOW, CAPTURES / "flash_eager.trace.json.gz"),
            f"compare {SLOW} {CAPTURES / 'flash_eager.trace.json.gz'}",
        ),
        (lambda: run(""), "run --"),
        (lambda: run("python a.py", steps=0), "run --steps=0 -- python a.py"),
        (lambda: ab("python a.py", "python b.py", repeats=1), "ab --repeats=1 -- a ::: b"),
    ],
)
def test_a_mistake_is_a_value_error_with_the_line_of_the_command(call, words, monkeypatch, capsys):
    with pytest.raises(ValueError) as raised:
        call()
    monkeypatch.setattr(sys, "argv", ["profiling", *words.split()])
    monkeypatch.chdir(PROJECT)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f" error: {raised.value}\n")


def test_commands_that_cannot_run_are_mistakes_too(tmp_path):
    for call in (lambda: run("nixda a.py"), lambda: ab("nixda a.py", "python b.py")):
        with pytest.raises(ValueError, match="^nixda: command not found$"):
            call()
    with pytest.raises(ValueError, match="ended with exit code 3$"):
        run([PYTHON, "-c", "raise SystemExit(3)"], out=tmp_path / "run")
    with pytest.raises(ValueError, match=r"-c pass '--token=\[hidden\]': nothing was captured"):
        run([PYTHON, "-c", "pass", "--token=planted"], out=tmp_path / "run")


def test_pages_are_written_where_they_may_be(tmp_path):
    opened = open_capture(SLOW)
    for name in ("page.txt", "nowhere/page.html"):
        with pytest.raises(ValueError, match=name):
            opened.html(tmp_path / name)


def test_importing_the_package_imports_none_of_it():
    asked = "import sys; from profiling import attach; print(*sys.modules)"
    modules = subprocess.check_output([PYTHON, "-c", asked], cwd=PROJECT, text=True).split()
    own = [name for name in modules if name.split(".")[0] in ("profiling", "cli")]
    assert own == ["profiling", "profiling.attach"]
    assert set(profiling.__all__) < set(dir(profiling))
    with pytest.raises(AttributeError, match="has no attribute 'nixda'"):
        _ = profiling.nixda


def test_the_five_have_types_and_docstrings():
    for name in profiling.__all__:
        function = getattr(profiling, name)
        signature = inspect.signature(function)
        annotations = [each.annotation for each in signature.parameters.values()]
        assert inspect.Parameter.empty not in [*annotations, signature.return_annotation]
        assert "Raises ValueError" in function.__doc__ and f"`{name}(" in LIBRARY


def test_the_snippets_of_the_page_run(tmp_path, monkeypatch, capsys):
    for name, target in (("slow", SLOW), ("flash", FLASH), ("out-flash", RUNS / "flash-1")):
        place = tmp_path / (name if target.is_dir() else f"{name}.sqlite.gz")
        place.symlink_to(target)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for snippet in FENCE.findall(LIBRARY):
        if "train_mine.py" in snippet:  # notebooks/first_capture.ipynb runs such commands
            continue
        exec(re.sub(r'"((?:slow|flash)\.sqlite)"', r'"\1.gz"', snippet), names)
    said = capsys.readouterr().out
    for shown in re.findall(r"^print\(.*\)  # (.*)$", LIBRARY, re.M):
        assert shown in said
    assert "nowhere.sqlite: no such file or folder" in said
    assert Path("comparison.html").is_file()
