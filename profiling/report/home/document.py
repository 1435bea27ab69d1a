"""Page of all runs, captures and experiments under a folder. Called by the verb home.

templates/home.js lets the reader tick rows: for a report, a comparison or a dashboard of them.
"""

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from profiling.analysis.runs.listing import HOME_TITLE, Entry
from profiling.report.document import Cell, Column, Document, Section, Table
from profiling.report.renderers.page import page
from profiling.timeline.personal import without_folders


def home_page(
    place: Path,
    entries: Sequence[Entry],
    links_from: Path | None = None,
    mark: str | None = None,
) -> str:
    """The HTML text of the page.

    links_from: the page's folder, from which existing pages are linked; None: the page is served,
    and its server makes reports, dashboards and comparisons. mark: what a served page has read.
    """
    paths = [entry.path for entry in entries]
    names = dict(zip(paths, entry_names(place, entries), strict=True))

    def links(entry: Entry) -> Cell:
        if links_from is None:
            return Cell("", links=served_links(entry, names))
        return Cell("", links=[(file.name, address(file, links_from)) for file in entry.pages])

    columns = [
        Column("name", lambda entry: Cell(names[entry.path], below(place, entry)), "code"),
        Column("verdict", verdict, "text"),
        Column("step, ms", "step_ms", "ms"),
        Column("val loss", "loss", "loss"),
        Column("changed", changed, "text"),
        Column("pages", links, "text"),
        Column("state", "state", "text"),
        Column("kind", "kind", "text"),
        Column("captures", lambda entry: len(entry.captures) or None, "number"),
    ]
    how = "Tick rows for a report, a dashboard, or a comparison of two."
    table = Table("all", "Runs and captures", how, columns, entries, limit=60)
    counts = Counter(entry.kind for entry in entries)
    said = ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items())
    folder = place.resolve().name
    document = Document(f"{folder}{HOME_TITLE}", [said], [], [Section("all", table.title, [table])])
    return page(document, "home.html.j2", mark=mark, folder=folder)


def entry_names(place: Path, entries: Sequence[Entry]) -> list[str]:
    """The names of the entries: their paths below the folder; the folder itself has its own."""
    inside = [entry.path.relative_to(place).as_posix() for entry in entries]
    return [place.resolve().name if name == "." else name for name in inside]


def below(place: Path, entry: Entry) -> str:
    """The entry's path as a command in the folder `place` takes it: no folder above is named."""
    path = entry.path.relative_to(place).as_posix()
    return f"./{path}" if path.startswith("-") else path


def served_links(entry: Entry, names: dict[Path, str]) -> list[tuple[str, str]]:
    name = quote(names[entry.path], safe="")
    made = [("report", bool(entry.captures)), ("dashboard", bool(entry.runs))]
    pages = [(file.name, f"page/{name},{number}/") for number, file in enumerate(entry.pages)]
    return [(verb, f"{verb}/{name}/") for verb, there in made if there] + pages


def address(file: Path, links_from: Path) -> str:
    return quote(os.path.relpath(file, links_from).replace(os.sep, "/"))


def changed(entry: Entry) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.changed_s))


def verdict(entry: Entry) -> str | None:
    if entry.problem:
        return f"cannot be read: {without_folders(entry.problem)}"
    return entry.verdict
