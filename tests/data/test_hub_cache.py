"""Place of Hugging Face's cache, and the file that is taken from it."""

import os
from pathlib import Path

import pytest

from data.hub_cache import cached_file, hub_folder


@pytest.mark.parametrize(
    "environ, folder",
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/c"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({}, "~/.cache/huggingface/hub"),
        ({"HF_HOME": "~/hf"}, "~/hf/hub"),
    ],
)
def test_the_cache_is_where_its_own_programs_have_it(environ, folder):
    assert hub_folder(environ) == Path(folder).expanduser()


@pytest.fixture
def put(tmp_path, monkeypatch):
    """put(repository, revision, age) makes a file in the cache."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))

    def make(repository: str, revision: str, age_s: int = 0) -> Path:
        path = tmp_path / f"models--{repository}" / "snapshots" / revision / "vocab.json"
        path.parent.mkdir(parents=True)
        path.touch()
        os.utime(path, (1e9 - age_s, 1e9 - age_s))
        return path

    return make


def test_the_branch_main_comes_before_the_newest(put, tmp_path):
    assert cached_file("gpt2", "vocab.json") is None
    old, new = put("gpt2", "aaa", age_s=100), put("gpt2", "bbb")
    assert cached_file("gpt2", "vocab.json") == new
    refs = tmp_path / "models--gpt2" / "refs"
    refs.mkdir()
    (refs / "main").write_text("aaa\n")
    assert cached_file("gpt2", "vocab.json") == old
    (refs / "main").write_text("gone")
    assert cached_file("gpt2", "vocab.json") == new


def test_either_name_of_a_repository_will_do(put):
    old = put("gpt2-xl", "aaa")
    assert cached_file("gpt2_xl", "vocab.json") == old
    new = put("openai-community--gpt2-xl", "aaa")
    assert cached_file("gpt2_xl", "vocab.json") == new
    assert cached_file("gpt2", "vocab.json") is None


def test_a_link_into_nowhere_is_no_file(put):
    path = put("gpt2", "aaa")
    path.unlink()
    path.symlink_to("../../blobs/0123")
    assert cached_file("gpt2", "vocab.json") is None
