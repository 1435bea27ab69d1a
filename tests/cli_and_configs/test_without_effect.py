"""Keys without an effect beside the others: which are reported, and where they are typed."""

import fnmatch

import pytest

from cli.keys import keys
from configs.command_line import compose_one
from configs.sampling import SampleConfig
from configs.schema import Config
from configs.without_effect import SAMPLING, SWITCHES, TRAINING, idle_keys, say_idle_keys

ONE_RANK = "on one rank; start several with torchrun"


def idle(*words):
    """The keys that are said, each with what it lacks."""
    typed = [word.partition("=")[0] for word in words]
    lines = idle_keys(TRAINING, typed, [compose_one(list(words))])
    return dict(line.split(": has no effect ") for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "without", "cure"),
    [
        ("profile.start=5", "without profile=nsys|torch|memory, or a trigger", "profile=torch"),
        ("profile.stack=true", "without profile=torch|nsys", "profile=nsys"),
        ("compile_scope=block", "without compile", "compile=true"),
        ("min_lr=0", "with decay_lr=false", "decay_lr=true"),
        ("exact_resume=false", "without init_from=resume or go_on=true", "go_on=true"),
        ("wandb.name=x", "with wandb.mode=disabled", "wandb.mode=offline"),
    ],
)
def test_a_key_is_said_until_what_it_needs_is_given(key, without, cure):
    name = key.partition("=")[0]
    switches = {
        "profile.stack": ["profile=memory"],
        "compile_scope": ["compile=false"],
        "min_lr": ["decay_lr=false"],
        "wandb.name": ["wandb.mode=disabled"],
    }
    assert idle(key, *switches.get(name, [])) == {name: without}
    assert idle(key, cure) == {}


def test_what_ranks_share_is_said_of_one_rank_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert idle("bucket_mb=3") == {"bucket_mb": ONE_RANK}
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert idle("bucket_mb=3") == {}


def test_a_key_of_a_sweep_that_changes_one_of_its_jobs_is_not_said():
    jobs = [compose_one(["compile=false"]), compose_one(["compile=true"])]
    assert list(idle_keys(TRAINING, ["compile_scope"], jobs)) == []
    assert list(idle_keys(TRAINING, ["compile_scope"], jobs[:1]))


def test_a_line_is_said_once_and_by_the_first_rank(monkeypatch, capsys):
    words = ["--profile.steps=3", "profile.steps=4", "seed=1"]
    monkeypatch.setenv("RANK", "1")
    say_idle_keys(SAMPLING, words, [SampleConfig()])
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RANK", "0")
    say_idle_keys(SAMPLING, words, [SampleConfig()])
    line = "warning: profile.steps: has no effect without profile=nsys|torch|memory\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(("rules", "schema"), [(TRAINING, Config), (SAMPLING, SampleConfig)])
def test_every_pattern_is_of_a_key_that_there_is(rules, schema):
    known = set(keys(schema)) - set(SWITCHES)
    for pattern in (pattern for rule in rules for pattern in rule.patterns):
        assert fnmatch.filter(known, pattern), pattern
