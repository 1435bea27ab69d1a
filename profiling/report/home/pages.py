"""Pages of the server of a folder: the list, and what it makes when it is asked. Called by the verb
home.

A path of a request names entries of the list, VERB/NAME,NAME/; it is looked up there and never
opened as a file.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from urllib.parse import unquote

from profiling.analysis.runs.listing import Entry, Head, head_in, list_entries, state_of_files
from profiling.report.dashboard.following import Mark
from profiling.report.dashboard.server import (
    BETWEEN_PAGES_S,
    FixedPage,
    LivePage,
    MakePage,
    Rows,
    dashboard_of,
)
from profiling.report.home.document import entry_names, home_page

MOST_MADE = 32  # pages that are kept
# scripts of a page that lies in the folder get no access to what this server answers
APART = "sandbox allow-scripts allow-downloads"


@dataclass(frozen=True)
class Makers:
    """The functions that make pages of entries; all raise ValueError for what cannot be read."""

    report: Callable[[Path], str]  # of a capture
    comparison: Callable[[Path, Path], str]  # of two runs or captures
    dashboard: Callable[[list[Path]], MakePage]  # of the folders of runs


@dataclass
class HomePages:
    """The pages of a folder by the path of a request."""

    place: Path
    makers: Makers
    made: dict[str, tuple[str, LivePage | FixedPage]] = field(default_factory=dict)
    reported: dict[Path, Head] = field(default_factory=dict)  # heads of captures' reports
    making: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.home = LivePage(self.mark, self.news, self.make_home)

    def mark(self) -> Mark:
        return Mark(f"{state_of_files(self.place)}-{len(self.reported)}", ())

    def news(self, mark: Mark) -> tuple[Mark, Rows] | None:
        """None where files have changed, but not at once after the page was made."""
        since_s = time.monotonic() - self.home.made_s
        if since_s < max(BETWEEN_PAGES_S, 10 * self.home.took_s) or mark == self.mark():
            return mark, {}
        return None

    def make_home(self, mark: str, _: bool) -> str:
        return home_page(
            self.place, list(map(self.as_reported, list_entries(self.place))), mark=mark
        )

    def as_reported(self, entry: Entry) -> Entry:
        if entry.verdict or not (head := self.reported.get(entry.path)):
            return entry
        return replace(entry, verdict=head.verdict_on(entry.path), step_ms=head.step_ms)

    def find(self, path: str) -> LivePage | FixedPage | None:
        """The page at this path, made now unless it was before; None where there is none."""
        if path == "/":
            return self.home
        with self.making:
            state, page = self.made.get(path, ("", None))
            if isinstance(page, LivePage):
                return page
            _, verb, names, *rest = [*path.split("/"), ""]
            entries = list_entries(self.place)
            by_name = {name: at for at, name in enumerate(entry_names(self.place, entries))}
            name, *others = map(unquote, names.split(","))
            if rest != ["", ""] or name not in by_name:
                return None
            if verb == "page":
                return page_of_folder(entries[by_name[name]], others)
            if not all(other in by_name for other in others):
                return None
            chosen = [entries[by_name[each]] for each in (name, *others)]
            if page is None or state != str(chosen):
                if (page := self.made_of(verb, chosen)) is None:
                    return None
                while len(self.made) >= MOST_MADE:
                    self.made.pop(next(iter(self.made)))
                self.made[path] = (str(chosen), page)
            return page

    def made_of(self, verb: str, chosen: list[Entry]) -> LivePage | FixedPage | None:
        try:
            return self.page_of(verb, chosen)
        except (ValueError, OSError) as error:
            return FixedPage(f"<!doctype html><p>{escape(str(error))}</p>\n".encode(), status=422)

    def page_of(self, verb: str, chosen: list[Entry]) -> LivePage | FixedPage | None:
        if verb == "dashboard" and all(entry.runs for entry in chosen):
            folders = list(dict.fromkeys(run for entry in chosen for run in entry.runs))
            return dashboard_of(lambda: folders, self.makers.dashboard(folders))
        if verb == "report" and len(chosen) == 1 and chosen[0].captures:
            page = self.makers.report(capture := chosen[0].captures[0])
            if head := head_in(page):
                self.reported[capture] = head
            return FixedPage(page.encode())
        if verb == "compare" and len(chosen) == 2:
            return FixedPage(self.makers.comparison(*(entry.path for entry in chosen)).encode())
        return None


def page_of_folder(entry: Entry, numbers: list[str]) -> FixedPage | None:
    """The page of that number among those that lie in the folder and were made of the entry."""
    for number, page in enumerate(entry.pages):
        if numbers == [str(number)]:
            return FixedPage(page.read_bytes(), APART)
    return None
