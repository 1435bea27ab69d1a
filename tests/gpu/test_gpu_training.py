"""Training on a CUDA GPU, end to end: `pytest -m gpu -n 12 --dist worksteal tests/gpu`.

The rest of the suite never trains on a GPU. What is held here: every way to launch a step comes to
the same losses, a switch is proved by kernels, a window is captured and read back, a run resumes.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from configs.backends import TABLE
from configs.profiling import ProfileConfig
from tests.helpers.flight_dumps import describe_dumps
from tests.helpers.slow_rank import describe_waits, train_with_a_slow_rank
from tests.paths import PROJECT
from training.metrics.tracker import Tracker
from training.step.step import Step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

# large enough for every kernel of attention, small enough to train in seconds
SMALL = dict(
    device="cuda",
    dtype="bfloat16",
    kernels="compiled",
    compile=False,
    cuda_graphs="false",
    attention="flash",
    n_layer=2,
    n_head=4,
    n_embd=128,
    block_size=128,
    batch_size=8,
    dropout=0.0,
    max_iters=30,
    eval_interval=30,
    log_interval=1,
    learning_rate=1e-3,
    min_lr=1e-4,
    warmup_iters=5,
)
WAYS = {
    "eager": {},
    "graphs": {"cuda_graphs": "true"},
    "compile": {"compile": True},
    "compile and graphs": {"compile": True, "cuda_graphs": "true"},
    "whole model, graphs": {"compile": True, "cuda_graphs": "true", "compile_scope": "model"},
}


@pytest.fixture
def train_on_gpu(run, rows, tmp_path):
    """train_on_gpu(**keys): (out_dir, training losses by iteration) of the small configuration."""

    def train(**keys) -> tuple[Path, list[float]]:
        out_dir = run(**{**SMALL, **keys})
        by_iteration = rows(out_dir)
        return out_dir, [
            by_iteration[i]["train/loss"] for i in sorted(by_iteration) if "lr" in by_iteration[i]
        ]

    return train


def in_force(out_dir: Path) -> dict:
    return yaml.safe_load((out_dir / "config.yaml").read_text())["in_force"]


@pytest.fixture(scope="module")
def losses_by_keys() -> dict[str, list[float]]:
    return {}


@pytest.fixture
def eager_losses(losses_by_keys, train_on_gpu, tmp_path):
    """eager_losses(**keys) of a run in the plain way: what the other ways are held against."""

    def losses_of(**keys) -> list[float]:
        if str(keys) not in losses_by_keys:
            losses_by_keys[str(keys)] = train_on_gpu(**keys, out_dir=str(tmp_path / "plain"))[1]
        return losses_by_keys[str(keys)]

    return losses_of


@pytest.mark.parametrize(
    "attention, kernels", [("flash", "compiled"), ("triton", "compiled"), ("triton", "fused")]
)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_launch_a_step_comes_to_the_same_losses(
    way, attention, kernels, train_on_gpu, eager_losses
):
    out_dir, losses = train_on_gpu(**WAYS[way], attention=attention, kernels=kernels)
    assert len(losses) == 30 and losses[-1] < losses[0] - 0.5
    # the same kernels in a graph; others may round otherwise, which bfloat16 shows
    same_kernels = attention == "flash" and not ("compile" in way or "whole" in way)
    tolerance = 2e-3 if same_kernels else 0.02
    assert losses == pytest.approx(eager_losses(), rel=tolerance)
    summary = json.loads((out_dir / "summary.json").read_text())
    assert summary["compile/graph_breaks"] == 0 and summary["best_val_loss"] < losses[0]
    assert summary["time/step_ms"] > 0 and summary["memory/peak_bytes"] > 0


@pytest.mark.parametrize("kernels", ["compiled", "fused"])
@pytest.mark.parametrize("graphs", ["false", "true"])
def test_micro_steps_add_up_to_the_batch(graphs, kernels, train_on_gpu):
    """Four micro-batches of 2 draw other windows than one of 8: the fall of the loss is alike."""
    keys = {"gradient_accumulation_steps": 4, "batch_size": 2, "cuda_graphs": graphs}
    keys["kernels"] = kernels
    _, losses = train_on_gpu(**keys)
    assert losses[-1] < losses[0] - 0.5


def test_graphs_with_accumulation_equal_eager_ones(train_on_gpu, tmp_path):
    keys = {"gradient_accumulation_steps": 3, "max_iters": 10}
    _, eager = train_on_gpu(**keys, out_dir=str(tmp_path / "eager"))
    _, graphed = train_on_gpu(**keys, cuda_graphs="true", out_dir=str(tmp_path / "graphed"))
    assert graphed == pytest.approx(eager, rel=2e-3)


@pytest.mark.parametrize("way", ["eager", "compile and graphs"])
@pytest.mark.parametrize("ours", [{"attention": "triton"}, {"kernels": "fused"}])
def test_our_own_kernels_drop_anew_in_each_iteration(way, ours, train_on_gpu):
    """Two iterations on all of a short text differ by dropout alone at learning rate 0."""
    keys = {**ours, "dropout": 0.3, "learning_rate": 0.0, "min_lr": 0.0}
    _, losses = train_on_gpu(**WAYS[way], **keys, max_iters=12)
    _, again = train_on_gpu(**WAYS[way], **keys, max_iters=12)
    assert len(set(losses)) == 12 and again == losses


@pytest.mark.parametrize("kernels", ["compiled", "fused"])
@pytest.mark.parametrize("compiled", [False, True])
def test_float16_trains_with_its_scaler(compiled, kernels, train_on_gpu):
    _, losses = train_on_gpu(dtype="float16", compile=compiled, kernels=kernels)
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("backend", [backend.name for backend in TABLE])
@pytest.mark.parametrize("graphs", ["false", "true"])
def test_the_attention_switch_is_proved_by_kernels(backend, graphs, train_on_gpu):
    out_dir, losses = train_on_gpu(attention=backend, cuda_graphs=graphs, max_iters=8)
    facts = in_force(out_dir)
    assert facts["attention"] == backend
    assert "kernel" in facts["attention_evidence"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("graphs", ["false", "true"])
def test_our_own_kernels_are_proved_by_their_names(graphs, train_on_gpu):
    out_dir, _ = train_on_gpu(kernels="fused", cuda_graphs=graphs, max_iters=4)
    assert in_force(out_dir)["own_kernels"].startswith("forward_embedding_triton")
    out_dir, _ = train_on_gpu(kernels="compiled", cuda_graphs=graphs, max_iters=4)
    assert in_force(out_dir)["own_kernels"] is None


@pytest.mark.parametrize("way", ["eager", "compile and graphs"])
def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(way, train_on_gpu, tmp_path):
    keys = {**WAYS[way], "eval_interval": 10, "dropout": 0.1, "always_save_checkpoint": True}
    _, whole = train_on_gpu(**keys, max_iters=20, out_dir=str(tmp_path / "whole"))
    halves = {**keys, "out_dir": str(tmp_path / "halves")}
    _, first = train_on_gpu(**halves, max_iters=10)
    _, both = train_on_gpu(**halves, max_iters=20, init_from="resume")
    assert len(both) == 20
    assert both[:10] == pytest.approx(whole[:10], rel=2e-3)
    assert both[10:] == pytest.approx(whole[10:], rel=0.02)  # as two equal runs differ


@pytest.mark.parametrize("first, then", [("compiled", "fused"), ("fused", "compiled")])
def test_a_run_goes_on_with_other_kernels(first, then, train_on_gpu, tmp_path):
    keys = {**WAYS["compile and graphs"], "eval_interval": 10, "always_save_checkpoint": True}
    _, whole = train_on_gpu(**keys, kernels=first, max_iters=20, out_dir=str(tmp_path / "whole"))
    halves = {**keys, "out_dir": str(tmp_path / "halves")}
    train_on_gpu(**halves, kernels=first, max_iters=10)
    _, both = train_on_gpu(**halves, kernels=then, max_iters=20, init_from="resume")
    assert both[10:] == pytest.approx(whole[10:], rel=0.02)


@pytest.mark.parametrize("way", ["eager", "compile and graphs"])
def test_rows_that_are_read_late_are_those_of_their_own_iterations(
    way, train_on_gpu, rows, tmp_path
):
    """A graph's next replay writes into the tensors that a row is read from."""
    keys = {**WAYS[way], "eval_interval": 15}
    _, losses = train_on_gpu(**keys, out_dir=str(tmp_path / "each"))
    out_dir, some = train_on_gpu(**keys, log_interval=7, out_dir=str(tmp_path / "some"))
    assert some == pytest.approx(losses[::7], rel=2e-3)
    assert some != pytest.approx(losses[1::7], rel=2e-3), "those of one later would be seen"
    order = [json.loads(line)["iter"] for line in (out_dir / "metrics.jsonl").open()]
    assert order == [0, 0, 0, 7, 14, 15, 21, 28, 30]  # the run's own line, evaluations, rows
    times = json.loads((out_dir / "step_times.json").read_text())["ms"]
    assert len(times) == 29 and None not in times
    by_iteration = rows(out_dir)
    assert all(by_iteration[i]["time/step_ms"] > 0 for i in range(0, 30, 7))


def test_the_gpu_computes_while_a_row_is_written(run, monkeypatch):
    busy, forward, log = {}, Step.forward, Tracker.log

    def slow(self, x, y):
        torch.cuda._sleep(200_000_000)  # cycles: some 100 ms, longer than a launch
        return forward(self, x, y)

    def logged(self, row):
        if "lr" in row:
            busy[row["iter"]] = not torch.cuda.current_stream().query()
        log(self, row)

    monkeypatch.setattr(Step, "forward", slow)
    monkeypatch.setattr(Tracker, "log", logged)
    run(**{**SMALL, "max_iters": 12, "eval_interval": 6, "log_interval": 1})
    # the host has read nothing of the next iteration; before an evaluation there is none
    assert busy == {iteration: iteration not in (5, 11) for iteration in range(12)}


FAST = {"optimizer": "muon", "positions": "rotary", "lr_decay": "linear"}  # of recipe=fast


@pytest.mark.parametrize("attention, kernels", [("flash", "compiled"), ("triton", "fused")])
@pytest.mark.parametrize("way", WAYS)
def test_the_fast_recipe_comes_to_the_same_losses_in_every_way(
    way, attention, kernels, train_on_gpu, eager_losses
):
    _, losses = train_on_gpu(**WAYS[way], **FAST, attention=attention, kernels=kernels)
    assert losses == pytest.approx(eager_losses(**FAST), rel=0.03)
    assert losses[-1] < losses[0] - 0.5


def test_the_fast_recipe_resumes_in_graphs_and_writes_text(train_on_gpu, tmp_path):
    keys = {**FAST, **WAYS["compile and graphs"], "eval_interval": 10}
    keys |= {"always_save_checkpoint": True, "lr_decay_iters": 20}
    _, whole = train_on_gpu(**keys, max_iters=20, out_dir=str(tmp_path / "whole"))
    halves = {**keys, "out_dir": str(tmp_path / "halves")}
    train_on_gpu(**halves, max_iters=10)
    out_dir, both = train_on_gpu(**halves, max_iters=20, init_from="resume")
    assert both == pytest.approx(whole, rel=0.03)
    command = [sys.executable, "sample.py", f"out_dir={out_dir}", "max_new_tokens=200"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and len(done.stdout) > 150, done.stderr


def report_of(place: Path, tmp_path: Path) -> dict:
    """Returns what `python -m profiling report` says of the newest capture in a folder."""
    written = tmp_path / "report.json"
    command = [sys.executable, "-m", "profiling", "report", str(place), "--json", str(written)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(written.read_text())


def steps_with_left_out(window: dict) -> int:
    """Recorded steps, with the first where torch.profiler made it so slow that no figure has it."""
    return window["steps"] + (window["left_out_ms"] is not None)


def captured(kind: str, **keys) -> dict:
    start = {"profile": ProfileConfig(kind=kind, start="40", steps=10, **keys)}
    return {**start, "max_iters": 80, "eval_interval": 100}


@pytest.mark.parametrize("way", ["eager", "compile and graphs"])
def test_torch_profiler_s_window_is_read_back(way, train_on_gpu, tmp_path):
    out_dir, _ = train_on_gpu(**WAYS[way], **captured("torch"))
    manifest = json.loads((out_dir / "profile" / "window-1.json").read_text())
    assert manifest["window"]["complete"] and manifest["window"]["steps"] == 10
    assert manifest["compiled_inside"]["graphs"] == 0
    assert len(manifest["step_ms"]["captured"]["laps"]) == 10
    assert manifest["step_ms"]["before"] and manifest["step_ms"]["after"]
    report = report_of(out_dir, tmp_path)
    assert steps_with_left_out(report["window"]) == 10
    assert report["window"]["first_iteration"] == 50 - report["window"]["steps"]
    assert report["attention_backend"] == "flash"
    assert report["attribution"]["coverage"] > 0.99
    parts = report["breakdown"]
    assert sum(parts.values()) == pytest.approx(report["window"]["step_ms"]["mean"], rel=1e-9)
    assert {row["name"] for row in report["ranges"] if row["depth"] == 0} >= {
        "data",
        "forward",
        "backward",
        "optimizer",
    }


def test_layers_are_ranged_in_an_eager_run(train_on_gpu, tmp_path):
    out_dir, _ = train_on_gpu(**captured("torch", detail="layers"))
    names = {row["name"] for row in report_of(out_dir, tmp_path)["ranges"] if row["depth"] > 0}
    assert any("attention" in name or "attn" in name for name in names), names


def test_a_memory_snapshot_is_written(train_on_gpu):
    out_dir, _ = train_on_gpu(**captured("memory"))
    files = list((out_dir / "profile").glob("*.pickle"))
    assert files and files[0].stat().st_size > 10_000


def test_a_window_of_nsys_without_nsys_says_so_and_training_goes_on(train_on_gpu, caplog):
    out_dir, losses = train_on_gpu(**captured("nsys"))
    manifest = json.loads((out_dir / "profile" / "window-1.json").read_text())
    assert manifest["return_codes"] == {"cudaProfilerStart": 0, "cudaProfilerStop": 0}
    assert manifest["nsys_attached"] is False and len(losses) == 80


def words(out_dir: Path, text_file: Path, **keys) -> list[str]:
    small = {
        **SMALL,
        "out_dir": out_dir,
        "data_source": text_file,
        "wandb.mode": "disabled",
        **keys,
    }
    return [
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in small.items()
    ]


NSYS = shutil.which("nsys") or os.environ.get("NSYS")


@pytest.mark.skipif(not NSYS, reason="needs nsys on PATH or in the variable NSYS")
@pytest.mark.parametrize("way", ["eager", "compile and graphs"])
def test_training_under_nsys_ends_with_a_report_whose_phases_own_the_kernels(
    way, text_file, project_data, tmp_path
):
    keys = {"profile.start": 40, "profile.steps": 10, "max_iters": 80, "eval_interval": 100}
    typed = words(tmp_path / "out", text_file, **WAYS[way], **keys)
    command = [sys.executable, "-m", "profiling", "run", "--nsys", NSYS, *typed]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    report = report_of(tmp_path / "out", tmp_path)
    assert report["capture"]["kind"] == "nsys" and report["capture"]["personal"] is False
    assert report["window"]["steps"] == 10 and report["attention_backend"] == "flash"
    assert report["attribution"]["coverage"] == 1.0
    gpu_ms = {row["name"]: row["gpu_ms"] for row in report["ranges"] if row["depth"] == 0}
    assert gpu_ms["backward"] > gpu_ms["forward"] > gpu_ms["optimizer"] * 0.1 > 0
    assert sum(report["idle"]["by_cause"].values()) == pytest.approx(report["breakdown"]["idle_ms"])


SHARED_UPDATE = {
    **{"kernels": "fused", "attention": "triton", "shard_update": True},
    "bucket_mb": 1,  # one is of blocks alone
}
IN_16_BITS = {**SHARED_UPDATE, "reduce_dtype": "bfloat16", "gradient_accumulation_steps": 2}
SAME_ALONE = ("dtype", "kernels", "optimizer", "gradient_accumulation_steps")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
@pytest.mark.parametrize(
    "keys",
    [
        {},
        WAYS["compile and graphs"],
        {"kernels": "fused", "attention": "triton"},
        {"kernels": "fused", "attention": "triton", **WAYS["compile and graphs"]},
        {"kernels": "fused", "attention": "triton", "activation_checkpointing": "selective"},
        {"optimizer": "muon", **WAYS["compile and graphs"]},
        {"optimizer": "muon", "kernels": "fused", "attention": "triton", "cuda_graphs": "true"},
        {"kernels": "fused", "attention": "triton", "cuda_graphs": "true", "all_reduce": "copies"},
        {"all_reduce": "copies", "bucket_mb": 1},
        {**SHARED_UPDATE, "cuda_graphs": "false"},
        {**SHARED_UPDATE, **WAYS["compile and graphs"]},
        {**SHARED_UPDATE, "cuda_graphs": "true", "all_reduce": "copies"},
        {**IN_16_BITS, "cuda_graphs": "false"},
        {**IN_16_BITS, "cuda_graphs": "false", "all_reduce": "copies"},
        {**IN_16_BITS, "cuda_graphs": "true", "all_reduce": "copies"},
        {"parallel": "fsdp"},
        {"parallel": "fsdp", "dtype": "float16", "activation_checkpointing": "full"},
        {"parallel": "fsdp", "compile": True, "cuda_graphs": "auto"},
    ],
    ids=str,
)
def test_two_ranks_train_like_one_that_accumulates(keys, text_file, project_data, tmp_path):
    losses = {}
    for ranks in (1, 2):
        out_dir = tmp_path / str(ranks)
        alone = {key: keys[key] for key in SAME_ALONE if key in keys}
        shared = {"gradient_accumulation_steps": 6, **(keys if ranks == 2 else alone)}
        typed = words(out_dir, text_file, max_iters=10, **shared)
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
        command = [sys.executable, *launcher, str(PROJECT / "train.py"), *typed]
        done = subprocess.run(command, capture_output=True, text=True, timeout=170)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
        lines = map(json.loads, (out_dir / "metrics.jsonl").read_text().splitlines())
        losses[ranks] = [line["train/loss"] for line in lines if "train/loss" in line]
    assert losses[2] == pytest.approx(losses[1], rel=5e-3)


def with_project() -> dict[str, str]:
    """The environment for a script that lies elsewhere and imports the project's modules."""
    places = [str(PROJECT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
@pytest.mark.parametrize("way", ["eager", "compile and graphs"])
def test_a_slow_rank_is_named_with_what_it_costs(way, text_file, project_data, tmp_path):
    """The fast rank's host launches its work while its GPU waits, so that this GPU waits for the
    slow rank's launches too: for more than the delay, by no more than those take."""
    keys = {**WAYS[way], "gradient_accumulation_steps": 2, "max_iters": 200, "log_interval": 10}
    typed = words(tmp_path / "out", text_file, **keys, eval_interval=200)
    script = train_with_a_slow_rank(tmp_path, rank=1, ms=20.0, said_after_s=1.0)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command = [sys.executable, *launcher, str(script), *typed]
    done = subprocess.run(command, env=with_project(), capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    lines = map(json.loads, (tmp_path / "out" / "metrics.jsonl").read_text().splitlines())
    waited = [line for line in lines if "time/wait_ms" in line]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    launch_ms = summary["time/host_step_ms"]
    figures = f"of 20 ms, launched in {launch_ms:.2f}: {describe_waits(waited)}"
    assert len(waited) == 19 and all(row["time/slowest_rank"] == 1 for row in waited), figures
    for name in ("time/straggler_ms", "time/wait_ms/rank0"):
        cost_ms = sorted(row[name] for row in waited)[len(waited) // 2]
        assert 19.0 < cost_ms < 22.0 + launch_ms, f"{name} {figures}"
    (said,) = [line for line in done.stdout.splitlines() if line.startswith("warning: the others")]
    assert "ms step for rank 1: " in said and f"--ranks all {tmp_path}/out/config.yaml" in said


# as if the small model had the size of GPT-2 124M
CHOOSES = """
from configs import command_line
from training.machine import parallel
import train

parallel.MEASURED_WEIGHTS = 0
command_line.run(train.train)
"""


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs with NVLink")
def test_two_linked_gpus_choose_copies_and_a_shared_update(text_file, project_data, tmp_path):
    """Copies are tried before training: NCCL's kernels are looked for twice."""
    script = tmp_path / "chooses.py"
    script.write_text(CHOOSES)
    keys = {**SHARED_UPDATE, "shard_update": "null", "all_reduce": "auto", "cuda_graphs": "true"}
    keys |= {"n_layer": 4, "gradient_accumulation_steps": 2, "max_iters": 10}
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command = [sys.executable, *launcher, str(script), *words(tmp_path / "out", text_file, **keys)]
    done = subprocess.run(command, env=with_project(), capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    chosen = "all_reduce=copies: NVLink connects the 2 GPUs of this run; shard_update=true: gains"
    assert chosen in done.stdout and "shard_update=true: each of 2 ranks" in done.stdout
    assert done.stdout.count("all_reduce=copies: NCCL runs no kernel") == 2


# rank 1 sleeps instead of sending gradients of one of the first iterations. NCCL's patience is
# 10 s, and its watchdog aborts rank 0 four times WAIT_FOR_DUMP_MS later. Rank 1 wakes behind that,
# enters the all-reduce alone and fails in gloo, before torchrun kills it
WAIT_FOR_DUMP_MS = 4000
HANGS = """
import os, time
from datetime import timedelta
import torch.distributed as dist
made = dist.init_process_group
dist.init_process_group = lambda *a, **k: made(*a, timeout=timedelta(seconds=10), **k)
from configs import command_line
from training.step.step import Step
import train

backward, calls = Step.backward, []

def late(self, loss):
    calls.append(1)
    if len(calls) == 8 and os.environ["RANK"] == "1":
        time.sleep(34)
    backward(self, loss)

Step.backward = late
command_line.run(train.train)
"""


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
def test_a_hang_under_nccl_is_told(text_file, project_data, tmp_path):
    """NCCL's watchdog writes the dumps of both ranks and aborts: nothing of the trainer runs then.
    What these say stays, whatever the rank does that comes too late."""
    script, out_dir = tmp_path / "hangs.py", tmp_path / "out"
    script.write_text(HANGS)
    typed = words(out_dir, text_file, gradient_accumulation_steps=2, max_iters=20, compile=False)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command = [sys.executable, *launcher, str(script), *typed]
    env = with_project() | {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": str(WAIT_FOR_DUMP_MS)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=env)
    assert done.returncode != 0
    assert "is deprecated" not in done.stderr  # the name that this torch reads
    verb = [sys.executable, "-m", "profiling", "hang", str(out_dir), "--json", "-"]
    said = subprocess.run(verb, cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert said.returncode == 1, said.stdout + said.stderr + done.stderr[-3000:]
    stuck, *others = json.loads(said.stdout)["stuck"]
    found = stuck["why"], stuck["waiting"], stuck["absent"], others
    assert found == ("absent", [0], [1], []), describe_dumps(out_dir)
    assert stuck["members"] == [0, 1] and stuck["variants"][0]["call"]["backend"] == "nccl"
    assert stuck["variants"][0]["call"]["stack"][0].startswith("ranks/all_reduce.py:")
    assert stuck["waited_s"] >= 10 and stuck["timeout_s"] == 10


def test_sampling_from_a_trained_model_replays_graphs(train_on_gpu):
    out_dir, _ = train_on_gpu(max_iters=10, eval_interval=5)
    command = [sys.executable, "sample.py", f"out_dir={out_dir}", "start=ROMEO:"]
    command += ["num_samples=2", "max_new_tokens=100"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ROMEO:") >= 2


def sampled(out_dir: Path, *command: str) -> subprocess.CompletedProcess[str]:
    words = [f"out_dir={out_dir}", "start=ROMEO:", "num_samples=3", "max_new_tokens=40"]
    done = subprocess.run(
        [sys.executable, *command, *words, "profile.start=76", "profile.steps=10"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return done


def check_generation(report: dict) -> None:
    """Ten tokens around the prompt of the third sample, whose steps are CUDA graphs."""
    window = report["window"]
    assert window["step_name"] == "token" and steps_with_left_out(window) == 10
    assert window["first_iteration"] == 76 + 10 - window["steps"]
    gpu_ms = {row["name"]: row["gpu_ms"] for row in report["ranges"] if row["depth"] == 0}
    assert gpu_ms["prefill"] > 0 and gpu_ms["decode"] > gpu_ms["prefill"]
    assert report["attribution"]["coverage"] > 0.9
    graphs = [row["count"] for row in report["api"] if row["name"].startswith("cudaGraphLaunch")]
    assert sum(graphs) == window["steps"]  # the prompt's, and one of a token again and again
    parts = report["breakdown"]
    assert sum(parts.values()) == pytest.approx(report["window"]["step_ms"]["mean"], rel=1e-9)


def test_tokens_of_a_sample_are_captured(train_on_gpu, tmp_path):
    out_dir, _ = train_on_gpu(max_iters=10, eval_interval=5)
    plain = sampled(out_dir, "sample.py").stdout
    done = sampled(out_dir, "sample.py", "profile=torch")
    assert "tokens 76 to 85" in done.stderr and done.stdout == plain
    check_generation(report_of(out_dir / "sample", tmp_path))


@pytest.mark.skipif(not NSYS, reason="needs nsys on PATH or in the variable NSYS")
def test_tokens_of_a_sample_are_captured_under_nsys(train_on_gpu, tmp_path):
    out_dir, _ = train_on_gpu(max_iters=10, eval_interval=5)
    sampled(out_dir, "-m", "profiling", "run", "--nsys", str(NSYS), "sample.py")
    report = report_of(out_dir / "sample", tmp_path)
    assert report["capture"]["manifest"] == "window-1.json"
    check_generation(report)
