"""configs/sweeps/: read by W&B's own agent, and trained by train.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from configs.command_line import compose_one
from tests.paths import PROJECT

SWEEPS = sorted((PROJECT / "configs" / "sweeps").glob("*.yaml"))
# W&B's agent with a trial that no server chose
AGENT = """
import json, sys
from wandb.wandb_agent import Agent

agent = Agent(None, None, sweep_id="mysweep")
agent._sweep_command = json.loads(sys.argv[1])
for trial in json.loads(sys.argv[2]):
    agent._command_run(trial)
    process = agent._run_processes[trial["run_id"]]
    assert process.wait() == 0
"""
TINY = dict(device="cpu", compile=False, n_layer=1, n_head=2, n_embd=16, block_size=16)
TINY |= dict(batch_size=2, max_iters=4, lr_decay_iters=200, eval_interval=4, eval_iters=1)


@pytest.mark.slow
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_the_command_of_a_trial_is_read_by_the_trainer(path, monkeypatch):
    from wandb.sdk.launch.sweeps import utils

    sweep = yaml.safe_load(path.read_text("utf-8"))
    monkeypatch.setenv("WANDB_RUN_ID", "trial1")
    chosen = {
        name: {"value": each.get("values", [each.get("min")])[-1]}
        for name, each in sweep["parameters"].items()
    }
    words = utils.create_sweep_command_args({"args": chosen})["args_no_hyphens"]
    fixed = [word for word in sweep["command"] if not word.startswith("${")]
    config = compose_one([*fixed, *words])
    assert config.out_dir == "out-sweep/trial1"
    for name, each in chosen.items():
        assert getattr(config, name) == each["value"]
    assert sweep["command"][:3] == ["${env}", "${interpreter}", "${program}"]
    assert (PROJECT / sweep["program"]).is_file()


def test_a_sweep_is_a_group_of_no_configuration():
    from configs import files

    assert SWEEPS and files.groups() == ["profile", "recipe"]


@pytest.mark.slow
def test_trials_of_the_agent_train_each_in_a_folder_of_its_own(tmp_path):
    """Offline: a sweep has its project, and a trial its id and values, from the agent."""
    text = tmp_path / "text.txt"
    text.write_text("To be, or not to be, that is the question.\n" * 50)
    sweep = yaml.safe_load((PROJECT / "configs/sweeps/learning_rate.yaml").read_text("utf-8"))
    fixed = TINY | {"data_source": str(text)}
    trials = [
        {
            "run_id": f"trial{number}",
            "program": str(PROJECT / "train.py"),
            "args": {name: {"value": value} for name, value in (fixed | chosen).items()},
        }
        for number, chosen in enumerate(({"learning_rate": 0.002}, {"learning_rate": 0.0005}))
    ]
    clean = {k: v for k, v in os.environ.items() if "WANDB" not in k}
    environ = clean | {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "WANDB_MODE": "offline",
        "WANDB_SWEEP_ID": "mysweep",
        "WANDB_PROJECT": "ofthesweep",
    }
    words = [sys.executable, "-c", AGENT, json.dumps(sweep["command"]), json.dumps(trials)]
    done = subprocess.run(
        words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ignoring" not in done.stderr and "locked" not in done.stderr
    for trial, rate in (("trial0", 0.002), ("trial1", 0.0005)):
        (record,) = (tmp_path / "out-sweep" / trial / "wandb").glob("offline-run-*")
        command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", "--summary"]
        read = subprocess.run(
            [*command, str(record)], cwd=record, capture_output=True, text=True, check=True
        )
        run = json.loads(read.stdout)
        assert (run["run_id"], run["project"]) == (trial, "ofthesweep")
        assert run["config"]["learning_rate"] == rate
        assert run["summary"]["best_val_loss"] > 0
