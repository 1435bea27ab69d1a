"""Gallery of the site: pages of real captures, made by `python -m profiling demo` and shown live.

A hook of mkdocs (mkdocs.yml). None of these pages is in the repository.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the tests read this module without mkdocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PROJECT = Path(__file__).resolve().parents[2]
BEGIN = """\
# Gallery

Real reports of training on H200s, each a single HTML file as the commands write it. Open one, and
try its timeline, its tables and its export.
`python -m profiling demo` writes the same pages on your machine, without a GPU or a network.
"""


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages of the demo, and the page that shows them."""
    from mkdocs.structure.files import File

    made = demo_pages()
    for name, (_, html) in made.items():
        files.append(File.generated(config, f"gallery/{name}", content=html))
    shown = {name: shows for name, (shows, _) in made.items()}
    files.append(File.generated(config, "gallery/index.md", content=gallery_page(shown)))


def demo_pages() -> dict[str, tuple[str, str]]:
    """File -> what it shows, and the HTML. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "profiling", "demo", "--no-open", "-o", folder]
        done = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True)
        lines = [line.partition("  ") for line in done.stdout.splitlines()]
        return {
            Path(path).name: (shows, Path(path).read_text("utf-8"))
            for path, _, shows in lines
            if Path(path).parent == Path(folder)
        }


def gallery_page(shown: dict[str, str]) -> str:
    """Markdown with a picture of each page, which leads to it."""
    parts = [BEGIN]
    for name, shows in shown.items():
        picture = f"../pictures/{name.removeprefix('demo-').removesuffix('.html')}_light.png"
        title = f"{shows[0].upper()}{shows[1:]}"
        parts.append(f"## {title}\n\n[![{title}]({picture})]({name})\n\n[Open the page]({name})\n")
    return "\n".join(parts)
