"""README.md's commands are the ones that work: they compose, and CI runs the test command."""

import re
import shlex

import pytest

import sample
from cli.keys import parse_keys
from configs import command_line
from configs.compose import compose_jobs
from profiling.__main__ import VERBS
from tests.paths import PROJECT

README = (PROJECT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.split("#")[0].strip()
    for block in re.findall(r"```\n(.*?)```", README, re.S)
    for line in block.splitlines()
]


def arguments_of(program: str) -> list[list[str]]:
    """The arguments of every call of `program` in the README."""
    return [
        shlex.split(command.partition(f"{program} ")[2])
        for command in COMMANDS
        if f"{program} " in command
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
    assert path is not None
    assert compose_jobs(path, overrides, options.multirun)


@pytest.mark.parametrize("argv", arguments_of("sample.py"), ids=" ".join)
def test_each_sampling_command_parses(argv):
    assert parse_keys(argv, sample.SampleConfig).start == "ROMEO:"


def test_each_verb_is_one():
    verbs = [arguments[0] for arguments in arguments_of("-m profiling")]
    assert set(verbs) <= set(VERBS) and len(set(verbs)) >= 13


def test_ci_calls_the_test_command():
    (command,) = [command for command in COMMANDS if " -m pytest " in command]
    assert command in (PROJECT / ".ci/run").read_text().splitlines()


def test_linked_files_exist():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (PROJECT / target).is_file(), target
