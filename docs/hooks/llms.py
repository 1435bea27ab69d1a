"""List of the site's pages for agents, llms.txt: their titles, addresses and first sentences.

A hook of mkdocs (mkdocs.yml), as llmstxt.org describes the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the tests read this module without mkdocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

DOCS = Path(__file__).resolve().parents[1]
FIRST = ("agents.md", "usage.md", "own_program.md", "report-schema.md")  # what an agent asks for
MARKUP = re.compile(r"\[([^\]]*)\]\([^)]*\)|[`*]")
BEGIN = re.compile(r"# ([^\n]+)\n+(?:([^#\n|<].*?[.:])\s)?", re.DOTALL)  # title, sentence


def llms_text(name: str, description: str, pages: list[str], address: str = "") -> str:
    """Text of the file: what this is, then a line for each page of docs/ among `pages`."""
    ordered = sorted(pages, key=lambda page: page not in FIRST)
    lines = [line for page in ordered if (line := line_of(page, address))]
    return "\n".join([f"# {name}", "", f"> {description}", "", "## Pages", "", *lines, ""])


def line_of(page: str, address: str) -> str | None:
    """A link to the page, with the sentence that it begins with; None if it is not in docs/."""
    path = DOCS / page
    found = BEGIN.match(path.read_text("utf-8")) if path.is_file() else None
    if not found:
        return None
    said = " ".join(MARKUP.sub(r"\1", found[2] or "").split()).rstrip(":")
    link = f"- [{found[1]}]({address}{page.removesuffix('.md')}.html)"
    return f"{link}: {said}" if said else link


def pages_in(nav: object) -> Iterator[str]:
    """Yield the pages in the navigation, in order."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict | list):
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_in(each)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the file."""
    from mkdocs.structure.files import File

    said = config.site_name, config.site_description or ""
    text = llms_text(*said, list(pages_in(config.nav)), config.site_url or "")
    files.append(File.generated(config, "llms.txt", content=text))
