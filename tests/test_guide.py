"""docs/guide.md: shown output is what commands print, sums are right, links exist."""

import ast
import operator
import re
import shlex
import struct
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from io import StringIO

import pytest

from configs import command_line
from configs.compose import compose_jobs
from profiling.__main__ import VERBS
from tests.paths import PROJECT

DOCS = PROJECT / "docs"
GUIDE = (DOCS / "guide.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```\n(.*?)^```", re.S | re.M)
SHOWN = [
    (command, lines.splitlines())
    for block in FENCE.findall(GUIDE)
    for command, lines in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M)
]
SPAN = re.compile(r"`([^`\n]+)`")
NUMBER = r"\d+(?:\.\d+)?"
SUM = re.compile(rf"({NUMBER}(?: [-+*/] {NUMBER})+) = ({NUMBER})")
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def plain(text: str) -> str:
    """The text without line breaks and columns."""
    return " ".join(text.split())


def value(node: ast.expr) -> float:
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](value(node.left), value(node.right))
    assert isinstance(node, ast.Constant)
    return node.value


def sums(text: str) -> list[tuple[str, str]]:
    """(expression, result) of every `1 + 2 = 3`."""
    spans = SPAN.findall(FENCE.sub("", text))
    return [found.groups() for span in spans if (found := SUM.fullmatch(span))]


@pytest.fixture(scope="module")
def printed():
    """printed(command): what it prints in a terminal of 100 columns."""

    @cache
    def run(command: str) -> str:
        words = shlex.split(command)
        assert words[:3] == ["python", "-m", "profiling"]
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said:
            patch.setenv("COLUMNS", "100")
            patch.chdir(PROJECT)
            assert import_module(f"profiling.verbs.{words[3]}").main(words[4:]) == 0
        return plain(said.getvalue())

    return run


@pytest.mark.slow
@pytest.mark.parametrize(("command", "lines"), SHOWN, ids=[command[20:70] for command, _ in SHOWN])
def test_a_command_prints_what_is_shown(command, lines, printed):
    assert lines
    said = printed(command)
    for line in lines:
        assert plain(line) in said, line


def test_its_contents_lead_to_each_section_in_order():
    contents = GUIDE.partition("\n## ")[0]
    headings = re.findall(r"^## (.*)$", GUIDE, re.M)
    anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    assert re.findall(r"\]\(#([^)]+)\)", contents) == anchors
    numbers = [int(heading.partition(".")[0]) for heading in headings]
    assert [int(n) for n in re.findall(r"\[(\d+) [^\]]+\]\(#", contents)] == numbers


def test_sums_are_right():
    found = sums(GUIDE)
    assert len(found) >= 15
    for expression, result in found:
        digits = len(result.partition(".")[2])
        exact = value(ast.parse(expression, mode="eval").body)
        assert abs(exact - float(result)) <= 0.501 * 10**-digits, f"{expression} = {result}"


def exercises() -> list[tuple[str, str]]:
    """(what precedes the answer, the answer) of each."""
    parts = re.split(r"^### Exercise \d: .*$", section(10), flags=re.M)[1:]
    return [tuple(part.split("**Answer.**")) for part in parts]


def section(number: int) -> str:
    return re.split(r"^## \d+\. .*$", GUIDE, flags=re.M)[number]


def decimals(text: str) -> set[str]:
    return set(re.findall(r"\d+\.\d+", text))


def test_there_are_five_exercises_with_commands():
    assert len(exercises()) == 5
    assert all("$ python -m profiling " in question for question, _ in exercises())


@pytest.mark.parametrize("exercise", exercises(), ids=range(1, 6))
def test_figures_of_an_answer_are_printed_or_follow_from_what_is(exercise, printed):
    question, answer = exercise
    known = decimals(" ".join(map(printed, re.findall(r"^\$ (.*)$", question, re.M))))
    known |= {result for _, result in sums(answer)}
    assert decimals(SPAN.sub("", answer)) <= known
    peaks = {"989.4", "4.8", "1.037"}  # of the GPU; and 1,037 GB/s in TB/s
    assert decimals(" ".join(expression for expression, _ in sums(answer))) <= known | peaks


def test_what_is_read_from_the_page_is_in_the_report(printed):
    first = f"{SHOWN[0][0]} --full"
    figures = decimals(section(9))
    assert len(figures) >= 5 and figures <= decimals(printed(first))
    for figure in (
        "cudaGraphLaunch_v10000 60",
        "idle: kernel launches 0.012 ms",
        "531 1,895 compute 53.7 %",
    ):
        assert figure in printed(first)


def test_training_commands_compose():
    commands = re.findall(r"python train\.py ([^`\n]+)", GUIDE)
    assert len(commands) >= 2
    for command in commands:
        _, _, words = command_line.split_arguments(shlex.split(command))
        assert compose_jobs(*command_line.split_words(words, None), False)


def test_verbs_exist():
    verbs = set(re.findall(r"python -m profiling (\w+)", GUIDE))
    assert len(verbs) >= 7 and verbs <= VERBS.keys()


def test_it_is_an_hour_and_some_screens_and_links_to_what_exists():
    hour, *others = re.split(r"^## (?:1[1-9]|2\d)\. .*$", GUIDE, flags=re.M)
    assert len(hour.splitlines()) <= 355
    assert len(others) == 11 and all(len(screen.splitlines()) <= 42 for screen in others)
    for target in re.findall(r"\]\(([^)#]+)\)", GUIDE):
        assert (DOCS / target).is_file(), target


@pytest.mark.parametrize("picture", re.findall(r"\]\((pictures/[^)]*)\)", GUIDE))
def test_pictures_are_small(picture):
    data = (DOCS / picture).read_bytes()
    (width,) = struct.unpack(">I", data[16:20])
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and width <= 1200 and len(data) < 250_000
