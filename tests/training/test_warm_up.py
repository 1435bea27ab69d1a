"""The warm-up: what fails at the first micro-step, and the announcement before a long run."""

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
    config = compose_one([f"config/{file}.yaml", "device=cpu", "data_source=my text.txt"])
    x = torch.zeros(12, 4, dtype=torch.long)
    with caplog.at_level(logging.WARNING):
        warm_up.say_how_long(SimpleNamespace(micro_steps=1), x, x, config, config.max_iters)
    (warning,) = caplog.messages
    assert ("python train.py config/shakespeare_char_cpu.yaml" in warning) == advised
    assert warning.endswith("attention=auto 'data_source=my text.txt'") == advised
    assert ("is already of a size for CPUs" in warning) != advised


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        ("try_attention", "attention=flash: does not run here"),
        ("try_kernels", "kernels=fused: does not run here"),
    ],
)
def test_the_key_that_makes_the_first_micro_step_fail_is_named(
    config, monkeypatch, failing, message
):
    def fail(*_):
        raise RuntimeError("no kernel image is available")

    def refuse(*_):
        raise ValueError(message)

    trials = ["try_attention", "try_kernels"]
    for trial in trials:
        monkeypatch.setattr(warm_up, trial, refuse if trial == failing else lambda *_: [])
    monkeypatch.setattr(warm_up, "timed_micro_step", fail)
    step, x = SimpleNamespace(vocab_size=9), torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(ValueError, match=message):
        warm_up.first_micro_step(step, x, x, config())


def test_memory_that_is_too_small_is_blamed_on_no_key(config, monkeypatch):
    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(warm_up, "timed_micro_step", fail)
    monkeypatch.setattr(warm_up, "try_attention", pytest.fail)
    step, x = SimpleNamespace(vocab_size=9), torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(torch.OutOfMemoryError):
        warm_up.first_micro_step(step, x, x, config())
