"""Triton's hash of itself, computed beside other work, where there is a Triton."""

import sys
from importlib import import_module

import pytest

from kernels.triton_hash import hash_triton_meanwhile, triton_key


def test_on_leaving_it_is_known(monkeypatch):
    pytest.importorskip("triton")
    key, asked = triton_key(), []
    monkeypatch.setattr(import_module(key.__module__), "triton_key", lambda: asked.append(1))
    with hash_triton_meanwhile():
        pass
    assert asked == [1]


def test_without_triton_there_is_nothing_to_hash(monkeypatch):
    for module in [name for name in sys.modules if name.split(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "triton", None)
    assert triton_key() is None
    with hash_triton_meanwhile():
        pass
