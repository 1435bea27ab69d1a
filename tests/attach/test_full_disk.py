"""Files of the hook on a full disk: none is left half-written."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from _profiling_attach.run_files import RunFiles
from _profiling_attach.window import Window

from tests.helpers.full_disk import files_no_larger_than

LARGE = b"x" * 100_000


def test_a_file_of_the_run_is_whole_or_not_there(tmp_path):
    files = RunFiles.__new__(RunFiles)
    files.folder = str(tmp_path)
    with files_no_larger_than(10_000), pytest.raises(OSError, match="too large"):
        files.write("profile/window-1.json", ["x" * 100_000])
    assert list(tmp_path.rglob("*.*")) == []
    files.write("profile/window-1.json", [1])
    assert [path.name for path in tmp_path.rglob("*.*")] == ["window-1.json"]


def test_a_memory_snapshot_is_whole_or_not_there_and_its_history_ends(tmp_path):
    histories = []
    memory = SimpleNamespace(
        _dump_snapshot=lambda path: Path(path).write_bytes(LARGE),
        _record_memory_history=histories.append,
    )
    window = Window(SimpleNamespace(cuda=SimpleNamespace(memory=memory)), "memory", 0, 1)
    window.own_history = True
    with files_no_larger_than(10_000), pytest.raises(OSError, match="too large"):
        window.write_allocations(str(tmp_path / "window-1"))
    assert list(tmp_path.iterdir()) == [] and histories == [None]
    assert window.write_allocations(str(tmp_path / "window-1")) == ["window-1.memory.pickle"]


def test_a_trace_is_whole_or_not_there(tmp_path):
    profiler = SimpleNamespace(export_chrome_trace=lambda path: Path(path).write_bytes(LARGE))
    window = Window(None, "torch", 0, 1)
    with files_no_larger_than(10), pytest.raises(OSError, match="too large"):
        window.write_trace(profiler, str(tmp_path / "window-1"))
    assert list(tmp_path.iterdir()) == []
    assert window.write_trace(profiler, str(tmp_path / "window-1")) == ["window-1.trace.json.gz"]
    assert [path.name for path in tmp_path.iterdir()] == ["window-1.trace.json.gz"]
