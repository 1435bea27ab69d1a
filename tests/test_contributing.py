"""Recipes of CONTRIBUTING.md, followed on a copy of the project: they are complete."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import PROJECT

RECIPE = re.compile(r"^## (?P<title>.+?)\n(?P<body>.*?)(?=^## |\Z)", re.M | re.S)
# ```python FILE            a new file
# ```python FILE | LINE     goes behind the first line of FILE that reads so
# ```sh                     ends with exit code 0
BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: (?P<file>[^|\n]+?)(?: \| (?P<line>[^\n]+))?)?\n(?P<text>.*?)^```$",
    re.M | re.S,
)
TEXT = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = {match["title"]: match["body"] for match in RECIPE.finditer(TEXT)}
RECIPES = {title: body for title, body in SECTIONS.items() if BLOCK.search(body)}


@pytest.fixture
def copy(tmp_path) -> Path:
    """The project without its runs, captures of tests and history."""
    folder = tmp_path / "project"
    left_out = shutil.ignore_patterns(".*", "out*", "captures", "goldens", "shakespeare*")
    shutil.copytree(PROJECT, folder, ignore=left_out)
    return folder


def follow(block: re.Match, folder: Path) -> None:
    path = folder / (block["file"] or "")
    if block["language"] == "sh":
        environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        command = ["bash", "-euo", "pipefail", "-c", block["text"]]
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, timeout=150
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    elif block["line"] is None:
        assert not path.exists(), f"{path} is there already"
        path.write_text(block["text"], encoding="utf-8")
    else:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        places = [i for i, line in enumerate(lines) if line.strip() == block["line"].strip()]
        assert places, f"{block['file']} has no line {block['line']!r}"
        lines.insert(places[0] + 1, block["text"])
        path.write_text("".join(lines), encoding="utf-8")


def test_there_are_five_recipes():
    assert len(RECIPES) == 5


@pytest.mark.slow
@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_is_all_that_it_takes(title, copy):
    blocks = list(BLOCK.finditer(RECIPES[title]))
    assert blocks[-1]["language"] == "sh", "a recipe ends with its proof"
    for block in blocks:
        follow(block, copy)
