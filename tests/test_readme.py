"""Commands of README.md, docs/usage.md and AGENTS.md compose; CI runs the test command."""

import re
import shlex
import tomllib

import pytest
import yaml

import sample
from cli.keys import parse_keys
from configs import command_line
from configs.compose import compose_jobs
from configs.texts import quote_texts
from profiling.__main__ import VERBS
from tests.paths import PROJECT

PAGES = {
    name: (PROJECT / name).read_text("utf-8")
    for name in ("README.md", "docs/usage.md", "AGENTS.md")
}
README = PAGES["README.md"]
LINK = re.compile(r'\]\(([^)#]+)\)|(?:src|srcset)="([^"]+)"')
LARGEST_PICTURE = 250_000


def commands_of(page: str) -> list[str]:
    blocks = re.findall(r"```\n(.*?)```", page, re.S)
    return [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]


COMMANDS = [command for page in PAGES.values() for command in commands_of(page)]


def arguments_of(program: str) -> list[list[str]]:
    """The arguments of every call of `program`, but not of one of others such as my_train.py."""
    return [
        shlex.split(command.partition(f"{program} ")[2])
        for command in COMMANDS
        if re.search(rf"(^|\s){re.escape(program)} ", command)
    ]


def test_there_are_commands():
    assert len(arguments_of("train.py")) >= 7
    assert all(len(command.splitlines()) == 1 for command in COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("argv", arguments_of("train.py"), ids=" ".join)
def test_each_training_command_composes(argv, tmp_path):
    if "--help" in argv:
        return
    # a finished run's config.yaml is made by training; any YAML stands for it here
    argv = [str(tmp_path / "config.yaml") if word.startswith("out-") else word for word in argv]
    (tmp_path / "config.yaml").write_text("n_layer: 6\n")
    options, _, words = command_line.split_arguments(argv)
    path, overrides = command_line.split_words(words, None)
    assert path is not None or overrides
    overrides = quote_texts(overrides, options.multirun)
    assert compose_jobs(path, overrides, options.multirun)


@pytest.mark.parametrize("argv", arguments_of("sample.py"), ids=" ".join)
def test_each_sampling_command_parses(argv):
    assert parse_keys(argv, sample.SampleConfig).start == "ROMEO:"


def test_each_verb_is_there():
    assert {arguments[0] for arguments in arguments_of("-m profiling")} == VERBS.keys()


def test_ci_calls_the_test_command():
    (command,) = [command for command in COMMANDS if " -m pytest " in command]
    assert command in (PROJECT / ".ci/run").read_text().splitlines()


def test_the_first_screen_is_short_and_shows_the_demo():
    assert len(README.splitlines()) <= 120
    before_details = README.partition("## What you get")[0]
    assert "python -m profiling demo" in commands_of(before_details)
    assert "1.23x faster" in before_details  # in the picture's words


@pytest.mark.parametrize("name", [*PAGES, "docs/benchmarks.md"])
def test_linked_files_and_sections_exist(name):
    page = (PROJECT / name).read_text("utf-8")
    for target in [a or b for a, b in LINK.findall(page)]:
        if not target.startswith("https://"):
            assert (PROJECT / name).parent.joinpath(target).is_file(), target
    headings = re.findall(r"^#+ (.*)$", page, re.M)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors


def test_pictures_are_small_and_each_is_shown():
    documents = [PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")]
    text = "".join(path.read_text("utf-8") for path in documents)
    for picture in (PROJECT / "docs" / "pictures").rglob("*.*"):
        assert picture.name in text, f"{picture.name} is in no document"
        assert picture.stat().st_size < LARGEST_PICTURE, picture.name


def test_badges_and_citation_say_what_pyproject_says():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    badge = {path.stem: path.read_text() for path in (PROJECT / "docs" / "badges").iterdir()}
    assert f">{project['version']}<" in badge["version"] and "MIT" in badge["licence"]
    least, beyond = re.findall(r"3\.(\d+)", project["requires-python"])
    assert f">3.{least} to 3.{int(beyond) - 1}<" in badge["python"]
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == project["version"] and citation["license"] == project["license"]
    changes = (PROJECT / "CHANGELOG.md").read_text("utf-8")
    assert f"## [{project['version']}]" in changes


def test_issue_forms_ask_for_what_finds_the_cause():
    forms = {
        path.stem: yaml.safe_load(path.read_text("utf-8"))
        for path in (PROJECT / ".github" / "ISSUE_TEMPLATE").iterdir()
    }
    assert forms.keys() == {"bug", "wrong_verdict", "feature"}
    for form in forms.values():
        assert {"name", "description", "body"} <= form.keys()
        ids = [item["id"] for item in form["body"]]
        assert len(set(ids)) == len(ids)
    commands = re.findall(r"`python -m profiling (\w+)[^`]*`", str(forms))
    assert set(commands) == {"doctor", "scrub"}
