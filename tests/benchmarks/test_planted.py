"""The planted bottlenecks: each fault really happens in a run of the real trainer."""

import os

import pytest
import torch
from torch import nn

from data.batches import Batches
from model import GPT
from training.graphs import GraphedStep
from training.step import Step

CLASSES = {
    "gpu_compute", "gpu_memory", "gpu_latency", "launch", "synchronization", "cpu", "data",
    "communication",
}  # fmt: skip
PATCHED = [(Batches, "draw"), (Step, "update"), (GraphedStep, "update"), (GPT, "forward")]


@pytest.fixture
def plants(monkeypatch):
    """The table of plants; what they patch is as before when the test has ended."""
    for owner, method in [*PATCHED, (nn.GELU, "forward")]:
        monkeypatch.setattr(owner, method, getattr(owner, method))
    from benchmarks.planted_train import PLANTS

    return PLANTS


def test_every_class_of_the_verdict_is_planted(plants):
    assert {plant.verdict for plant in plants.values()} == CLASSES


@pytest.mark.parametrize(
    ("name", "at_least_ms"), [("slow_loader", 6), ("sorting_loader", 2), ("python_stall", 10)]
)
def test_a_stall_makes_each_step_longer(plants, run, rows, name, at_least_ms):
    plants[name].put()
    found = rows(run(max_iters=4, log_interval=1, attention="flash"))
    assert all(found[iteration]["time/step_ms"] >= at_least_ms for iteration in (1, 2, 3))


@pytest.mark.parametrize("name", ("item_in_every_step", "item_in_every_layer"))
def test_items_are_asked_for(plants, run, monkeypatch, name):
    asked = []
    item = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda tensor: asked.append(1) or item(tensor))
    run(max_iters=2, log_interval=100, attention="flash")
    without = len(asked)
    plants[name].put()
    run(max_iters=2, log_interval=100, attention="flash")
    assert len(asked) - 2 * without > 10


def test_the_spelled_out_gelu_is_the_same_function(plants):
    x = torch.linspace(-3, 3, 101)
    expected = nn.functional.gelu(x, approximate="tanh")
    plants["unfused_elementwise"].put()
    assert torch.allclose(nn.GELU()(x), expected, atol=1e-6)


def test_a_plants_environment_ends_with_its_run(plants, tmp_path, monkeypatch):
    from benchmarks import planted

    seen = []

    def start(words, trainer):
        seen.append((os.environ["PLANT"], os.environ["NCCL_P2P_DISABLE"], trainer, words[:2]))
        raise ValueError("the run fails")

    monkeypatch.setattr(planted.run, "main", start)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="the run fails"):
        planted.record("slow_link", plants["slow_link"], planted.PlantedConfig(), tmp_path)
    assert seen == [
        ("slow_link", "1", ["-m", "benchmarks.planted_train"], ["--nproc-per-node", "2"])
    ]
    assert not {"PLANT", "NCCL_P2P_DISABLE"} & set(os.environ)
