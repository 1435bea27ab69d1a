"""Outputs of verbs: never over an input or a run's own file; complete or absent."""

import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli import files
from cli.errors import user_errors
from profiling.shared.run_files import RUN_FILES, owner
from profiling.verbs import (
    ab,
    attention,
    compare,
    dashboard,
    export,
    ncu,
    report,
    results,
    scrub,
    square,
)
from tests.helpers.folders import write_run
from tests.paths import CAPTURES, PROJECT

CAPTURE = "flash_eager.trace.json.gz"
VERBS = {"report": report, "compare": compare, "dashboard": dashboard, "export": export}
VERBS |= {"scrub": scrub, "attention": attention, "square": square, "ncu": ncu, "ab": ab}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run's folder `run` in the working directory, with a capture, and a capture by itself."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    (tmp_path / "run" / "ckpt.pt").write_bytes(b"weights")
    (tmp_path / "run" / "profile").mkdir()
    for place in ("run/profile/window-1.trace.json.gz", "c.json.gz"):
        shutil.copy(CAPTURES / CAPTURE, place)
    Path("run/profile/window-1.json").write_text("{}")
    shutil.copy(CAPTURES / "ncu_flash.details.csv", "ncu.csv")
    return tmp_path / "run"


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(words: str, capsys) -> str:
    """The line that tells the one mistake in the command; nothing was written or left over."""
    before = contents(Path.cwd())
    verb, *rest = words.split()
    with pytest.raises(SystemExit) as ended, user_errors():
        VERBS[verb].main(rest)
    said = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and ": error: " in said[-1], said
    assert contents(Path.cwd()) == before
    return said[-1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("report c.json.gz --html c.json.gz", "the name must end in .html"),
        ("report c.json --json c.json", "this command reads"),
        ("report c.json --json soft.json", "this command reads"),
        ("report c.json --json hard.json", "this command reads"),
        ("report c.json --manifest m.json --json m.json", "this command reads"),
        ("report run --html run/ckpt.pt", "the name must end in .html"),
        ("report run --json run/summary.json", "belongs to the run in"),
        ("report run --json run/profile/window-1.json", "belongs to the run in"),
        ("report run --json checkpoint.json", "belongs to the run in"),
        ("report run --json twin.json", "this command reads"),
        ("compare run c.json --json c.json", "this command reads"),
        ("compare run run --json run/metrics.jsonl", "the name must end in .json"),
        ("compare run run --json run/environment.json", "belongs to the run in"),
        ("dashboard run -o run/metrics.jsonl", "the name must end in .html"),
        ("dashboard run -o page.html", "this command reads"),
        ("dashboard --entity e --project p --dry-run run/summary.json", "belongs to the run in"),
        ("export c.json --perfetto c.json", "this command reads"),
        ("export c.json.gz --perfetto c.json.gz", "this command reads"),
        ("export c.json --perfetto run/profile/window-1.trace.json.gz", "belongs to the run in"),
        ("scrub c.json -o c.json", "this command reads"),
        ("scrub c.json -o hard.json", "this command reads"),
        ("scrub c.json -o run/profile/window-1.trace.json.gz", "belongs to the run in"),
        ("scrub c.json -o c.sqlite", "the name must end in .json"),
        ("scrub c.json", "give -o FILE for a copy, or --in-place"),
        ("attention --json run/summary.json", "belongs to the run in"),
        ("square --json run/step_times.json", "belongs to the run in"),
        ("ncu ncu.csv --json run/summary.json", "belongs to the run in"),
        ("ab attention=slow,flash --json run/summary.json", "belongs to the run in"),
        (
            "ab attention=slow,flash --out c.json",
            "cannot write to this folder: this path is a file",
        ),
        ("ab attention=slow,flash --out c.json/x", "cannot write to this folder: Not a directory"),
    ],
)
def test_an_output_is_no_input_and_no_file_of_a_run(run, capsys, words, why):
    shutil.copy("c.json.gz", "c.json")
    Path("m.json").write_text("{}")
    Path("soft.json").symlink_to("c.json")
    os.link("c.json", "hard.json")
    Path("checkpoint.json").symlink_to(run / "summary.json")
    os.link(run / "summary.json", "twin.json")
    os.link(run / "ckpt.pt", "page.html")
    assert why in refused(words, capsys)


def test_what_a_run_leaves_belongs_to_it_and_what_was_asked_for_does_not(run):
    (run / "compiled").mkdir()
    for name in RUN_FILES:
        inside = {
            "profile": "profile/window-2.trace.json",
            "sample": "sample/profile/window-1.json",
        }
        inside |= {"wandb": "wandb/run-1/files/x.json", "tensorboard": "tensorboard/events.1"}
        inside |= {"ckpt_shards": "ckpt_shards/250/__1_0.distcp", "facts": "facts/rank3.json"}
        assert owner(run / inside.get(name, name)) == ("run", run)
    for name in (
        "report.json",
        "profile/nsys.html",
        "profile/report.json",
        "profile/trace.json.gz",
    ):
        assert owner(run / name) is None
    assert owner(run.parent / "summary.json") is None  # no run's folder


def test_an_experiments_record_and_a_texts_vocabulary_are_theirs(tmp_path):
    (tmp_path / "results.json").write_text("{}")
    assert owner(tmp_path / "results.json") == ("experiment", tmp_path)
    assert owner(tmp_path / "report.html") is None
    (tmp_path / "train.bin").write_bytes(b"")
    assert owner(tmp_path / "vocab.json") == ("prepared text", tmp_path)


@pytest.mark.slow
def test_no_columns_are_an_unknown_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert results.console().width == 80


def test_a_page_that_was_asked_for_is_written_anew(run, capsys):
    for _ in range(2):
        assert report.main(["run", "--html", "run/profile/page.html", "--json", "run/r.json"]) == 0
        assert dashboard.main(["run", "-o", "run/dashboard.html"]) == 0
        assert export.main(["run", "--perfetto", "trace.json.gz"]) == 0
        assert scrub.main(["run", "-o", "copy.json.gz"]) == 0
    assert "copy.json.gz: scrubbed" in capsys.readouterr().out


WRITES = [
    "report c.json.gz --html {}/o.html",
    "report c.json.gz --json {}/o.json",
    "report c.json.gz --markdown {}/o.md",
    "compare run run --html {}/o.html",
    "dashboard run -o {}/o.html",
    "export c.json.gz --perfetto {}/o.json",
    "scrub c.json.gz -o {}/o.json",
]


@pytest.mark.parametrize("words", [*WRITES, "ab attention=slow,flash --out {}/ab"])
def test_a_read_only_file_system_is_told_in_a_line(run, capsys, monkeypatch, words):
    """Making, renaming and removing a file fail as the system calls do on such a file system."""

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "o")

    for name in ("TemporaryFile", "mkdtemp"):
        monkeypatch.setattr(files.tempfile, name, refuse)
    for name in ("unlink", "mkdir"):
        monkeypatch.setattr(os, name, refuse)
    said = refused(words.format("."), capsys)
    assert re.search("cannot (be written|write to this folder): Read-only file system", said)


@pytest.mark.parametrize("words", [WRITES[1], *WRITES[4:]])  # each that writes by itself
def test_a_link_stays_and_the_file_that_it_names_is_written(run, words):
    ending = words.partition("/o.")[2]
    Path("elsewhere").mkdir()
    link, real = Path(f"o.{ending}"), Path(f"elsewhere/other.{ending}")
    link.symlink_to(real)
    for _ in range(2):  # it is not there yet, and then it is
        verb, *rest = words.format(".").split()
        VERBS[verb].main(rest)
        assert link.is_symlink() and real.stat().st_size > 100
    assert [path.name for path in real.parent.iterdir()] == [real.name]


@pytest.mark.parametrize(
    ("leads_to", "why"),
    [
        ("/dev/null", "/dev/null: is a device or a pipe; name a regular file"),
        ("o.json", "o.json: is a link that points to itself; name another place"),
        ("nowhere/o.json", "nowhere does not exist"),
    ],
)
def test_a_link_that_leads_to_no_file_is_refused(run, capsys, leads_to, why):
    Path("o.json").symlink_to(leads_to)
    assert why in refused("report c.json.gz --json o.json", capsys)
    assert why in refused("scrub c.json.gz -o o.json", capsys)
    assert Path("o.json").is_symlink() and Path("/dev/null").is_char_device()


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory):
    """A file system of 64 KiB: mounting needs root."""
    folder = tmp_path_factory.mktemp("small")
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if (
        sys.platform != "linux"
        or not shutil.which("mount")
        or subprocess.run(mount, capture_output=True).returncode
    ):
        pytest.skip("cannot mount a file system here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("words", WRITES)
def test_a_full_disk_is_told_in_a_line_and_the_old_file_stays(run, capsys, small_disk, words):
    for path in small_disk.iterdir():
        path.unlink()
    words = words.format(small_disk)
    old = Path(words.split()[-1])
    old.write_bytes(b"old")
    (small_disk / "filler").write_bytes(bytes(60 << 10))
    said = refused(words, capsys)
    assert "No space left on device" in said
    assert {path.name for path in small_disk.iterdir()} == {"filler", old.name}
    assert old.read_bytes() == b"old"


@pytest.mark.parametrize("words", WRITES)
def test_a_mounted_read_only_file_system_is_told_in_a_line(run, capsys, small_disk, words):
    remount = ["mount", "-o", "remount,{}", str(small_disk)]
    subprocess.run([word.format("ro") for word in remount], check=True)
    try:
        said = refused(words.format(small_disk), capsys)
    finally:
        subprocess.run([word.format("rw") for word in remount], check=True)
    assert "Read-only file system" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", (["report", CAPTURE], ["report", CAPTURE, "--json", "-"], ["--help"])
)
def test_a_full_stdout_is_told_in_a_line(words):
    words = [str(CAPTURES / CAPTURE) if word == CAPTURE else word for word in words]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "profiling", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
        )
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].endswith("No space left on device")
    assert "Traceback" not in ended.stderr and "ignored" not in ended.stderr
