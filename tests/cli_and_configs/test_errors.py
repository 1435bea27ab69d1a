"""Messages about errors of the disk."""

import errno
import os
from pathlib import Path

import pytest

from cli.errors import user_errors


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT, errno.EIO, errno.EFBIG])
def test_a_file_out_of_reach_is_told_in_a_line(number, capsys):
    with pytest.raises(SystemExit) as ended, user_errors():
        raise OSError(number, os.strerror(number), "/else/where")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "/else/where: cannot be " in said
    assert said.endswith(f"{os.strerror(number)}\n")


def test_where_a_name_alone_is_asked_for(capsys):
    with pytest.raises(SystemExit), user_errors():
        Path("a" * 300).exists()
    assert "File name too long" in capsys.readouterr().err


@pytest.mark.parametrize("error", [OSError(errno.EACCES, "no file's"), FileNotFoundError("a bug")])
def test_all_else_is_a_bug(error):
    with pytest.raises(OSError), user_errors():
        raise error


def test_torchrun_gives_a_mistake_as_the_reason(tmp_path, monkeypatch, capsys):
    """Torchrun reads it in the file of a rank that failed, and ends its own traceback with it."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    with pytest.raises(SystemExit), user_errors():
        raise ValueError("n_layer=-1: must be at least 1")
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=2, error_file=str(file))
    assert "traceback : n_layer=-1: must be at least 1\n" in str(
        ChildFailedError("train.py", {0: failure})
    )
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "nowhere" / "error.json"))
    with pytest.raises(SystemExit), user_errors():
        raise ValueError("another")
    assert capsys.readouterr().err.splitlines()[-1].endswith("error: another")
