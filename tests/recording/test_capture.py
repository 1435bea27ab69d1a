"""profile=torch for real: files of a captured run, and refusals."""

import gzip
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from configs.compose import compose_jobs
from configs.profiling import ProfileConfig
from configs.schema import Config
from configs.texts import quote_texts
from profiling.recording.nsys import how_to_attach, is_attached
from profiling.recording.torch_profiler import write_packed_trace
from tests.helpers.full_disk import files_no_larger_than
from tests.helpers.processes import read_until
from training.profiler import Profiler
from training.ranks.distributed import Ranks

LONG = dict(max_iters=40, eval_interval=40)


def torch_profile(**keys) -> ProfileConfig:
    return ProfileConfig(kind="torch", **{"start": "10", "steps": 5, **keys})


def manifest_of(out_dir, number=1):
    return json.loads((out_dir / "profile" / f"window-{number}.json").read_text())


def ranges_of(out_dir, number=1) -> list[tuple[int, str]]:
    return ranges_in(out_dir / "profile" / f"window-{number}.trace.json.gz")


def ranges_in(path) -> list[tuple[int, str]]:
    """(depth, name) of every range in the trace, by its times alone."""
    with gzip.open(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    events = [e for e in events if e.get("cat") == "user_annotation"]
    events = [e for e in events if not e["name"].startswith("gloo:")]  # on their way, beside all
    found, ends = [], []
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        while ends and ends[-1] <= event["ts"]:
            ends.pop()
        end = event["ts"] + event["dur"]
        assert not ends or end <= ends[-1], f"{event['name']} reaches out of its range"
        found.append((len(ends), event["name"]))
        ends.append(end)
    return [r for r in found if not r[1].startswith(("PyTorch Profiler", "Optimizer."))]


@pytest.mark.slow
def test_torch_profiler_captures_these_iterations_and_no_others(
    run, rows, losses, tmp_path, capsys
):
    plain = run(**LONG, out_dir=str(tmp_path / "plain"))
    out_dir = run(**LONG, profile=torch_profile())
    assert f"next: python -m profiling report {out_dir}" in capsys.readouterr().out
    assert losses(out_dir) == losses(plain)
    iterations = [name for depth, name in ranges_of(out_dir) if name.startswith("iteration")]
    assert iterations == [f"iteration {number}" for number in range(10, 15)]
    phases = [name for depth, name in ranges_of(out_dir) if depth == 1]
    expected = ["data", "forward", "backward", "optimizer"]
    assert phases == expected * 5
    by_iteration = rows(out_dir)
    captured = [i for i, row in by_iteration.items() if row.get("profile/captured_steps")]
    assert captured == list(range(10, 15))
    for iteration, row in by_iteration.items():
        disturbed = 7 <= iteration < 15  # the tracer is on in the three before, too
        if iteration < 40:
            assert (row["time/step_ms"] is None) == disturbed
            assert (row["perf/tokens_per_s"] is None) == disturbed
        assert ("profile/step_ms" in row) == (iteration in captured)
    table = (out_dir / "profile" / "window-1.operators.txt").read_text()
    assert "aten::addmm" in table or "aten::mm" in table
    check_manifest(out_dir)
    run(max_iters=4)
    assert not (out_dir / "profile").exists(), "captures of the old run move aside"
    assert (out_dir / "previous-1" / "profile" / "window-1.json").exists()


def check_manifest(out_dir):
    """Assert that the manifest describes the run, and that nothing else is in the folder."""
    manifest = manifest_of(out_dir)
    assert manifest["schema_version"] == 1 and manifest["kind"] == "torch"
    assert manifest["window"]["complete"] and manifest["window"]["errors"] == []
    assert [len(manifest["step_ms"][w]["laps"]) for w in ("before", "captured", "after")] == [
        7, 5, 20,
    ]  # fmt: skip
    assert manifest["attention"]["ran"] == "flash" and "evidence" in manifest["attention"]
    assert manifest["compile"]["compile"] is False and manifest["compile"]["graphs"] == 0
    assert manifest["config"]["profile"]["start"] == "10" and manifest["config"]["n_layer"] == 2
    assert {"git", "packages", "python", "gpus"} <= set(manifest["environment"])
    for name in manifest["files"]:
        assert (out_dir / "profile" / name).stat().st_size > 0
    assert sorted(p.name for p in (out_dir / "profile").iterdir()) == sorted(
        [*manifest["files"], "window-1.json"]
    )


LAYERS = """
forward
  block 0
    attention
      attend
        scores
        softmax
        values
    mlp
  block 1
    attention
      attend
        scores
        softmax
        values
    mlp
backward
  block 1
    mlp
    attention
      attend
        values
        softmax
        scores
  block 0
    mlp
    attention
      attend
        values
        softmax
        scores
""".strip("\n")


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["slow", "math"])
def test_layers_are_ranged_forward_and_backward(run, losses, tmp_path, attention):
    keys = dict(attention=attention, dropout=0.1, **LONG)
    plain = run(**keys, out_dir=str(tmp_path / "plain"))
    out_dir = run(**keys, profile=torch_profile(detail="layers", steps=2))
    assert losses(out_dir) == losses(plain)
    lines = ["  " * (depth - 1) + name for depth, name in ranges_of(out_dir) if depth > 0]
    lines = lines[: lines.index("optimizer")]
    parts = ("scores", "softmax", "values")
    expected = [
        line for line in LAYERS.splitlines() if attention == "slow" or line.strip() not in parts
    ]
    assert lines == ["data", *expected]
    assert manifest_of(out_dir)["backward_on_calling_thread"] is True


@pytest.mark.slow
def test_options_reach_torch_profiler(run):
    out_dir = run(**LONG, profile=torch_profile(shapes=True, stack=True, memory=True, steps=1))
    with gzip.open(out_dir / "profile" / "window-1.trace.json.gz", "rt") as file:
        trace = json.load(file)
    assert trace["record_shapes"] == trace["with_stack"] == trace["profile_memory"] == 1
    assert any("Input Dims" in event.get("args", {}) for event in trace["traceEvents"])


def test_a_disk_that_is_full_while_a_trace_is_packed_keeps_no_part_of_it(tmp_path):
    noise = os.urandom(4000)  # which packed is larger
    profiler = SimpleNamespace(export_chrome_trace=lambda path: Path(path).write_bytes(noise))
    with files_no_larger_than(4000), pytest.raises(ValueError, match="File too large"):
        write_packed_trace(profiler, tmp_path / "window-1.trace.json.gz")
    assert not [*tmp_path.iterdir()]
    write_packed_trace(profiler, tmp_path / "window-1.trace.json.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["window-1.trace.json.gz"]


@pytest.mark.slow
def test_a_run_ended_by_a_signal_has_its_window(command, start, tmp_path):
    keys = {"profile": "torch", "profile.start": 10, "profile.steps": 5000}
    process = start(command(max_iters=10_000, eval_interval=10_000, **keys))
    read_until(process, "iter 20:")
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 143, output
    window = manifest_of(tmp_path / "out")["window"]
    assert (window["complete"], window["ended_by"]) == (False, "interrupted")
    iterations = [n for _, n in ranges_of(tmp_path / "out") if n.startswith("iteration")]
    assert len(iterations) == window["steps"] >= 10
    assert iterations[-1] == f"iteration {window['last_iteration']}"
    assert "checkpoint" not in [name for _, name in ranges_of(tmp_path / "out")]
    assert (tmp_path / "out" / "ckpt.pt").exists()


@pytest.mark.slow
def test_a_resumed_run_counts_on(run, rows):
    out_dir = run(max_iters=8, eval_interval=8)
    keys = dict(max_iters=24, eval_interval=8, init_from="resume")
    run(**keys, profile=torch_profile(steps=3))
    iterations = [name for _, name in ranges_of(out_dir) if name.startswith("iteration")]
    assert iterations == ["iteration 10", "iteration 11", "iteration 12"]
    run(**{**keys, "max_iters": 40}, profile=torch_profile(start="30", steps=2))
    assert manifest_of(out_dir, 1)["window"]["first_iteration"] == 10
    assert manifest_of(out_dir, 2)["window"]["moved_from"] is None
    assert manifest_of(out_dir, 2)["window"]["first_iteration"] == 30


@pytest.mark.slow
def test_every_chosen_rank_captures(together):
    keys = {"profile": "torch", "profile.start": 2, "profile.steps": 2, "profile.ranks": "all"}
    out_dir, _ = together(2, gradient_accumulation_steps=4, dropout=0.0, **keys)
    folder = out_dir / "profile"
    for rank in (0, 1):
        manifest = json.loads((folder / f"window-1-rank{rank}.json").read_text())
        assert (manifest["rank"], manifest["world_size"]) == (rank, 2)
        assert manifest["window"]["complete"] and len(manifest["files"]) == 2
        names = [n for d, n in ranges_in(folder / f"window-1-rank{rank}.trace.json.gz") if d == 1]
        assert names == ["micro_step 0", "micro_step 1", "gradient_sync", "optimizer"] * 2


@pytest.mark.parametrize(
    ("words", "captured"),
    [
        ([], [0]),
        (["profile.ranks=[2,0]"], [0, 2]),
        (["profile.ranks=all"], [0, 1, 2]),
        (["profile.ranks=[all]"], [0, 1, 2]),  # as a file has it
    ],
)
def test_ranks_are_numbers_or_all(words, captured):
    (found,) = compose_jobs(None, quote_texts(words, multirun=False), multirun=False)
    assert found.profile.captured_ranks(3) == captured
    found.profile.check_machine("cuda", 3)


@pytest.mark.slow
def test_auto_opens_by_itself(run):
    out_dir = run(max_iters=300, eval_interval=300, profile=torch_profile(start="auto"))
    window = manifest_of(out_dir)["window"]
    assert 13 <= window["first_iteration"] <= 203 and window["complete"]


@pytest.mark.parametrize(
    "words, message",
    [
        ("profile.start=400", "profile.start=400: the run ends at max_iters=400"),
        (
            "profile.start=395 eval_interval=1000",
            "profile.start=395: window 1 would be iterations 395 to 414, but the run ends at",
        ),
        (
            "profile.start=345 max_iters=360",
            "profile.start=345: window 1, moved to after an evaluation, would be iterations 350 to",
        ),
        ("profile.windows=2", "profile.windows=2: window 2 would be iterations 500 to 519"),
        ("profile.steps=0", "profile.steps=0: must be at least 1"),
        ("profile.steps=51", "profile.steps=51: an evaluation, every eval_interval=50 iterations"),
        ("profile.windows=0", "profile.windows=0: must be at least 1"),
        ("profile.windows=2 profile.every=19", "profile.every=19: the windows of 20 iterations"),
        ("profile.start=soon", "profile.start=soon: must be auto or an iteration"),
        ("profile.start=-3", "profile.start=-3: must be auto or an iteration"),
        (
            "profile.ranks=[]",
            "profile.ranks=[]: must be all, or rank numbers of at least 0, each once",
        ),
        ("profile.ranks=[0,0]", "profile.ranks=[0,0]: must be all, or rank numbers"),
        (
            "profile.ranks=[0,all]",
            "profile.ranks=[0,all]: must be all, or rank numbers of at least 0, each once",
        ),
        ("profile.ranks=[-1]", "profile.ranks=[-1]: must be all, or rank numbers"),
        ("profile.ranks=[1.5]", "profile.ranks=[1.5]: must be all, or rank numbers"),
        ("profile.ranks=every", "profile.ranks=every: must be a list such as [a,b] or [all]"),
        ("profile.detail=layer", "profile.detail=layer: no such choice; did you mean layers?"),
        ("profile.detail=layers compile=true", "profile.detail=layers: torch.compile fuses"),
        (
            "profile.detail=layers compile=false cuda_graphs=true",
            "profile.detail=layers: a CUDA graph is launched as a whole",
        ),
        (
            "profile.detail=layers compile=false profile.attribute_backward=false",
            "profile.attribute_backward=false: profile.detail=layers needs backward",
        ),
        ("profile.attribute_backward=maybe", "profile.attribute_backward=maybe: no such choice"),
        ("profile.warmup=-1", "profile.warmup=-1: must be at least 0"),
        ("profile.star=3", "profile.star: no such key; did you mean profile.start?"),
        ("profile=nsis", "profile=nsis: no such choice; did you mean nsys?"),
        ("profile=null", "profile=null: no such choice"),
        ("profile.kind=torch", "profile.kind=torch: write profile=torch"),
        ("~profile", "~profile: keys cannot be added or deleted"),
    ],
)
def test_impossible_windows_are_refused_by_name(words, message):
    arguments = ["profile=nsys", "max_iters=400", "eval_interval=50", *words.split()]
    with pytest.raises(ValueError) as raised:
        compose_jobs(None, arguments, multirun=False)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "profile, device, ranks, message",
    [
        (dict(kind="nsys"), "cpu", 1, "profile=nsys: needs a CUDA GPU, but this run is on cpu"),
        (dict(kind="memory"), "mps", 1, "profile=memory: needs a CUDA GPU, but this run is on mps"),
        (dict(kind="nsys", ranks=["1"]), "cuda", 1, "profile.ranks=[1]: this run has only rank 0"),
        (dict(kind="torch", ranks=["0", "4"]), "cpu", 4, "profile.ranks=[0,4]: this run has"),
    ],
)
def test_what_this_machine_cannot_do_is_refused_by_name(profile, device, ranks, message):
    with pytest.raises(ValueError) as raised:
        ProfileConfig(**profile).check_machine(device, ranks)
    assert str(raised.value).startswith(message)


def test_torch_profiler_is_refused_under_nsys(config, monkeypatch):
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "7")
    ranks = Ranks(1, 2, torch.device("cuda", 1))  # where it would not record, either
    with pytest.raises(ValueError, match="^profile=torch: nsys is attached"):
        Profiler(config(profile=ProfileConfig(kind="torch", start="1", steps=2)), ranks)


def test_nsys_without_a_gpu_is_refused_before_anything_is_made(run, tmp_path):
    with pytest.raises(ValueError, match="^profile=nsys: needs a CUDA GPU"):
        run(profile=ProfileConfig(kind="nsys", start="1", steps=2))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_word_sets_a_kind_and_keys_lie_over_it():
    jobs = compose_jobs(None, ["profile=nsys,torch,memory,none", "profile.start=100"], True)
    assert [(job.profile.kind, job.profile.steps) for job in jobs] == [
        ("nsys", 20), ("torch", 10), ("memory", 3), ("none", 20),
    ]  # fmt: skip
    assert {job.profile.start for job in jobs} == {"100"}
    (job,) = compose_jobs(None, ["profile.steps=7", "profile=torch"], False)
    assert (job.profile.kind, job.profile.steps) == ("torch", 7)
    assert Config().profile == ProfileConfig()


def test_a_file_may_profile_and_the_command_line_may_not(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("profile: {kind: torch, start: 30, steps: 4}\n")
    (job,) = compose_jobs(path, [], False)
    assert (job.profile.kind, job.profile.start, job.profile.steps) == ("torch", "30", 4)
    (job,) = compose_jobs(path, ["profile=none"], False)
    assert (job.profile.kind, job.profile.steps) == ("none", 4)
    path.write_text("defaults: [{profile: memory}]\nprofile: {start: 30}\n")
    (job,) = compose_jobs(path, [], False)
    assert (job.profile.kind, job.profile.steps, job.profile.start) == ("memory", 3, "30")
    path.write_text("profile: {kind: nsis}\n")
    with pytest.raises(ValueError, match="x.yaml: profile.kind=nsis: no such choice"):
        compose_jobs(path, [], False)


def test_backward_runs_on_the_calling_thread_for_nsys_and_for_layers():
    def of(**keys):
        return ProfileConfig(**keys).backward_on_calling_thread

    assert of(kind="nsys") and of(kind="torch", detail="layers")
    assert not of(kind="torch") and not of(kind="nsys", attribute_backward="false")
    assert of(kind="torch", attribute_backward="true")


def test_whether_nsys_is_attached_and_how_it_would_be():
    assert not is_attached({"LD_PRELOAD": "libother.so"})
    assert is_attached({"NSYS_PROFILING_SESSION_ID": "7"})
    assert is_attached({"CUDA_INJECTION64_PATH": "/opt/libToolsInjection64.so"})
    assert "--capture-range-end=stop -o" in how_to_attach(ProfileConfig())
    assert "--capture-range-end=repeat:3 -o" in how_to_attach(ProfileConfig(windows=3))
