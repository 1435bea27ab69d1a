"""Opens a capture of any kind and finds its manifest. Called by the verbs.

A file's content decides what it is, since files get renamed. A damaged one is reported in one line.
"""

import gzip
import re
import shlex
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from cli.plain import plain
from profiling.shared.json_records import read_json
from profiling.shared.manifest import Manifest
from profiling.shared.own_program import PAGE
from profiling.shared.run_files import METRICS
from profiling.timeline import chrome_jax, chrome_json, nsys_sqlite
from profiling.timeline.trace import Trace
from profiling.tools import nsight, nsys_tool

SQLITE, GZIP = b"SQLite format 3\0", b"\x1f\x8b"
EVENTS = re.compile(rb"\s*(\{|\[\s*\{)")  # an object that has a list of events, or the list alone
XPLANE = ".xplane.pb"  # of JAX and TensorFlow
REPORT = ".nsys-rep"  # the one kind that is recognised by its name
# file names of captures in a folder, where other .json files lie too
ENDINGS = (".sqlite", ".sqlite.gz", ".trace.json", ".trace.json.gz", REPORT)
ANY_JSON = (".json", ".json.gz")
TRACE_EVENTS = re.compile(rb'"traceEvents"|"ph"\s*:')
MANIFEST = re.compile(r"window-\d+(-rank\d+)?\.json")
RANK_TIMES = re.compile(r"step_times-rank\d+\.json")  # of a program of others (profiling/attach)
RANK = re.compile(r"-rank\d+")
ITERATION = re.compile(r"(?:iteration|token) (\d+)")  # a step of training, of generation
# limits of what a .gz unpacks to; JSON of kernels packs to a twentieth, SQLite to a fourth
UNPACKED_BYTES, UNPACKED_RATIO, ALWAYS_BYTES = 16 << 30, 200, 64 << 20
BLOCK_BYTES = 1 << 20
MANIFEST_BYTES = 64 << 20
EXPORT_S = 600
LOOKS = {
    b"\x89PNG": "a picture",
    b"PK\x03\x04": "a zip file",
    b"\x80": "a pickle",
    b"%PDF": "a PDF",
}


def open_capture(path: Path) -> Trace:
    """The capture at `path`: an nsys export, a Chrome trace, each also as .gz, or a .nsys-rep.

    For a folder, a run's or its profile/, that is the newest capture in it. Raises ValueError with
    one line.
    """
    path = Path(path)
    try:
        if path.is_dir():
            count = len({stem(file) for file in captures_at(path)})
            why = f", the newest of {count} captures there" if count > 1 else ""
            path = newest(path)
            print(f"reading {plain(path)}{why}", file=sys.stderr)
        if not path.exists():
            raise ValueError(f"{path}: no such file or folder")
        if not path.is_file():
            raise ValueError(f"{path}: is not a regular file, so no capture can be read from it")
        return replace(read(path), file=path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    except OverflowError as error:
        raise ValueError(f"{path}: is damaged ({error}); export it again") from error


def newest(folder: Path) -> Path:
    """The newest capture in the folder of a run or in its profile/. Raises ValueError if none."""
    if not (captures := captures_at(folder)):
        cure, named = "name a file", shlex.quote(str(folder))
        if (folder / METRICS).is_file():  # a run that captured nothing
            cure = f"python -m profiling dashboard {named} shows its rows"
        elif any(folder.glob(f"*/{METRICS}")):
            cure = f"name one of the runs in it; python -m profiling home {named} lists them"
        raise ValueError(f"{folder}: no capture in this folder or in its profile/; {cure}")
    return max(captures, key=modified_ns)


def captures_at(folder: Path) -> list[Path]:
    """The captures in the folder of a run and in its profile/, with reports beside their exports.

    Other JSON counts only where it begins as a trace does and no file has a capture's name.
    """
    files = [
        file
        for place in (folder, folder / "profile")
        for file in entries(place)
        if file.name.endswith((*ENDINGS, *ANY_JSON)) and file.is_file()
    ]
    captures = [file for file in files if file.name.endswith(ENDINGS)]
    return captures or [file for file in files if holds_events(file)]


def stem(path: Path) -> str:
    """File name without the ending of a capture: equal for a report and its export."""
    ending = next((end for end in (*ENDINGS, *ANY_JSON) if path.name.endswith(end)), "")
    return path.name.removesuffix(ending)


def holds_events(path: Path) -> bool:
    """Whether a .json, which may be anything, begins as a trace does."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            return TRACE_EVENTS.search(file.read(BLOCK_BYTES)) is not None
    except (OSError, EOFError, zlib.error):
        return False


def entries(folder: Path) -> list[Path]:
    """The entries of a folder; none if it does not exist or was removed. Raises OSError."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def modified_ns(path: Path) -> int:
    """Time of the last modification, since 1970; 0 for a missing file, which its reader reports."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def read(path: Path) -> Trace:
    with open(path, "rb") as file:
        begin = file.read(4096)
    if begin.startswith(GZIP):
        with unpack(path) as plain:
            return read_plain(plain)
    if path.suffix == REPORT and begin:
        return read_report(path)
    return read_plain(path)


def read_plain(path: Path) -> Trace:
    with open(path, "rb") as file:
        begin = file.read(chrome_jax.HEAD_BYTES)
    if begin.startswith(SQLITE):
        return nsys_sqlite.read(path)
    if EVENTS.match(begin):
        return chrome_jax.read(path) if chrome_jax.is_of_jax(begin) else chrome_json.read(path)
    if path.name.endswith(XPLANE):
        raise ValueError(
            f"{path}: is an xplane, which is not read; give the .trace.json.gz that "
            "jax.profiler.trace writes next to it, or capture with nsys"
        )
    if not begin:
        raise ValueError(f"{path}: is empty")
    if path.suffix == ".py":
        raise ValueError(
            f"{path}: is a program, not a capture; capture the program with torch.profiler or "
            f"nsys and give that file ({PAGE} shows how)"
        )
    look = next((f"{what}, " for magic, what in LOOKS.items() if begin.startswith(magic)), "")
    raise ValueError(
        f"{path}: is {look}not a capture; give an nsys export (.sqlite), a trace of "
        "torch.profiler or JAX (.json), any of them as .gz, or a .nsys-rep"
    )


@contextmanager
def unpack(path: Path) -> Iterator[Path]:
    """Unpack a .gz into a temporary file; a ValueError within the block names the .gz instead."""
    size = path.stat().st_size
    limit = min(UNPACKED_BYTES, max(ALWAYS_BYTES, UNPACKED_RATIO * size))
    with temporary_beside(path, "unpacked") as plain:
        try:
            with gzip.open(path) as packed, open(plain, "wb") as file:
                while block := packed.read(BLOCK_BYTES):
                    if file.tell() > limit:
                        raise ValueError(
                            f"{path}: is larger than {limit >> 20} MiB when unpacked; if this "
                            "file is a capture, unpack it yourself"
                        )
                    file.write(block)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{path}: is cut off or damaged ({error}); copy or capture it again"
            ) from error
        yield plain


@contextmanager
def temporary_beside(path: Path, name: str) -> Iterator[Path]:
    """A path in a temporary folder for a file that stands in for `path`.

    A ValueError within the block that names it names `path` instead.
    """
    with tempfile.TemporaryDirectory(prefix="profiling-") as folder:
        temporary = Path(folder) / name
        try:
            yield temporary
        except ValueError as error:
            raise ValueError(str(error).replace(str(temporary), str(path))) from error


def read_report(path: Path) -> Trace:
    """The capture in a .nsys-rep, read from its export: the one beside it, or one made now."""
    beside = path.with_suffix(".sqlite")
    if beside.is_file() and beside.stat().st_mtime_ns >= path.stat().st_mtime_ns:
        print(plain(f"reading {beside}, the export of {path.name}"), file=sys.stderr)
        return read_plain(beside)
    try:
        nsys = nsight.find("nsys")
    except ValueError as error:
        raise ValueError(
            f"{path}: only nsys can read a .nsys-rep, and nsys is not installed here; on a "
            f"machine with nsys, run: nsys export --type sqlite {path.name}"
        ) from error
    with temporary_beside(path, "exported.sqlite") as exported:
        command = nsys_tool.export_command(nsys.path, path, exported)
        environ, _ = nsight.without_secrets()
        try:
            done = subprocess.run(
                command, env=environ, capture_output=True, timeout=EXPORT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"{path}: nsys export took longer than {EXPORT_S} s") from error
        if done.returncode or not exported.exists():
            output = " ".join((done.stdout + done.stderr).decode(errors="replace").split())
            raise ValueError(f"{path}: nsys {nsys.version} cannot export it: {output[-300:]}")
        return read_plain(exported)


def read_manifest(path: Path) -> Manifest:
    """A manifest that profiling.recording.window wrote. Raises ValueError with one line."""
    if path.is_file() and path.stat().st_size > MANIFEST_BYTES:
        raise ValueError(f"{path}: is too big for a manifest")
    return read_json(path, Manifest)


def find_manifest(path: Path, trace: Trace) -> tuple[str, Manifest] | None:
    """(name, content) of the newest manifest beside the capture that belongs to it, or None.

    A damaged manifest is skipped, and trace.warnings says what is wrong with it.
    """
    folder = trace.file.parent if path.is_dir() else path.parent
    manifests = []
    for file in sorted(folder.iterdir()):
        if not MANIFEST.fullmatch(file.name):
            continue
        try:
            manifest = read_manifest(file)
        except ValueError as error:
            trace.warnings.append(f"ignored a manifest: {error}")
            continue
        if belongs_to(file, manifest, trace):
            manifests.append((modified_ns(file), file.name, manifest))
    return max(manifests, key=lambda item: item[:2])[1:] if manifests else None


def belongs_to(file: Path, manifest: Manifest, trace: Trace) -> bool:
    name = trace.file.name.removesuffix(".gz")
    if trace.kind == "kineto":
        files = [other.removesuffix(".gz") for other in manifest.files]
        return name in files or name.removesuffix(".json").removesuffix(".trace") == file.stem
    if manifest.kind != "nsys" or RANK.findall(file.name) != RANK.findall(name):
        return False
    window, iterations = manifest.window, iterations_of(trace)
    if window.steps is None or not iterations:
        return False
    cut_off = len(iterations) - window.steps  # the end of a program is within a step
    return window.first_iteration == min(iterations) and cut_off in (0, bool(window.ended_by))


def iterations_of(trace: Trace) -> set[int]:
    """The numbers of the iterations, or of the tokens, that the trace has ranges for."""
    if trace.ranges is None:
        return set()
    names = (trace.names[number] for number in np.unique(trace.ranges.name).tolist())
    return {int(match[1]) for match in map(ITERATION.fullmatch, names) if match}
