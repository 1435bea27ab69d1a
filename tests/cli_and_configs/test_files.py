"""Paths in messages."""

from pathlib import Path

from cli.files import from_here


def test_a_path_below_the_working_directory_is_told_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert from_here(tmp_path / "out/wandb/offline-run-1") == "out/wandb/offline-run-1"
    assert from_here(Path("/elsewhere/run")) == "/elsewhere/run"
