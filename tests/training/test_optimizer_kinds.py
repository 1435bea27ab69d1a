"""The table of optimizers: every choice of the key, and what has no form with our own kernels."""

from dataclasses import replace

import pytest
import torch

from cli.keys import keys
from configs.schema import Config
from kernels.fused_model import make_model
from training.checks import resolve_and_check
from training.optimizers import kinds

CPU = torch.device("cpu")


def test_every_choice_of_the_key_is_in_the_table():
    assert set(kinds.KINDS) == set(keys(Config)["optimizer"].choices)


def test_an_optimizer_without_a_fused_form_is_refused_with_fused_kernels(config, monkeypatch):
    """The run would train with another optimizer in its place."""
    monkeypatch.setitem(kinds.KINDS, "muon", replace(kinds.KINDS["muon"], fused=None))
    tiny = config(optimizer="muon", kernels="fused", device="cuda", attention="auto")
    message = "^optimizer=muon: does not support kernels=fused; use kernels=compiled$"
    with pytest.raises(ValueError, match=message):
        kinds.make_optimizer(make_model(replace(tiny, kernels="compiled"), 11), tiny, CPU)
    with pytest.raises(ValueError, match=message):
        kinds.check_fused_form(tiny)
    resolve_and_check(config(optimizer="muon"), CPU, 1)
