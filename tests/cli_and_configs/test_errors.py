"""How errors of the disk are told."""

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
