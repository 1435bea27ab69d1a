"""Weight, paint, axe, phone and paper of the pages, and answers to ten questions on them.

    python -m validation pages [before=CHECKOUT] [captures=FILE,FILE]

Makes pages of every kind by this project's commands, and by those of another checkout if one is
named, opens them in Chromium, and prints two tables as Markdown: docs/pages.md has those of this
project. Paint and answers are timed in turns. What lies in OUT already is not made again; results
are in OUT/pages.json. It takes some minutes, most of them for the pages.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.measuring import PROJECT, Keys, key, measure_in_turns
from cli.files import write_text
from profiling.shared.json_records import to_json
from validation.browser import chromium, resize
from validation.page_making import commands_for, make_inputs, make_pages
from validation.page_measuring import DESK, Measured, first_paint_ms, measure_page
from validation.page_questions import QUESTIONS, Answer, answer

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

ABSENT = "–"
COLUMNS: dict[str, Callable[["Opened"], str]] = {
    "bytes": lambda page: f"{page.measured.bytes:,}",
    "first paint, ms": lambda page: f"{median(page.first_paint_ms):.0f}",
    "axe": lambda page: str(sum(len(fault) - 2 for fault in page.measured.axe_faults)),
    "reach at 320 px": lambda page: str(page.measured.reach_px),
    "small targets at 390 px": lambda page: str(page.measured.small_targets),
    "charts wrong on paper": lambda page: (
        f"{page.measured.charts_wrong_on_paper} of {page.measured.charts}"
    ),
    "reach on paper, 703 px": lambda page: str(page.measured.paper_reach_px),
    "dark": lambda page: "y" if page.measured.dark else "-",
    "requests, console": lambda page: (
        f"{len(page.measured.requests)}, {len(page.measured.console)}"
    ),
}


@dataclass
class PagesConfig(Keys):
    out: str = key("out-pages", "folder for captures, pages and results")
    before: str = key("", "another checkout, whose pages are measured in turns with those of this")
    captures: str = key("", "files whose reports are measured too, separated by commas")
    loads: int = key(7, "times that each page is painted", least=1)
    rounds: int = key(3, "times that each question is answered", least=1)


@dataclass(frozen=True)
class Opened:
    measured: Measured
    first_paint_ms: list[float]  # of each load


@dataclass(frozen=True)
class Side:
    """Pages by name, and answers by question: one of each round, None where it is not to be had."""

    tree: str
    pages: dict[str, Opened]
    answers: dict[str, list[Answer | None]]


@dataclass(frozen=True)
class Results:
    chromium: str  # version
    sides: list[Side]  # before, if another checkout was named, and after


def main(config: PagesConfig) -> None:
    captures = [Path(name) for name in config.captures.split(",") if name]
    for path in captures:
        if not path.is_file():
            raise ValueError(f"captures={path}: no such file")
    trees = {"after": PROJECT}
    if config.before:
        trees = {"before": Path(config.before).resolve()} | trees
    out, commands = Path(config.out).resolve(), commands_for(captures)
    make_inputs(out / "inputs")
    made = {
        side: list(make_pages(tree, commands, out / "inputs", out / side))
        for side, tree in trees.items()
    }
    with chromium() as driver:
        opened = open_all(driver, {side: (out / side, made[side]) for side in trees}, config.loads)
        answers = ask_all(driver, {side: out / side for side in trees}, config.rounds)
        version = str(driver.capabilities["browserVersion"])
    sides = [Side(trees[side].name, opened[side], answers[side]) for side in trees]
    write_text(out / "pages.json", to_json(Results(version, sides)))
    titles = {name: title for each in commands for name, title in each.pages.items()}
    print(f"Chromium {version}; {', '.join(f'{side}: {tree}' for side, tree in trees.items())}\n")
    print("\n".join([*table_of_pages(titles, sides), "", *table_of_questions(titles, sides)]))


def open_all(
    driver: "Chrome", made: Mapping[str, tuple[Path, list[str]]], loads: int
) -> dict[str, dict[str, Opened]]:
    """Pages by side and name; `made` has the folder and the names of each side."""
    paths = {
        (side, name): folder / f"{name}.html"
        for side, (folder, names) in made.items()
        for name in names
    }
    measured = {}
    for (side, name), path in paths.items():
        print(f"{side}: {name}", file=sys.stderr, flush=True)
        measured[side, name] = measure_page(driver, path)
    resize(driver, DESK)
    paints = {each: partial(first_paint_ms, driver, path) for each, path in paths.items()}
    taken = measure_in_turns(paints, loads)
    opened: dict[str, dict[str, Opened]] = {side: {} for side in made}
    for (side, name), page in measured.items():
        opened[side][name] = Opened(page, taken[side, name])
    return opened


def ask_all(
    driver: "Chrome", folders: Mapping[str, Path], rounds: int
) -> dict[str, dict[str, list[Answer | None]]]:
    """Answers by side and question."""
    answers: dict[str, dict[str, list[Answer | None]]] = {side: {} for side in folders}
    for question in QUESTIONS:
        asked = {side: partial(answer, driver, question, folders[side]) for side in folders}
        for side, given in measure_in_turns(asked, rounds).items():
            answers[side][question.asked] = given
    return answers


def table_of_pages(titles: Mapping[str, str], sides: list[Side]) -> Iterator[str]:
    yield f"| page | {' | '.join(COLUMNS)} |"
    yield "|---" * (1 + len(COLUMNS)) + "|"
    for name in sides[-1].pages:
        pages = [side.pages.get(name) for side in sides]
        cells = [
            " → ".join(spell(page) if page else ABSENT for page in pages)
            for spell in COLUMNS.values()
        ]
        yield f"| {titles[name]} | {' | '.join(cells)} |"


def table_of_questions(titles: Mapping[str, str], sides: list[Side]) -> Iterator[str]:
    heads = ["before", "after"][-len(sides) :]
    yield f"| question | page | {' | '.join(heads)} |"
    yield "|---" * (2 + len(sides)) + "|"
    for question in QUESTIONS:
        cells = [spell_answer(side.answers[question.asked]) for side in sides]
        yield f"| {question.asked} | {titles[question.page]} | {' | '.join(cells)} |"


def spell_answer(answers: list[Answer | None]) -> str:
    """Median seconds, then what was clicked, typed and scrolled."""
    given = [each for each in answers if each]
    if len(given) < len(answers):
        return "not to be had"
    first = given[0]
    counts = {"click": first.clicks, "field": first.typed, "screen": first.screens}
    done = [f"{count} {what}{'s' * (count > 1)}" for what, count in counts.items() if count]
    return ", ".join([f"{median(each.seconds for each in given):.2f} s", *(done or ["0 clicks"])])
