"""The planted bottlenecks: each fault really happens in a run of the real trainer."""

import gzip
import json
import os
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.measuring import Process
from data.batches import Batches
from model import GPT, CausalSelfAttention, LayerNorm
from profiling.shared.json_records import read_json
from tests.helpers.checkpoints import tiny, tiny_model
from tests.paths import PROJECT
from training.machine.device import resolve
from training.optimizers.kinds import make_optimizer
from training.ranks.distributed import Ranks
from training.step.graphs import GraphedStep
from training.step.step import Step
from validation import planted
from validation.diagnoses import Diagnosis, Times
from validation.planted_train import PLANTS, SERIES
from validation.plants import second
from validation.plants.planting import Plant

CLASSES = {
    1: {
        "gpu_compute", "gpu_memory", "gpu_latency", "launch", "synchronization", "cpu", "data",
        "communication",
    },
    2: {
        "gpu_compute", "gpu_memory", "gpu_latency", "launch", "synchronization", "cpu", "data",
        "allocation", "copies",
    },
}  # fmt: skip
PATCHED = [
    (Batches, "draw"),
    (Step, "forward"),
    (Step, "clip_and_step"),
    (Step, "update"),
    (GraphedStep, "update"),
    (GPT, "forward"),
    (CausalSelfAttention, "forward"),
    (LayerNorm, "forward"),
    (nn.GELU, "forward"),
    (nn.Dropout, "forward"),
]


@pytest.fixture
def plants(monkeypatch):
    """The table of plants; what they patch is as before when the test has ended."""
    for owner, method in PATCHED:
        monkeypatch.setattr(owner, method, getattr(owner, method))
    return PLANTS


def test_every_class_of_the_verdict_is_planted(plants):
    planted = {
        number: {plant.verdict for plant in series.values()} for number, series in SERIES.items()
    }
    assert planted == CLASSES
    assert len(plants) == len(SERIES[1]) + len(SERIES[2]) == 22


def test_every_fault_can_be_taken_out(plants):
    nothing = Plant("cpu", "").put
    for name, plant in plants.items():
        assert plant.put is not nothing or plant.without or plant.environ, name
        assert plant.without != plant.keys, name


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


def losses_of(run, losses, **keys):
    found = losses(run(max_iters=3, eval_interval=5, **keys))
    return [train for train, *_ in found.values() if train is not None]


@pytest.mark.parametrize(
    "name", ("attention_head_by_head", "norms_and_dropout_by_hand", "looped_adamw_in_graphs")
)
def test_a_slower_way_computes_the_same(plants, run, losses, name):
    expected = losses_of(run, losses, attention="flash")
    plants[name].put()
    assert losses_of(run, losses, attention="flash") == pytest.approx(expected, rel=1e-4)


def test_dropout_by_hand_drops_as_many(plants):
    plants["norms_and_dropout_by_hand"].put()
    dropout, x = nn.Dropout(0.25), torch.ones(40_000)
    dropped = dropout(x)
    assert dropped.unique().tolist() == pytest.approx([0, 4 / 3])
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert dropout.eval()(x) is x


def test_the_optimizer_is_told_to_go_one_by_one(plants, run, monkeypatch):
    plants["looped_adamw_in_graphs"].put()
    groups = []
    update = Step.update

    def keep_groups(step, learning_rate):
        groups.extend(step.optimizer.param_groups)
        update(step, learning_rate)

    monkeypatch.setattr(Step, "update", keep_groups)
    run(max_iters=1, attention="flash")
    assert groups and not any(group["fused"] or group["foreach"] for group in groups)


@pytest.mark.slow
def test_the_looped_update_leaves_numbers_behind_a_capture(plants, monkeypatch):
    """The update is as GraphedStep has it, on a CPU that AdamW takes for a device with graphs."""
    adam = sys.modules["torch.optim.adam"]  # torch.optim deletes its name
    monkeypatch.setattr(adam, "_get_capturable_supported_devices", lambda: ["cpu"])
    plants["looped_adamw_in_graphs"].put()
    ranks = Ranks(0, 1, torch.device("cpu"))
    config = resolve(replace(tiny(), compile=False), ranks.device)
    model = tiny_model(config)
    step = Step(model, make_optimizer(model, config, ranks.device), config, ranks)
    for group in step.optimizer.param_groups:
        group["capturable"] = True
    step.optimizer.rehearse()
    before = [parameter.clone() for parameter in step.parameters]
    x = torch.zeros(2, 8, dtype=torch.int64)
    step.backward(step.forward(x, x))
    step.update(1e-3)
    changed = [now != then for now, then in zip(step.parameters, before, strict=True)]
    assert all(parameter.isfinite().all() for parameter in step.parameters)
    assert sum(each.any() for each in changed) > 10


class Text(str):
    """A text that counts how often it is walked through."""

    walks = 0

    def __iter__(self):
        Text.walks += 1
        return super().__iter__()


def test_text_is_encoded_for_each_batch(plants, run, monkeypatch):
    monkeypatch.setattr(second, "stand_in_text", lambda length: Text("ab\n"))
    plants["reencoded_text"].put()
    before = Text.walks
    run(max_iters=3, attention="flash")
    assert Text.walks - before >= 3


def test_targets_are_ranked_in_python(plants, run, monkeypatch):
    ranked = []

    def counted(row, reverse):
        ranked.append(len(row))
        return sorted(row, reverse=reverse)

    monkeypatch.setattr(second, "sorted", counted, raising=False)
    plants["ranks_of_targets"].put()
    run(max_iters=2, attention="flash")
    assert len(ranked) == 2 * 4 * 32  # iterations, sequences, tokens


def test_a_snapshot_takes_weights_and_moments(plants, run, monkeypatch):
    made = []
    zeros = torch.zeros
    monkeypatch.setattr(second.torch, "zeros", lambda *a, **k: made.append(a) or zeros(*a, **k))
    run(max_iters=2, attention="flash")
    without = len(made)
    plants["snapshot_in_memory"].put()
    run(max_iters=2, attention="flash")
    assert len(made) - 2 * without > 3 * 10


def test_histograms_are_of_every_gradient(plants, run, monkeypatch):
    made = []
    histc = torch.histc
    monkeypatch.setattr(torch, "histc", lambda *a: made.append(a) or histc(*a))
    plants["gradient_histograms"].put()
    run(max_iters=2, attention="flash")
    assert len(made) > 20 and len(made) % 2 == 0


def test_the_cache_is_emptied_in_each_micro_step_but_in_no_graph(plants, run, monkeypatch):
    emptied, capturing = [], [False]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    second.empty_cache()
    capturing[0] = True
    second.empty_cache()
    assert emptied == [1]


@pytest.fixture
def started(monkeypatch):
    """List of what is started: (environment of the fault, words), nothing of it really."""
    calls = []

    def remember(words, environ):
        calls.append(({name: environ.get(name) for name in ("PLANT", "NCCL_P2P_DISABLE")}, words))

    def process(command, output, environ):
        remember(command[1:], environ)
        return Process(0, 0.0, 0.0, 0)

    def under_nsys(words, trainer):
        remember([*words, *trainer], os.environ)
        return 0

    monkeypatch.setattr(planted, "run_process", process)
    monkeypatch.setattr(planted.run, "main", under_nsys)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    return calls


def test_a_plant_is_trained_with_and_without_its_fault(plants, started, tmp_path):
    config = planted.PlantedConfig()
    assert planted.record("float32_products", plants["float32_products"], config, tmp_path) is None
    (without, plain), (fault, torch_words), (also, nsys_words) = started
    assert without["PLANT"] is None and fault["PLANT"] == also["PLANT"] == "float32_products"
    assert plain[0] == "train.py" and "dtype=bfloat16" in plain and "dtype=float32" not in plain
    for words in (torch_words, nsys_words):
        assert "validation.planted_train" in words and "dtype=float32" in words
    assert "profile=torch" in torch_words and "profile.start=60" in nsys_words
    assert f"out_dir={tmp_path / 'nsys'}" in nsys_words
    assert not {"PLANT", "NCCL_P2P_DISABLE"} & set(os.environ)


def test_ranks_are_started_together_and_lose_the_fault_of_their_environment(
    plants, started, tmp_path
):
    planted.record("slow_link", plants["slow_link"], planted.PlantedConfig(), tmp_path)
    assert [environ["NCCL_P2P_DISABLE"] for environ, _ in started] == [None, "1", "1"]
    assert all("--nproc-per-node=2" in words for _, words in started[:2])
    assert started[2][1][2:4] == ["--nproc-per-node", "2"]


def test_what_cannot_run_or_fails_is_told(plants, monkeypatch, started, tmp_path):
    config = planted.PlantedConfig()

    def fail(command, output, environ):
        if "train.py" in command:
            return Process(0, 0.0, 0.0, 0)
        output.write(b"starts\n" * 50 + b"ValueError: the \x1b[1mend\n")
        output.flush()
        return Process(3, 0.0, 0.0, 0)

    monkeypatch.setattr(planted, "run_process", fail)
    said = planted.record("looped_adamw_in_graphs", plants["tiny_batch"], config, tmp_path)
    first, *lines, last = said.splitlines()
    assert first == f"torch ended with 3; the end of {tmp_path / 'torch.log'}:"
    assert lines == ["    starts"] * (planted.LOG_LINES - 1)
    assert last.startswith("    ValueError: the ") and "\x1b" not in last


def test_a_plant_that_failed_is_in_the_exit_code_and_one_left_out_is_not(
    plants, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(planted, "check_machine", lambda out: None)
    monkeypatch.setattr(planted, "record", lambda *_: "nsys ended with 1; the end of ...")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    names = "tiny_batch,slow_link"
    with pytest.raises(SystemExit, match="^planted: failed: tiny_batch; the logs are in "):
        planted.main(planted.PlantedConfig(plants=names, out=str(tmp_path)))
    printed = capsys.readouterr()
    assert "tiny_batch: nsys ended with 1" in printed.err
    assert "slow_link: left out, needs 2 GPUs" in printed.err and "slow_link" not in printed.out
    assert "nsys: 0 of 1" in printed.out.splitlines()


def metrics(folder, *steps):
    folder.mkdir(parents=True)
    rows = [{"run": "x"}, *({"iter": i, "time/step_ms": ms} for i, ms in steps)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_times_are_of_settled_iterations_and_the_same_work(plants, tmp_path):
    metrics(tmp_path / "torch", (0, 900.0), (10, 90.0), (20, 3.0), (30, 2.0), (40, 2.5), (70, None))
    metrics(tmp_path / "without", (0, 900.0), (20, 64.0), (30, 128.0), (40, 192.0))
    found = planted.read("tiny_graphs", plants["tiny_graphs"], tmp_path)
    assert found.times == Times(with_ms=2.5, without_ms=2.0)
    assert found.by_tool == {"nsys": [], "torch.profiler": []}
    assert planted.read("x", plants["tiny_graphs"], tmp_path / "none").times is None


def test_captures_of_both_tools_are_read_again(tmp_path, capsys):
    for target, capture in (
        ("nsys/profile/nsys.sqlite", "slow_eager.sqlite.gz"),
        ("torch/profile/window-1.trace.json.gz", "flash_eager.trace.json.gz"),
    ):
        path = tmp_path / "tiny_micro_batches" / target
        path.parent.mkdir(parents=True)
        content = (PROJECT / "tests" / "captures" / capture).read_bytes()
        path.write_bytes(gzip.decompress(content) if path.suffix == ".sqlite" else content)
    config = planted.PlantedConfig(plants="tiny_micro_batches", out=str(tmp_path), reread=True)
    planted.main(config)
    lines = capsys.readouterr().out.splitlines()
    (row,) = (line for line in lines if line.startswith("| tiny_micro_batches | launch |"))
    assert row.count(" of ") == 2
    found = read_json(tmp_path / "results.json", list[planted.Result])
    assert [type(each[0]) for each in found[0].by_tool.values()] == [Diagnosis, Diagnosis]


def test_mistakes_are_named_before_anything_starts(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="series=3: there are 1, 2"):
        planted.main(planted.PlantedConfig(series=3))
    with pytest.raises(ValueError, match="plants=slow: no such name; did you mean slow_link"):
        planted.main(planted.PlantedConfig(plants="slow"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="planted: needs a CUDA GPU"):
        planted.main(planted.PlantedConfig(out=str(tmp_path)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(ValueError, match="holds a series"):
        planted.main(planted.PlantedConfig(out=str(tmp_path)))
