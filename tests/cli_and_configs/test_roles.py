"""Roles of the keys of train.py, as their declarations say."""

from typing import get_args

import pytest

from cli.keys import Role, keys, valid_value
from configs.schema import BEFORE, Config, role_of

KEYS = keys(Config)


@pytest.mark.parametrize("name", KEYS)
def test_every_key_has_a_role(name):
    """A key without one would name differences that it did not make."""
    assert KEYS[name].role in get_args(Role) and role_of(name) == KEYS[name].role


def test_every_role_is_that_of_a_key():
    assert {key.role for key in KEYS.values()} == set(get_args(Role))


def test_a_section_has_the_role_of_its_keys():
    assert (role_of("profile"), role_of("profile.steps")) == ("watching", "watching")
    assert role_of("wandb") == "place" and role_of("profile.of_an_older_version") == "watching"
    assert role_of("in_force") is None


def test_keys_follow_keys_and_older_runs_had_values_of_theirs():
    assert {key.follows for key in KEYS.values()} <= {"", *KEYS}
    assert {name: valid_value(KEYS[name], value) for name, value in BEFORE.items()} == BEFORE


def test_paths_may_differ_between_hosts():
    paths = {name for name, key in KEYS.items() if key.path}
    assert paths == {"dataset", "data_source", "weights", "out_dir", "compile_cache"}
