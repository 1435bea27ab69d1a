"""Paths in messages."""

from pathlib import Path

from cli.files import short_path


def test_a_path_below_the_working_directory_is_told_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert short_path(tmp_path / "out/wandb/offline-run-1") == "out/wandb/offline-run-1"
    assert short_path(Path("/elsewhere/run")) == "/elsewhere/run"
