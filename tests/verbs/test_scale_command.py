"""The verb scale: printed and written results, and refusals."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.fleet.simulation import Fleet
from cli.errors import user_errors
from profiling.verbs import scale
from tests.helpers.fleet import write_fleet
from tests.paths import CAPTURES

TRACE = str(CAPTURES / "flash_eager.trace.json.gz")
MANIFEST = str(CAPTURES / "flash_eager.trace.window-1.json")
GIVEN = [TRACE, "--manifest", MANIFEST]
MODES = ("one", "ddp", "fsdp", "hsdp")
PAIRS = [["1", "one"], ["4", "ddp"], ["4", "fsdp"], ["64", "ddp"], ["64", "fsdp"], ["64", "hsdp"]]
KIND = {".json": "json", ".md": "markdown", ".html": "html"}


def result_of(path: Path, *flags: str) -> dict:
    assert scale.main([*GIVEN, "--json", str(path), *flags]) == 0
    return json.loads(path.read_text())


def test_a_table_a_choice_and_what_is_assumed(capsys):
    assert scale.main([*GIVEN, "--gpus", "1,4,64"]) == 0
    said = capsys.readouterr().out
    found = [line.split()[:2] for line in said.splitlines() if line.strip()]
    rows = [words for words in found if words[0].isdigit() and words[1] in MODES]
    assert rows == PAIRS
    assert "Predicted (speed of links and network assumed): on 64 GPUs with ddp" in " ".join(
        said.split()
    )
    assert "4 to 64 GPUs: ddp" in said and "data sheet's 450 GB/s" in said


@pytest.mark.parametrize("gpus", ["2,4,8", "16,64", "4"])
def test_the_one_gpu_of_the_capture_need_not_be_asked_for(gpus, capsys):
    assert scale.main([*GIVEN, "--gpus", gpus]) == 0
    assert f"{gpus.rpartition(',')[2]} GPUs with" in capsys.readouterr().out


def test_all_outputs(tmp_path, capsys):
    files = [tmp_path / f"scale.{ending}" for ending in ("json", "md", "html")]
    flags = [word for path in files for word in (f"--{KIND[path.suffix]}", str(path))]
    assert scale.main([*GIVEN, *flags]) == 0
    assert "written:" in capsys.readouterr().out
    assert json.loads(files[0].read_text())["measured"]["step_ms"] == pytest.approx(7.42, abs=0.01)
    assert "| 1,024 | hsdp |" in files[1].read_text()
    assert '"efficiency"' in files[2].read_text()


def test_links_that_are_given_have_their_range(tmp_path):
    found = result_of(tmp_path / "a.json", "--link", "200,300", "--network", "9,12", "--gpus", "16")
    assert (found["link"]["low_gb_per_s"], found["link"]["high_gb_per_s"]) == (200, 300)
    assert found["link"]["source"] == found["network"]["source"] == "given"
    row = found["predictions"][0]
    assert row["fastest_ms"] < row["step_ms"] < row["slowest_ms"] and row["mode"] == "ddp"
    assert {each["mode"] for each in found["predictions"]} == {"ddp", "fsdp", "hsdp"}


def test_one_way_of_sharing(tmp_path):
    flags = ("--parallel", "fsdp", "--gpus", "8", "--slowdown", "10")
    found = result_of(tmp_path / "a.json", *flags)
    assert [row["mode"] for row in found["predictions"]] == ["fsdp"]
    assert found["slowdown"] == {"percent": 10.0, "source": "given"}


def test_ddp_by_copies_in_a_node(tmp_path):
    flags = ("--all-reduce", "copies", "--gpus", "4,16")
    found = result_of(tmp_path / "a.json", *flags)
    ways = [(row["gpus"], row["all_reduce"]) for row in found["predictions"] if row["all_reduce"]]
    assert ways == [(4, "copies"), (16, "collective")]
    assert found["slowdown_beside_copies"]["source"] == "assumed"
    assert result_of(tmp_path / "b.json", *flags[2:])["slowdown_beside_copies"] is None


def test_ddp_with_a_shared_update(tmp_path, capsys):
    known = json.loads(Path(MANIFEST).read_text())
    known["config"] |= {"kernels": "fused", "bucket_mb": 5.0}
    manifest = tmp_path / "window-1.json"
    manifest.write_text(json.dumps(known))
    words = [TRACE, "--manifest", str(manifest), "--gpus", "1,4", "--shard-update"]
    words += ["--reduce-dtype", "bfloat16"]
    assert scale.main([*words, "--json", str(tmp_path / "a.json")]) == 0
    found = json.loads((tmp_path / "a.json").read_text())
    ways = [(row["gpus"], row["mode"]) for row in found["predictions"] if row["shard_update"]]
    assert ways == [(4, "ddp")]
    assert {row["reduce_dtype"] for row in found["predictions"]} == {"bfloat16", None}
    capsys.readouterr()
    assert scale.main(words) == 0
    said = capsys.readouterr().out
    assert "shard_update=true: with ddp each GPU updates its part" in said
    assert "reduce_dtype=bfloat16: gradients" in said


def test_links_are_measured_from_captures_of_ranks(tmp_path, monkeypatch):
    # 50 MB in 0.4 ms and more, as the simulated fleet moves them
    write_fleet(Fleet(ranks=4, steps=4, buckets=2, slowdown=1.5), tmp_path / "ranks")
    found = result_of(tmp_path / "a.json", "--links-from", str(tmp_path / "ranks"), "--gpus", "4")
    assert found["link"]["source"] == "measured"
    assert found["link"]["low_gb_per_s"] <= found["link"]["gb_per_s"]
    assert found["slowdown"]["source"] == "measured"
    assert found["slowdown"]["percent"] == pytest.approx(50, abs=8)


def test_the_memory_of_a_run_is_in_its_folder(tmp_path):
    """The peak of the run less 16 bytes a parameter is what activations take."""
    run = tmp_path / "run"
    shutil.copytree(CAPTURES.parents[1] / "profiling/examples/runs/flash-1", run)
    (run / "profile").mkdir()
    shutil.copy(TRACE, run / "profile" / "window-1.trace.json.gz")
    shutil.copy(MANIFEST, run / "profile" / "window-1.json")
    assert scale.main([str(run), "--json", str(tmp_path / "a.json"), "--gpus", "1,8"]) == 0
    found = json.loads((tmp_path / "a.json").read_text())
    memory = found["predictions"][0]["memory"]
    assert memory["activations"] == 1741806592 - 16 * found["model"]["parameters"]
    assert all(row["fits"] for row in found["predictions"])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nowhere"], "nowhere: no such file or folder"),
        ([TRACE], "there is no manifest beside the capture with the model's sizes"),
        ([*GIVEN, "--gpus", "12"], "--gpus 12: must be a multiple of --gpus-per-node 8"),
        ([*GIVEN, "--gpus", ","], "--gpus: is empty; give one or more, separated by commas"),
        ([*GIVEN, "--gpus", "0"], "--gpus: 0: must be 1 to 131072"),
        ([*GIVEN, "--gpus", "8,many"], "--gpus: 8,many: give numbers by comma, such as 8,64"),
        ([*GIVEN, "--gpus-per-node", "0"], "--gpus-per-node: 0: must be 1 to"),
        ([*GIVEN, "--link", "-3"], "--link"),
        ([*GIVEN, "--link", "1,2,3"], "--link: 1,2,3: give GB/s, or LOW,HIGH"),
        ([*GIVEN, "--link", "5x"], "--link: 5x: give GB/s, or LOW,HIGH"),
        ([*GIVEN, "--parallel", "tensor"], "--parallel: invalid choice: 'tensor'"),
        ([*GIVEN, "--all-reduce", "ring"], "--all-reduce: invalid choice: 'ring'"),
        (
            [*GIVEN, "--all-reduce", "copies", "--parallel", "fsdp"],
            "--all-reduce copies: only works with ddp, not with --parallel fsdp",
        ),
        (
            [*GIVEN, "--all-reduce", "copies", "--gpus", "1,16"],
            "--all-reduce copies: only works on several GPUs of one node",
        ),
        (
            [*GIVEN, "--shard-update", "--parallel", "hsdp"],
            "--shard-update: only works with ddp, not with --parallel hsdp",
        ),
        (
            [*GIVEN, "--reduce-dtype", "bfloat16"],
            "--reduce-dtype bfloat16: only works with --shard-update",
        ),
        ([*GIVEN, "--reduce-dtype", "float16"], "--reduce-dtype: invalid choice: 'float16'"),
        ([*GIVEN, "--shard-update", "--gpus", "1"], "--shard-update: needs several GPUs"),
        (
            [*GIVEN, "--shard-update"],
            "--shard-update: needs kernels=fused, but this run has kernels=compiled",
        ),
        ([*GIVEN, "--links-from", "nowhere"], "--links-from nowhere: no such file or folder"),
        ([*GIVEN, "--links-from", str(CAPTURES)], "--links-from"),
        ([*GIVEN, "--json", TRACE], "the name must end in .json"),
        ([str(CAPTURES / "ncu_flash.details.csv")], "not a capture"),
    ],
)
def test_mistakes_are_told_in_one_line(words, why, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended, user_errors():
        scale.main(words)
    said = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and len(said) == 1 and why in said[0], said


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"world_size": 4},
            "the capture is from one rank of 4; give a capture of a run on one GPU",
        ),
        ({"vocab_size": None}, "there is no manifest beside the capture with the model's sizes"),
        ({"config": {"n_layer": -1}}, "the configuration in its manifest is damaged"),
        ({"config": None}, "there is no manifest beside the capture with the model's sizes"),
    ],
)
def test_a_manifest_that_does_not_tell(change, why, capsys, tmp_path):
    manifest = tmp_path / "window-1.json"
    manifest.write_text(json.dumps(json.loads(Path(MANIFEST).read_text()) | change))
    with pytest.raises(SystemExit) as ended, user_errors():
        scale.main([TRACE, "--manifest", str(manifest)])
    said = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and len(said) == 1 and why in said[0], said
