"""Announcement before a long run on a CPU."""

import logging
from types import SimpleNamespace

import pytest
import torch

from configs.command_line import compose_one
from training.step import warm_up


@pytest.mark.parametrize(
    ("file", "advised"),
    [("shakespeare_char", True), ("shakespeare_char_cpu", False)],
)
def test_nobody_is_told_to_run_the_command_that_runs(caplog, monkeypatch, file, advised):
    monkeypatch.setattr(warm_up, "timed_micro_step", lambda *_: 60.0)
    config = compose_one([f"config/{file}.yaml", "device=cpu"])
    x = torch.zeros(12, 4, dtype=torch.long)
    with caplog.at_level(logging.WARNING):
        warm_up.say_how_long(SimpleNamespace(micro_steps=1), x, x, config, config.max_iters)
    (warning,) = caplog.messages
    assert ("python train.py config/shakespeare_char_cpu.yaml" in warning) == advised
    assert ("is already of a size for CPUs" in warning) != advised
