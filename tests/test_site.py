"""Site of docs/, read without mkdocs: its pages are complete, and their links lead somewhere.

The workflow docs builds it with mkdocs in strict mode.
"""

import os.path
import re

import pytest
import yaml

from profiling.__main__ import VERBS
from profiling.verbs import demo
from tests.helpers.hooks import load_hook
from tests.paths import PROJECT

DOCS = PROJECT / "docs"
PAGES = load_hook("pages")
REFERENCE = load_hook("reference")
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r'(?:\]\(|(?:src|srcset|href)=")([^)\s":]+)[)"]')


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, where !ENV stands for variables of the environment."""


Loader.add_constructor("!ENV", lambda loader, node: loader.construct_sequence(node)[-1])
CONFIG = yaml.load((PROJECT / "mkdocs.yml").read_text("utf-8"), Loader)


def site() -> dict[str, str]:
    """Path on the site -> Markdown, of all pages but those of reference and gallery."""
    docs = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*.md")}
    made = {name: PAGES.docs_page(name, path.read_text("utf-8")) for name, path in docs.items()}
    made |= {page: PAGES.top_page(name) for name, page in PAGES.AT_TOP.items()}
    return made | {lesson.page: PAGES.lesson_page(lesson) for lesson in PAGES.read_guide()[1]}


SITE = site()


def named(nav: object) -> list[str]:
    """Pages in the navigation, in order."""
    if isinstance(nav, str):
        return [nav]
    return [
        page for each in (nav.values() if isinstance(nav, dict) else nav) for page in named(each)
    ]


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_navigation_has_each_page_once():
    lessons = [lesson.page for lesson in PAGES.read_guide()[1]]
    assert sorted([*named(CONFIG["nav"]), *lessons]) == sorted([*SITE, "gallery/index.md"])


@pytest.mark.parametrize("page", SITE)
def test_links_lead_to_pages_files_and_sections(page):
    for target in LINK.findall(FENCE.sub("", SITE[page])):
        name, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
        assert path in SITE or (DOCS / path).is_file(), target
        assert not anchor or anchor in anchors(SITE[path]), target


def test_links_to_sources_are_of_files():
    found = re.findall(rf"{PAGES.SOURCE}([^)\"]+)", "".join(SITE.values()))
    assert len(found) > 20 and all((PROJECT / path).is_file() for path in found)


def test_the_guide_is_a_page_for_each_lesson():
    begin, lessons = PAGES.read_guide()
    text = (PROJECT / PAGES.GUIDE).read_text("utf-8")
    assert begin + "".join(f"## {lesson.title}\n{lesson.text}" for lesson in lessons) == text
    assert all(f"({lesson.page})" in SITE["guide.md"] for lesson in lessons)
    assert SITE[lessons[0].page].startswith("# 1. ")
    assert "](../pictures/report_light.png)" in SITE[lessons[0].page]


def test_each_verb_and_each_field_is_in_the_reference():
    assert all(f"[{name}]({name}.md)" in REFERENCE.verbs_page() for name in VERBS)
    for command, record in REFERENCE.RECORDS.items():
        page = REFERENCE.record_page(command, record, "schema.json")
        kinds = REFERENCE.records_below(record)
        assert page.count("\n## ") == len(kinds)
        assert page.count("\n| `") == sum(len(kind.fields) for kind in kinds)
        assert {link for link in re.findall(r"\]\(#(\w+)\)", page)} <= anchors(page)


def test_fields_have_their_types_and_comments():
    page = REFERENCE.record_page("report CAPTURE", REFERENCE.RECORDS["report CAPTURE"], "")
    assert "| `of_steps` | integer | number of typical steps |" in page
    assert "| `left_out_ms` | number or null | of the first recorded step, which is" in page
    assert "| `class` | string |" in page  # renamed in the JSON
    assert "likely and at most; null: not known by cause |" in page  # above the field


def test_llms_txt_has_a_line_for_each_page_of_docs():
    llms = load_hook("llms")
    pages = list(llms.pages_in(CONFIG["nav"]))
    text = llms.llms_text("name", "why", pages, "https://site/")
    listed = re.findall(r"^- \[[^\]]+\]\(https://site/(\S+)\.html\)(?:: \w.+[^:])?$", text, re.M)
    inside = [page for page in pages if (DOCS / page).is_file()]
    assert sorted(f"{page}.md" for page in listed) == sorted(inside)
    assert set(listed[:4]) == {"agents", "usage", "own_program", "report-schema"}
    assert text.startswith("# name\n\n> why\n") and len(text) < 6000


def test_the_gallery_has_a_picture_of_each_page():
    shown = {page.file: page.shows for page in demo.PAGES}
    text = load_hook("gallery").gallery_page(shown)
    assert all(f"[Open the page]({name})" in text for name in shown)
    for picture in re.findall(r"\]\((\.\./pictures/[^)]+)\)\]", text):
        assert (DOCS / "gallery" / picture).resolve().is_file()
    assert text.count("../pictures/") == len(shown)
