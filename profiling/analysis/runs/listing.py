"""List all runs, captures, snapshots, experiments and pages under a folder. Called by the verb
home.

Of a file only its beginning and its end are read, so that hundreds of runs take a second; what is
damaged becomes an entry that says what is wrong.
"""

import gzip
import hashlib
import html
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from cli.errors import one_line
from cli.files import is_pipe, not_a_folder
from profiling.analysis.runs.folder import CAPTURED, Numbers, numbers_of, read_row
from profiling.shared.json_records import JsonObject, read_json
from profiling.shared.metric_names import STEP_MS, VAL_LOSS
from profiling.shared.run_files import METRICS
from profiling.timeline import memory_snapshot
from profiling.timeline.opening import ENDINGS

Kind = Literal["run", "capture", "snapshot", "experiment", "bench", "sweep", "page"]
RESULTS, BENCH, SWEEP = "results.json", "bench.json", "multirun.yaml"  # marks of folders
HOME_TITLE = ": runs and captures"  # end of the title of the page that is made of the list
LEFT_OUT = re.compile(r"\..*|previous-.*|wandb|tensorboard|compiled|ckpt_shards|__pycache__|sample")
OTHERS = (".json", ".json.gz", ".jsonl", ".yaml", ".html")
LISTED = (*ENDINGS, *memory_snapshot.ENDINGS, *OTHERS)  # endings of files that matter
HEAD_BYTES, TAIL_BYTES = 4096, 65_536
TRACE = re.compile(rb'"(traceEvents|schemaVersion)"')
PAGE = re.compile(r"script-src 'nonce-.*?<title>(.*?)</title>", re.DOTALL)
STEP = re.compile(r'<meta name="step-ms" content="([\d.e+-]+)">\s*<title>')


@dataclass(frozen=True)
class Entry:
    """A row of the list. What is not known is None."""

    kind: Kind
    path: Path
    changed_s: float  # time of the last change, since 1970
    state: str | None = None
    verdict: str | None = None
    step_ms: float | None = None
    loss: float | None = None  # best validation loss of a run that ended, else the last one
    captures: list[Path] = field(default_factory=list)  # the newest first
    runs: list[Path] = field(default_factory=list)  # folders whose curves a dashboard shows
    pages: list[Path] = field(default_factory=list)
    problem: str | None = None  # the reason why it cannot be read


@dataclass(frozen=True)
class Head:
    """The facts in the head of a page of this program."""

    title: str
    step_ms: float | None  # of a capture's report

    def verdict_on(self, file: Path) -> str | None:
        """The verdict in the title of a page that reports the capture or snapshot, else None."""
        named = re.search(rf" · (Memory: )?{re.escape(file.name)}( |$)", self.title)
        return self.title[: named.start()] if named else None


@dataclass(frozen=True)
class Sentence:
    sentence: str = ""


@dataclass(frozen=True)
class Sentences:
    """The fields of an experiment's results.json that are read."""

    comparisons: list[Sentence] = field(default_factory=list)


def list_entries(place: Path) -> list[Entry]:
    """The entries under a folder, the newest first. Links that lead out of it are left out.

    Raises ValueError where there is no such folder, or nothing in it.
    """
    if not place.is_dir():
        raise ValueError(f"{place}: {not_a_folder(place)}; give one that holds runs or captures")
    entries: list[Entry] = []
    pages: list[Path] = []
    root = os.path.realpath(place)
    for folder, inside, names in os.walk(place):
        inside[:] = sorted(name for name in inside if not LEFT_OUT.fullmatch(name))
        files = [Path(folder, name) for name in sorted(names)]
        files = [file for file in files if not (leads_out(file, root) or is_pipe(file))]
        pages += [file for file in files if file.suffix == ".html"]
        inside[:] = [name for name in inside if not leads_out(Path(folder, name), root)]
        entries += entries_of(Path(folder), inside, files)
    found = with_pages(entries, pages)
    if not found:
        raise ValueError(f"{place}: no run, capture, snapshot or page in this folder or below")
    return sorted(found, key=lambda entry: -entry.changed_s)


def state_of_files(place: Path) -> str:
    """A digest of the files under a folder that the list is made of; it changes when they do."""
    known = hashlib.blake2b(digest_size=8)
    for folder, inside, names in os.walk(place):
        inside[:] = sorted(name for name in inside if not LEFT_OUT.fullmatch(name))
        for path in (Path(folder, name) for name in sorted(names) if name.endswith(LISTED)):
            known.update(f"{path}\0{changed_s(path)};".encode(errors="surrogateescape"))
    return known.hexdigest()


def leads_out(path: Path, root: str) -> bool:
    """Whether the path is a link to a place outside of the folder `root`, or to nothing."""
    if not path.is_symlink():
        return False
    real = os.path.realpath(path)
    return not os.path.exists(real) or os.path.commonpath([root, real]) != root


def entries_of(folder: Path, inside: list[str], files: list[Path]) -> Iterator[Entry]:
    """Yield the entries of one folder; `inside` loses the folders in which no more are sought."""
    by_name = {file.name: file for file in files}
    if METRICS in by_name:
        yield run_entry(folder, (folder / "profile") if "profile" in inside else None)
        inside[:] = [name for name in inside if name != "profile"]
    elif RESULTS in by_name and (folder / "runs").is_dir():
        inside.clear()
        yield experiment_entry(folder)
    elif BENCH in by_name:
        inside.clear()
        yield Entry("bench", folder, changed_s(by_name[BENCH]), runs=runs_inside(folder))
    else:
        if SWEEP in by_name and (runs := runs_inside(folder)):
            yield Entry("sweep", folder, max(map(changed_s, runs)), f"{len(runs)} runs", runs=runs)
        yield from map(capture_entry, filter(is_capture, files))
        for file in filter(memory_snapshot.is_snapshot, files):
            yield Entry("snapshot", file, changed_s(file), captures=[file])


def changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # it has just gone
        return 0.0


def runs_inside(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.rglob(METRICS) if not file.is_symlink())


def is_capture(file: Path) -> bool:
    """Whether the file is a capture, by the end of its name; a .json by its first bytes."""
    if file.name.endswith(ENDINGS):
        return True
    if not file.name.endswith((".json", ".json.gz")):
        return False
    try:
        with gzip.open(file) if file.suffix == ".gz" else open(file, "rb") as content:
            return bool(TRACE.search(content.read(HEAD_BYTES)))
    except (OSError, EOFError):
        return False


def capture_entry(file: Path) -> Entry:
    return Entry("capture", file, changed_s(file), captures=[file])


def experiment_entry(folder: Path) -> Entry:
    file = folder / RESULTS
    entry = Entry("experiment", folder, changed_s(file), runs=runs_inside(folder))
    try:
        said = [pair.sentence for pair in read_json(file, Sentences).comparisons]
    except ValueError as error:
        return replace(entry, problem=one_line(error))
    return replace(entry, verdict="; ".join(filter(None, said)) or None)


def run_entry(folder: Path, profile: Path | None) -> Entry:
    """The entry of a run, from its summary, or else from its last rows. `profile` has captures."""
    files = list(profile.iterdir()) if profile else []
    files = [file for file in files if file.is_file() and not file.is_symlink()]
    captures = sorted(filter(is_capture, files), key=changed_s, reverse=True)
    entry = Entry("run", folder, changed_s(folder / METRICS), captures=captures, runs=[folder])
    try:
        if not (folder / "config.yaml").is_file():
            raise ValueError(f"{folder / 'config.yaml'}: no such file")
        rows = last_rows(folder / METRICS)
        summary = folder / "summary.json"
        results = read_json(summary, JsonObject) if summary.is_file() else None
    except (ValueError, OSError) as error:
        return replace(entry, problem=one_line(error))
    numbers, verdict = numbers_of(results or {}), (results or {}).get("verdict")
    times = [row[STEP_MS.name] for row in rows if STEP_MS.name in row and CAPTURED not in row]
    losses = [row[VAL_LOSS.name] for row in rows if VAL_LOSS.name in row]
    return replace(
        entry,
        state=state_of(results, rows),
        verdict=verdict if isinstance(verdict, str) else None,
        step_ms=numbers.get(STEP_MS.name, float(np.median(times)) if times else None),
        loss=numbers.get("best_val_loss", losses[-1] if losses else None),
    )


def state_of(results: JsonObject | None, rows: list[Numbers]) -> str:
    if results is not None:
        return "ended"
    return "running, or killed" if rows else "no row yet"


def last_rows(path: Path) -> list[Numbers]:
    """The rows of numbers at the end of a metrics.jsonl, without a line that is still written.

    Raises ValueError for a damaged line.
    """
    with open(path, "rb") as file:
        begin = max(0, file.seek(0, 2) - TAIL_BYTES)
        file.seek(begin)
        lines = file.read().split(b"\n")[1 if begin else 0 : -1]
    rows = []
    for line in filter(None, lines):
        try:
            _, numbers = read_row(line)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            text = line[:60].decode(errors="replace")
            raise ValueError(f"{path}: this line was not written by training: {text}") from error
        rows += [numbers] if numbers is not None else []
    return rows


def with_pages(entries: list[Entry], pages: list[Path]) -> list[Entry]:
    """The entries with the pages that were made of them, and an entry for each other page but that
    of an earlier list.

    A page belongs to the run or experiment in whose folder it lies, or to the capture beside it
    that its title names; the verdict on that capture and its step time are in the page's head.
    """
    found = list(entries)
    for page in pages:
        if (head := head_of(page)) is None or head.title.endswith(HOME_TITLE):
            continue
        owner = next((n for n, entry in enumerate(found) if is_of(page, head, entry)), None)
        if owner is None:
            found.append(Entry("page", page, changed_s(page), verdict=head.title, pages=[page]))
            continue
        entry = replace(found[owner], pages=[*found[owner].pages, page])
        if entry.kind in ("capture", "snapshot"):
            entry = replace(entry, verdict=head.verdict_on(entry.path), step_ms=head.step_ms)
        found[owner] = entry
    return found


def is_of(page: Path, head: Head, entry: Entry) -> bool:
    if entry.kind in ("capture", "snapshot"):
        return entry.path.parent == page.parent and head.verdict_on(entry.path) is not None
    return entry.kind in ("run", "experiment", "bench") and entry.path in page.parents


def head_of(page: Path) -> Head | None:
    """The head of a page that this program made, or None for any other file."""
    try:
        with open(page, encoding="utf-8", errors="replace") as file:
            return head_in(file.read(HEAD_BYTES))
    except OSError:
        return None


def head_in(text: str) -> Head | None:
    if not (match := PAGE.search(text[:HEAD_BYTES])):
        return None
    step = STEP.search(text[: match.end()])
    return Head(one_line(html.unescape(match[1])), float(step[1]) if step else None)
