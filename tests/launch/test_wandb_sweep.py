"""configs/sweeps/: read by W&B's own agent, and trained by train.py, with a server of our own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from configs.command_line import compose_one
from tests.fakes.fake_wandb_server import FakeWandbServer
from tests.paths import PROJECT

SWEEPS = sorted((PROJECT / "configs" / "sweeps").glob("*.yaml"))
# `wandb agent`, which looks for the end of a trial every five seconds otherwise
AGENT = """
import sys
from wandb.cli.cli import cli
from wandb.wandb_agent import Agent

Agent.POLL_INTERVAL = 0.2
cli(["agent", *sys.argv[1:]])
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


class SweepServer(FakeWandbServer):
    """Answers `wandb sweep` and `wandb agent` as well: two trials, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.sweep: dict = {}
        self.trials: list[str] = []

    def graphql(self, query: str, variables: dict) -> dict:
        if "mutation UpsertSweep" in query:
            self.sweep = yaml.safe_load(variables["config"])
            project = {"id": "p", "name": variables["projectName"]}
            project |= {"entity": {"id": "e", "name": "tester"}}
            sweep = {"name": "mysweep", "project": project}
            return {"upsertSweep": {"sweep": sweep, "configValidationWarnings": []}}
        if "query SweepWithRuns" in query:
            sweep = {"id": "s", "name": "mysweep", "config": yaml.safe_dump(self.sweep)}
            return {"project": {"sweep": sweep | {"runs": {"edges": []}}}}
        if "mutation CreateAgent" in query:
            return {"createAgent": {"agent": {"id": "agent"}}}
        if "mutation Heartbeat" in query:
            commands = self.commands(running=json.loads(variables["runState"]))
            return {"agentHeartbeat": {"agent": {"id": "agent"}, "commands": json.dumps(commands)}}
        return super().graphql(query, variables)

    def commands(self, running: dict) -> list[dict]:
        if running:
            return []
        number = len(self.trials)
        if number == 2:
            return [{"type": "exit"}]
        self.trials.append(f"trial{number}")
        args = {
            name: {"value": each.get("values", [each.get("min"), each.get("max")])[number]}
            for name, each in self.sweep["parameters"].items()
        }
        program = self.sweep["program"]
        return [{"type": "run", "run_id": self.trials[-1], "program": program, "args": args}]


@pytest.mark.slow
def test_a_sweep_of_wandb_s_own_agent(tmp_path):
    """`wandb sweep` and `wandb agent`: trials have a folder, an id and values of their own."""
    text = tmp_path / "text.txt"
    text.write_text("To be, or not to be, that is the question.\n" * 50)
    sweep = yaml.safe_load((PROJECT / "configs/sweeps/learning_rate.yaml").read_text("utf-8"))
    fixed = [f"{key}={str(value).lower()}" for key, value in TINY.items()]
    sweep["program"] = str(PROJECT / "train.py")
    sweep["command"][-1:] = [f"data_source={text}", *fixed, "${args_no_hyphens}"]
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(sweep))
    server = SweepServer()
    clean = {k: v for k, v in os.environ.items() if "WANDB" not in k and "proxy" not in k.lower()}
    environ = clean | {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "WANDB_BASE_URL": server.url,
        "WANDB_API_KEY": "0123456789abcdef" * 3,
    }

    def python(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    said = python("-m", "wandb", "sweep", "--project", "ofthesweep", "tiny.yaml")
    assert "wandb agent tester/ofthesweep/mysweep" in said
    said = python("-c", AGENT, "tester/ofthesweep/mysweep")
    server.close()
    assert "Ignoring" not in said and "locked" not in said
    assert server.trials == ["trial0", "trial1"] == list(server.runs)
    for trial, rate in zip(server.trials, (3e-4, 3e-3), strict=True):
        run = server.runs[trial]
        assert (run["project"], run["sweep"]) == ("ofthesweep", "mysweep"), run
        assert json.loads(run["config"])["learning_rate"] == {"value": rate}
        assert server.exit_codes[trial] == 0
        assert server.summaries[trial][sweep["metric"]["name"]] > 0
        assert (tmp_path / "out-sweep" / trial / "metrics.jsonl").is_file()
