"""Lock of a folder, between real processes: its owner, refusals, and how it comes free."""

import contextlib
import errno
import fcntl
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cli.lock
from cli.files import make_folder
from cli.lock import NAME, InUse, Lock, check_free
from tests.paths import PROJECT

HOLD = """
import os, subprocess, sys, time
from multiprocessing import get_context
from pathlib import Path
from cli.lock import Lock

def sleep():
    time.sleep(60)

with Lock(Path(sys.argv[1]), "out_dir=X"):
    children = []
    if "forked" in sys.argv:
        children.append(get_context("fork").Process(target=sleep))
        children[-1].start()
    if "executed" in sys.argv:
        children.append(subprocess.Popen(["sleep", "60"], close_fds=False))
    print(*(child.pid for child in children), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def hold(tmp_path):
    """hold(folder, *children): a process that owns it, and the numbers of its children."""
    started: list[subprocess.Popen] = []
    orphans: list[int] = []

    def start(folder: Path, *children: str) -> tuple[subprocess.Popen, list[int]]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, folder, *children],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == len(children)
        orphans.extend(pids)
        return process, pids

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
    for pid in orphans:
        os.kill(pid, signal.SIGKILL)


def owner(folder: Path) -> str:
    return (folder / NAME).read_text().strip()


def test_the_second_is_refused_with_process_host_and_since_when(tmp_path, hold):
    folder = tmp_path / "out"
    process, _ = hold(folder)
    with pytest.raises(InUse) as refusal, Lock(folder, f"out_dir={folder}"):
        pass
    host = os.uname().nodename
    pattern = rf"out_dir={folder}: in use by process {process.pid} on host {host} since 20\d\d-"
    refusal.match(pattern + r".*; give another folder, or end that process first")
    with pytest.raises(InUse, match=f"^X: in use by process {process.pid} on"):
        check_free(folder, "X")
    assert owner(folder).startswith(f"process {process.pid} on host ")


def test_the_name_of_a_process_that_was_killed_is_not_taken_for_the_owner_s(tmp_path, hold):
    """The owner writes its own a moment after it has the lock."""
    folder = tmp_path / "out"
    hold(folder)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    name = owner(folder).split(" ", 2)
    (folder / NAME).write_text(f"process {dead.pid} {name[2]}\n")
    with pytest.raises(InUse, match="^X: in use by another process; give another folder"):
        check_free(folder, "X")


def wait_until_free(folder: Path) -> None:
    """A child that was forked a moment ago may not have closed the lock yet. Raises InUse."""
    for _ in range(200):
        with contextlib.suppress(InUse):
            return check_free(folder, "X")
        time.sleep(0.01)
    check_free(folder, "X")


@pytest.mark.parametrize("children", [[], ["forked"], ["executed"], ["forked", "executed"]])
def test_sigkill_sets_it_free_whatever_children_live_on(tmp_path, hold, children):
    process, orphans = hold(tmp_path / "out", *children)
    process.kill()
    process.wait()
    for pid in orphans:
        os.kill(pid, 0)  # it lives
    wait_until_free(tmp_path / "out")
    with Lock(tmp_path / "out", "X"):
        assert owner(tmp_path / "out").startswith(f"process {os.getpid()} on host ")


def test_a_child_keeps_and_frees_nothing(tmp_path):
    """A fork that leaves the block, as after an exception, must not free what is its parent's."""
    with Lock(tmp_path / "out", "X") as lock:
        pid = os.fork()
        if not pid:
            lock.__exit__(None, None, None)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert lock.is_held() and lock.path.exists()
        with pytest.raises(InUse):
            check_free(tmp_path / "out", "X")


def test_nothing_stays_of_it(tmp_path):
    (tmp_path / "there").mkdir()
    for folder in (tmp_path / "there", tmp_path / "new" / "deep"):
        with Lock(folder, "X"):
            assert (folder / NAME).exists()
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    with Lock(tmp_path / "new", "X"):
        (tmp_path / "new" / "kept").touch()
    assert (tmp_path / "new" / "kept").exists() and not (tmp_path / "new" / NAME).exists()


def contend(folder: Path, barrier, results) -> None:
    for _ in range(20):
        barrier.wait()
        try:
            with Lock(folder, "X"):
                others = (folder / "owned").exists()
                (folder / "owned").touch()
                time.sleep(0.001)
                (folder / "owned").unlink()
                results.put("two" if others else "one")
        except InUse as error:
            results.put("refused" if "in use by process " in str(error) else "nameless")
        barrier.wait()


def test_of_several_that_start_together_one_at_a_time_owns_it(tmp_path):
    """The folder comes and goes under them with each owner."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(3), context.SimpleQueue()
    arguments = (tmp_path / "out", barrier, results)
    processes = [context.Process(target=contend, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    seen = [results.get() for _ in range(60)]
    for process in processes:
        process.join()
    assert set(seen) <= {"one", "refused"}
    assert seen.count("one") >= 20 and not (tmp_path / "out" / NAME).exists()


def test_a_deleted_lock_is_noticed_and_taken_again(tmp_path, hold):
    folder = tmp_path / "out"
    with Lock(folder, "X") as lock:
        lock.path.unlink()
        folder.rmdir()
        assert not lock.is_held()
        lock.take()
        assert lock.is_held() and folder.is_dir()
        lock.path.unlink()
        process, _ = hold(folder)
        with pytest.raises(InUse, match=f"process {process.pid} on"):
            lock.take()
        assert not lock.is_held()
    assert owner(folder).startswith(f"process {process.pid} "), "it is another's by now"


def test_a_file_system_without_locks_is_said_once(tmp_path, monkeypatch, caplog):
    def without(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", without)
    cli.lock.warn_without_locks.cache_clear()
    for name in ("a", "b"):
        with Lock(tmp_path / name, f"out_dir={name}"):
            check_free(tmp_path / name, "X")
    (warning,) = caplog.messages
    assert "no locks (Function not implemented)" in warning


@pytest.mark.parametrize("host, said", [("elsewhere", 1), (os.uname().nodename, 0)])
def test_a_name_of_another_host_is_said(tmp_path, caplog, host, said):
    """Killed there, or alive where this file system's locks do not reach: nobody can tell here."""
    caplog.set_level(logging.WARNING)
    (tmp_path / NAME).write_text(f"process 7 on host {host} since 2026-01-02 03:04:05+00:00\n")
    with Lock(tmp_path, "out_dir=X"):
        pass
    assert len(caplog.messages) == said
    assert all("names process 7 on host elsewhere since 2026-01-02" in m for m in caplog.messages)


@pytest.mark.parametrize("content", [b"", b"\xff\x1b[2J", b"x" * 5000])
def test_any_content_is_overwritten(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    with Lock(tmp_path, "X"):
        assert owner(tmp_path).startswith(f"process {os.getpid()} on host ")


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with (
        pytest.raises(
            ValueError, match="^out_dir=file: cannot write to this folder: this path is a file"
        ),
        Lock(tmp_path / "file", "out_dir=file"),
    ):
        pass
    (link := tmp_path / "link").symlink_to(tmp_path / "nowhere")
    said = "is a link to a place that does not exist"
    with (
        pytest.raises(ValueError, match=f"^X: cannot write to this folder: this path {said}"),
        Lock(link, "X"),
    ):
        pass
    with pytest.raises(ValueError, match=f"^{link}: {said}; name a folder"):
        make_folder(link)
    link.unlink()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with (
        pytest.raises(ValueError, match="^out_dir=new: cannot write to this folder: No space left"),
        Lock(tmp_path / "new", "out_dir=new"),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert not cli.lock.held_descriptors
