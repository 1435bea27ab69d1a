"""cli.version: the checkout's version, or that of the installation."""

import tomllib
from importlib import metadata

from cli import version
from profiling import __main__ as profiling
from tests.paths import PROJECT


def test_the_version_is_that_of_the_checkout(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["profiling", "--version"])
    profiling.main()
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    assert capsys.readouterr().out == f"{project['name']} {project['version']}\n"


def test_without_a_checkout_it_is_that_of_the_installation(monkeypatch, tmp_path):
    monkeypatch.setattr(version, "PYPROJECT", tmp_path / "pyproject.toml")
    monkeypatch.setattr(metadata, "version", {"profiling-nanogpt": "1.2.3"}.__getitem__)
    assert version.version() == "1.2.3"


def test_nothing_else_in_the_sources_names_it():
    named = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    sources = [*(PROJECT / "cli").glob("*.py"), *(PROJECT / "profiling").rglob("*.py")]
    assert not [path for path in sources if f'"{named}"' in path.read_text("utf-8")]
