"""Printed commands begin as the user's own: python -m profiling, or the installed program."""

import ast
import logging
import os
import runpy
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from cli.errors import user_errors
from cli.program import COMMAND, VARIABLE, as_called, use_installed_program
from profiling.__main__ import VERBS
from profiling.launch import reports
from profiling.report.document import Bullets
from profiling.report.renderers import terminal
from profiling.verbs import compare, demo, report
from tests.paths import CAPTURES, PROJECT
from training.metrics.console import PlainFormatter

CAPTURE = str(CAPTURES / "flash_compile.sqlite.gz")
OTHER = str(CAPTURES / "slow_compile.sqlite.gz")


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setenv(VARIABLE, "profiling-nanogpt")


def checkouts(said: str) -> list[str]:
    """Commands in it that only a checkout has."""
    return [match[0] for match in COMMAND.finditer(said)]


@pytest.mark.parametrize(
    "text, told",
    [
        ("next: python -m profiling report out-x", "next: profiling-nanogpt report out-x"),
        ("python train.py config/a.yaml", "profiling-nanogpt train config/a.yaml"),
        ("see python -m train --help", "see profiling-nanogpt train --help"),
        ("-o NAME python /lib/sample.py a=1", "-o NAME profiling-nanogpt sample a=1"),
        ("ncu -- python my_train.py", "ncu -- python my_train.py"),
        ("python -m data.prepare x", "profiling-nanogpt data.prepare x"),
        ("python -m training.export", "profiling-nanogpt training.export"),
        ("torchrun --standalone train.py x", "torchrun --standalone -m train x"),
        ("python -m profilings", "python -m profilings"),
    ],
)
def test_commands_are_spelled_as_the_user_calls_them(text, told, installed, monkeypatch):
    assert as_called(text) == told
    monkeypatch.delenv(VARIABLE)
    assert as_called(text) == text


def test_a_program_that_is_not_on_path_is_called_by_its_own(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")  # so that it is put back
    monkeypatch.setenv("PATH", "/usr/bin:/opt/env/bin")
    use_installed_program("/opt/env/bin/profiling-nanogpt")
    assert as_called("python -m profiling demo") == "profiling-nanogpt demo"
    use_installed_program("/my envs/bin/profiling-nanogpt")
    assert as_called("python train.py") == "'/my envs/bin/profiling-nanogpt' train"


def test_wandb_is_called_by_python_where_it_is_not_on_path(monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = "W&B, offline so far: wandb sync out/wandb/run"
    assert as_called(said).endswith(f": {shlex.quote(sys.executable)} -m wandb sync out/wandb/run")
    assert as_called(as_called(said)) == as_called(said)  # as a help text is asked twice
    (tmp_path / "wandb").write_text("#!/bin/sh\n")
    (tmp_path / "wandb").chmod(0o755)
    assert as_called(said) == said


@pytest.mark.slow
@pytest.mark.parametrize(
    "typed, offered",
    [
        ("re", ["report"]),
        ("tr", ["train", "training.export", "trigger"]),
        ("train attention=fl", ["attention=flash", "attention=flex"]),
        ("train shakespeare_b", ["shakespeare_bpe"]),
        ("report out", []),
    ],
)
def test_bash_completes_the_installed_program(typed, offered, tmp_path):
    program = tmp_path / "profiling-nanogpt"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(PROJECT)!r})\n"
        "from profiling.script import main\nmain()\n"
    )
    program.chmod(0o755)
    words = ["profiling-nanogpt", *typed.split()]
    script = (
        'eval "$(profiling-nanogpt -sc install=bash)"\n'
        f"COMP_LINE='{' '.join(words)}' COMP_POINT=${{#COMP_LINE}} COMP_WORDS=({' '.join(words)}) "
        f"COMP_CWORD={len(words) - 1}\n_profiling_nanogpt\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environ = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_fits_its_window_and_has_examples(verb, installed, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        import_module(f"profiling.verbs.{verb}").main(["--help"])
    said = capsys.readouterr().out
    assert f"profiling-nanogpt {verb} " in said and checkouts(said) == []
    assert max(map(len, said.splitlines())) <= 80 and "\nexamples\n  " in said


def test_help_needs_no_wide_window(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1")
    with pytest.raises(SystemExit):
        report.main(["--help"])
    assert "Shows" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("program", ["profiling", "train", "sample"])
def test_help_and_mistakes_of_every_program(program, installed, capsys, monkeypatch):
    for words in (["--help"], ["reprot"]):
        monkeypatch.setattr(sys, "argv", [program, *words])
        monkeypatch.setattr("cli.process.begin", lambda: None)
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
            raise SystemExit(0)
        assert ended.value.code == (0 if words == ["--help"] else 2)
        said = "".join(capsys.readouterr())
        assert said and checkouts(said) == []
        assert words != ["--help"] or "profiling-nanogpt" in said
        assert program != "profiling" or max(map(len, said.splitlines())) <= 80


def test_results_and_what_to_do_next(installed, capsys):
    report.main([CAPTURE, "--full"])
    compare.main([OTHER, CAPTURE])
    print(demo.next_steps(None))
    nsys, made = SimpleNamespace(path="nsys"), Path("nsys.nsys-rep")
    print(*reports.next_steps(nsys, made, made.with_suffix(".sqlite"), True), sep="\n")
    said = capsys.readouterr().out
    assert checkouts(said) == []
    for verb in ("report", "compare", "export", "doctor"):
        assert f"  profiling-nanogpt {verb}" in said


def test_advice_mistakes_and_log_lines(installed, capsys):
    advice = ["See what the compiler made: python -m profiling compiled."]
    terminal.show_blocks([Bullets("Next", advice)], Console(width=80))
    with pytest.raises(SystemExit), user_errors():
        raise ValueError("x: wrong; write python train.py y")
    said = capsys.readouterr()
    assert "profiling-nanogpt compiled." in said.out
    assert "write profiling-nanogpt train y" in said.err
    record = logging.LogRecord("train", 20, "", 0, "next: %s", ("python -m profiling log x",), None)
    assert PlainFormatter().format(record) == "next: profiling-nanogpt log x"


def test_what_is_written_for_later_readers_keeps_one_spelling(installed, tmp_path):
    report.main([CAPTURE, "--markdown", str(tmp_path / "r.md"), "--html", str(tmp_path / "r.html")])
    for page in tmp_path.iterdir():
        assert "profiling-nanogpt " not in page.read_text("utf-8")


@pytest.mark.slow
def test_no_command_is_printed_as_it_stands_in_the_source():
    """A text with a command goes through as_called where it is printed."""
    folders = ("cli", "configs", "kernels", "profiling", "training")
    sources = [path for folder in folders for path in (PROJECT / folder).rglob("*.py")]
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
                written = " ".join(map(ast.unparse, node.args))
                assert not checkouts(written) or "as_called(" in written, f"{path}: {written}"
