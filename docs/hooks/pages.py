"""Pages that the site makes from files as they are: the ones at the top, and the guide as lessons.

A hook of mkdocs (mkdocs.yml). README.md becomes the first page, and each section of guide.md a page
of its own. Links are rewritten to lead to these pages, or to the repository for anything else.
"""

from __future__ import annotations

import os.path
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the tests read this module without mkdocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PROJECT = Path(__file__).resolve().parents[2]
GUIDE = "docs/guide.md"
AT_TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
}
LINK = re.compile(r'(?P<before>\]\(|(?:src|srcset|href)=")(?P<target>[^)\s":]+)(?=[)"])')
SOURCE = "source:"  # a scheme that only on_page_content knows
SOURCE_LINK = re.compile(rf'<a href="{SOURCE}([^"]+)">(.*?)</a>', re.S)
# ```python FILE | LINE, as recipes of CONTRIBUTING.md begin
RECIPE = re.compile(r"^```(\w+) ([^|\n]+?)(?: \| ([^\n]+))?$", re.M)


@dataclass(frozen=True)
class Lesson:
    """A section of the guide with its title."""

    title: str  # 3. The roofline
    text: str

    @property
    def anchor(self) -> str:
        """The name that links have for the section."""
        return re.sub(r"[^\w -]", "", self.title.lower()).replace(" ", "-")

    @property
    def page(self) -> str:
        """Path on the site."""
        return f"guide/{self.anchor}.md"


def read_guide() -> tuple[str, list[Lesson]]:
    """The guide's beginning, up to its first section, and its sections."""
    begin, *sections = re.split(r"^## ", (PROJECT / GUIDE).read_text("utf-8"), flags=re.M)
    return begin, [Lesson(*section.split("\n", 1)) for section in sections]


def lesson_page(lesson: Lesson) -> str:
    """Markdown of the lesson's page, whose headings are one level higher."""
    text = re.sub(r"^###", "##", lesson.text, flags=re.M)
    return relinked(f"# {lesson.title}\n{text}", GUIDE, lesson.page)


def top_page(name: str) -> str:
    """Markdown of the page for a file at the top."""
    text = RECIPE.sub(recipe_block, (PROJECT / name).read_text("utf-8"))
    return relinked(text, name, AT_TOP[name])


def docs_page(path: str, text: str) -> str:
    """Markdown of the page for a file of docs/; `path` is from there."""
    text = read_guide()[0] if f"docs/{path}" == GUIDE else text
    # GitHub takes three spaces for a list inside a numbered one, Python-Markdown four
    return relinked(re.sub(r"^   (?=- )", "    ", text, flags=re.M), f"docs/{path}", path)


def recipe_block(found: re.Match[str]) -> str:
    """The first line of a block of code that Python-Markdown knows, below a line for its place."""
    language, file, line = found.groups()
    place = f"`{file}`" + (f", behind `{line}`" if line else "")
    return f"{place}:\n\n```{language}"


def relinked(text: str, source: str, page: str) -> str:
    """The text of `source`, a file of the project, with links that hold on `page` of the site."""
    folder = os.path.dirname(page) or "."

    def rewrite(found: re.Match[str]) -> str:
        name, _, anchor = found["target"].partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(source), name)) if name else source
        if not (PROJECT / path).exists():
            return found[0]
        address = address_of(path, anchor, page)
        outside = address.startswith(("#", SOURCE))
        return found["before"] + (address if outside else os.path.relpath(address, folder))

    return LINK.sub(rewrite, text)


def address_of(path: str, anchor: str, page: str) -> str:
    """Address of a file of the project from the site's root; of one that is not there its path
    behind SOURCE."""
    behind = f"#{anchor}" if anchor else ""
    lessons = {lesson.anchor: lesson.page for lesson in read_guide()[1]} if path == GUIDE else {}
    if anchor in lessons:
        return lessons[anchor]
    address = AT_TOP.get(path) or path.removeprefix("docs/")
    if address == page:
        return behind or os.path.basename(page)
    if path in AT_TOP or path.startswith("docs/"):
        return address + behind
    return f"{SOURCE}{path}"


def on_config(config: MkDocsConfig) -> None:
    """Put the lessons behind the guide in the navigation."""
    (section,) = [each["Guide"] for each in config.nav or [] if "Guide" in each]
    section += [lesson.page for lesson in read_guide()[1]]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that no file in docs/ is."""
    from mkdocs.structure.files import File

    made = {AT_TOP[name]: top_page(name) for name in AT_TOP}
    made |= {lesson.page: lesson_page(lesson) for lesson in read_guide()[1]}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Text of a file of docs/ for the site; of the guide only what precedes its first section."""
    path = page.file.src_uri
    return markdown if page.file.generated_by else docs_page(path, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with links to sources: into the repository, if its address is known, else none."""
    if not config.repo_url:
        return SOURCE_LINK.sub(r"\2", html)
    folder = f"{config.repo_url.rstrip('/')}/blob/main"
    return SOURCE_LINK.sub(rf'<a href="{folder}/\1">\2</a>', html)
