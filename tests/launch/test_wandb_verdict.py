"""`compare --wandb` and `ab --wandb`: with the real W&B client, and a server of our own."""

import json
import shlex
import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from profiling.launch.wandb_verdict import project
from tests.fakes.fake_wandb_server import FakeWandbServer
from tests.paths import CAPTURES, GOLDENS

API_KEY = "0123456789abcdef" * 3
PAIR = [str(CAPTURES / f"{attention}_compile.sqlite.gz") for attention in ("slow", "flash")]
LOG_EXPERIMENT = """
import sys
from pathlib import Path
from profiling.analysis.difference.comparison_records import Experiment
from profiling.launch.wandb_verdict import log_experiment
from profiling.shared.json_records import read_json

Path("of-attention").mkdir()
record = read_json(Path(sys.argv[1]), Experiment)
print(log_experiment(record, "mine", Path("of-attention")))
"""

WANDB = "import sys; from wandb.cli.cli import cli; cli(sys.argv[1:])"  # python -m wandb


def config_of(server: FakeWandbServer, run_id: str) -> dict:
    sent = json.loads(server.runs[run_id]["config"])
    return {key: item["value"] for key, item in sent.items() if key != "_wandb"}


@pytest.mark.slow
def test_the_answer_of_compare_is_a_row_of_wandb_s_table(shell):
    server = FakeWandbServer()
    environ = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": API_KEY}
    done = shell("-m", "profiling", "compare", *PAIR, "--wandb", "mine", **environ)
    server.close()
    assert done.returncode == 0, done.stdout
    ((run_id, run),) = server.runs.items()
    assert f"\nW&B     {server.url}/tester/mine/runs/" in done.stdout
    assert (run["project"], run["jobType"]) == ("mine", "compare")
    assert run["displayName"] == "flash_compile against slow_compile"
    config = config_of(server, run_id)
    assert config["candidate"]["attention"] == "flash"
    assert config["baseline"]["file"] == "slow_compile.sqlite.gz"
    (row,) = server.history[run_id]
    types = {name: item["_type"] for name, item in row.items() if name.startswith("verdict/")}
    assert types == {
        "verdict/step_ms": "table-file",
        "verdict/buckets": "table-file",
        "verdict/families": "table-file",
        "verdict/report": "html-file",
    }
    tables = {
        name.rpartition("/")[2].split(".")[0]: json.loads(content)
        for name, content in server.uploads.items()
        if name.endswith(".table.json") and "artifact" in name
    }
    assert tables["step_ms"]["columns"] == ["side", "number", "ms per step"]
    sides = [row[0] for row in tables["step_ms"]["data"]]
    assert sides.count("baseline") == sides.count("candidate") == 20
    families = {row[0]: row[1:] for row in tables["families"]["data"]}
    baseline, candidate, change = families["gemm"]
    assert change == pytest.approx(candidate - baseline) and change < 0
    assert str(CAPTURES).encode() not in server.received, "folders say who one is"


@pytest.mark.slow
def test_the_answers_of_an_experiment_are_a_group(shell, tmp_path):
    done = shell("-c", LOG_EXPERIMENT, str(GOLDENS / "ab-bare.json"))
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    commands = [shlex.split(line.removeprefix("W&B     offline so far: ")) for line in lines]
    assert len(commands) == 2
    server = FakeWandbServer()
    environ = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": API_KEY}
    for command in commands:
        assert command[:2] == ["wandb", "sync"]
        sent = shell("-c", WANDB, *command[1:], **environ)
        assert sent.returncode == 0, sent.stdout
    server.close()
    runs = {run["displayName"]: (run, run_id) for run_id, run in server.runs.items()}
    assert set(runs) == {"flash against slow", "math against slow"}
    for name, answer in (("flash against slow", "faster"), ("math against slow", "equal")):
        run, run_id = runs[name]
        assert (run["groupName"], run["jobType"]) == ("of-attention", "ab")
        config = config_of(server, run_id)
        assert config["key"] == "attention" and config["processes"] == 9
        summary = server.summaries[run_id]
        assert summary["verdict/answer"] == answer
        low, high = summary["verdict/ratio_low"], summary["verdict/ratio_high"]
        assert low < summary["verdict/ratio"] < high and summary["verdict/noise_percent"] > 0


def summary_of(folder: Path, run_id: str) -> str:
    """The summary of a run as W&B's own reader finds it."""
    import subprocess

    (record,) = (folder / "of-attention" / "wandb").glob(f"offline-run-*-{run_id}")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", "--summary", str(record)]
    read = subprocess.run(command, cwd=record, capture_output=True, text=True, check=True).stdout
    return json.dumps(json.loads(read)["summary"])


def test_a_project_that_wandb_refuses_is_refused_at_once():
    assert project("mine") == "mine"
    with pytest.raises(ArgumentTypeError, match="must be 1 to 128 characters"):
        project("my/project")


@pytest.mark.slow
def test_switched_off_it_says_so(shell):
    done = shell("-m", "profiling", "compare", *PAIR, "--wandb", "mine", WANDB_MODE="disabled")
    assert done.returncode == 2 and "turns W&B off; unset this variable" in done.stdout
    assert "1.23x faster" in done.stdout, "the answer is there all the same"
