"""Record of a run, with the real W&B client on a local server, and with everything broken.

Whatever ends the W&B side must not end the process, so those tests run a child process and look at
how, when and with what output it exits.
"""

import dataclasses
import json
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from configs.training import WandbConfig
from profiling.shared.artifact_names import artifact_name
from tests.fakes.fake_wandb_server import FakeWandbServer
from tests.helpers.forked import Forked, server
from training.metrics import wandb_settings
from training.metrics.sinks import RunFacts, last_value
from training.metrics.tracker import Tracker, open_tracker
from training.metrics.wandb_facts import wandb_config
from training.metrics.wandb_settings import check_wandb

API_KEY = "0123456789abcdef" * 3
FACTS = RunFacts(
    name="a name",
    config={
        "learning_rate": 0.001,
        "profile": {"mode": "window"},
        "wandb": {"mode": "online"},  # says nothing of the training
    },
    in_force={"data": "stand-in", "device": "cpu"},
    iteration=0,
    tags=("stand-in",),
    environment={
        "command": ["train.py", "secret"],
        "git": {"commit": "c0ffee", "dirty": True},
        "driver": None,
    },
)
NESTED_CONFIG = {
    "learning_rate": 0.001,
    "profile": {"mode": "window"},
    "run": {"data": "stand-in", "device": "cpu"},
    "environment": {"git": {"commit": "c0ffee", "dirty": True}, "driver": None},
}

# what children have imported when they start
TRACKER = ("training.metrics.tracker", "tests.fakes.fake_wandb_server")
WITH_WANDB = (*TRACKER, "wandb.cli.cli")
WANDB = "from wandb.cli.cli import cli; cli()"
# What every child starts with. `told` is what it reports to its test.
PRELUDE = f"""
import json, logging, os, resource, signal, sys, time
from pathlib import Path
from tests.fakes.fake_wandb_server import FakeWandbServer
from training.metrics import wandb_mirror
from configs.training import WandbConfig
from training.metrics.sinks import Alert, RunFacts
from training.metrics.tracker import open_tracker

FACTS = {FACTS!r}
logging.basicConfig(level=logging.INFO)
told = {{}}

def start(mode, out_dir="out"):
    return open_tracker(Path(out_dir), FACTS, WandbConfig(mode=mode, tags=["mine"]))

def mirror_of(tracker):
    return next((s for s in tracker.sinks if isinstance(s, wandb_mirror.WandbMirror)), None)

def wait_for(condition, limit_s=20.0):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)

def log_rows(tracker, first, last):
    worst = 0.0
    for i in range(first, last):
        begin = time.perf_counter()
        tracker.log({{"iter": i, "train/loss": 1.0 / (i + 1)}})
        worst = max(worst, time.perf_counter() - begin)
    told["worst_log_s"] = max(worst, told.get("worst_log_s", 0.0))

def finish(tracker, exit_code=0):
    begin = time.monotonic()
    tracker.finish(exit_code)
    told["finish_s"] = time.monotonic() - begin
    mirror = mirror_of(tracker)
    told["mode"] = mirror.mode if mirror else "disabled"
    told["failure"] = mirror and mirror.failure
    told["sync_command"] = tracker.sync_command
    told["ended"] = time.time()
"""


class Child:
    """A finished child process: its output, what it told, how long it took to exit after that.

    It has finished when nobody holds its stdout and stderr any more, as for a shell's pipe.
    """

    def __init__(
        self, folder: Path, code: str, imports: tuple[str, ...] = WITH_WANDB, **environ: str
    ) -> None:
        home, told = folder / "home", folder / "told.json"
        home.mkdir(exist_ok=True)
        code = PRELUDE + code + f"\nPath({str(told)!r}).write_text(json.dumps(told))\n"
        environment = without_wandb(os.environ) | environ | {"HOME": str(home)}
        process = Forked(["-c", code], environment, server(*imports), folder)
        self.output, _ = process.communicate(timeout=50)
        ended = time.time()
        process.stdout.close()
        assert process.returncode == 0, self.output
        self.told = json.loads(told.read_text())
        self.exit_s = ended - self.told.get("ended", ended)
        self.warnings = [line for line in self.output.splitlines() if line.startswith("WARNING:")]


def without_wandb(environ: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environ.items() if "WANDB" not in k and "_proxy" not in k.lower()}


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def inspect(run_dir: Path, *options: str) -> str:
    """Returns what `wandb leet inspect --json`, W&B's own reader, finds in the folder of a run."""
    words = ["-c", WANDB, "leet", "inspect", "--json", *options, str(run_dir)]
    process = Forked(words, {**os.environ}, server(*WITH_WANDB), run_dir)
    output, _ = process.communicate(timeout=50)
    process.stdout.close()
    assert process.returncode == 0, output
    return output


def without_own_keys(row: dict) -> dict:
    return {key: value for key, value in row.items() if not key.startswith("_")}


def expected_history(out_dir: Path) -> list[dict]:
    """The rows of metrics.jsonl as W&B should have them."""
    rows = rows_of(out_dir / "metrics.jsonl")[1:]
    return [{k: v for k, v in row.items() if k != "data" and v is not None} for row in rows]


def iterations(out_dir: Path) -> list[int]:
    return [row["iter"] for row in rows_of(out_dir / "metrics.jsonl")[1:]]


@pytest.fixture
def plain(monkeypatch, tmp_path):
    """No W&B settings or keys from the machine that runs the tests."""
    for name in [name for name in os.environ if "WANDB" in name]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


def test_metrics_lines(tmp_path, caplog):
    caplog.set_level("INFO")
    tracker = open_tracker(tmp_path / "out", FACTS, WandbConfig(mode="disabled"))
    said = f"W&B: off, as wandb.mode=disabled says; the rows are in {tmp_path}/out/metrics.jsonl"
    assert caplog.messages == [said]
    tracker.log({"iter": 0, "train/loss": 4.25, "perf/mfu": None, "lr": math.nan})
    tracker.summary({"val/loss": 1.5, "worst": math.inf})
    tracker.finish()
    assert rows_of(tmp_path / "out" / "metrics.jsonl") == [
        {"run": FACTS.in_force, "iter": 0},
        {"iter": 0, "train/loss": 4.25, "perf/mfu": None, "lr": None, "data": "stand-in"},
    ]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary == {"val/loss": 1.5, "worst": None}
    assert tracker.sync_command is None


@pytest.mark.parametrize(
    "tail, kept",
    [('{"iter": 2, "train/lo', [1]), ('{"iter": 2}', [1, 2]), ("", [1])],
    ids=["cut", "lacks its newline", "whole"],
)
def test_last_line_of_a_killed_process(tmp_path, tail, kept):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"run": {}, "iter": 0}\n{"iter": 1}\n' + tail)
    facts = dataclasses.replace(FACTS, iteration=1)
    tracker = open_tracker(tmp_path, facts, WandbConfig(mode="disabled"))
    tracker.log({"iter": 7})
    tracker.finish()
    assert iterations(tmp_path) == [*kept, 1, 7]
    assert rows_of(path)[-2]["run"] == FACTS.in_force


def test_other_ranks_record_nothing(tmp_path, monkeypatch):
    """The test that only rank 0 has sinks is in test_distributed.py."""
    monkeypatch.chdir(tmp_path)
    tracker = Tracker([])
    tracker.wait_until_quiet()
    tracker.log({"iter": 0})
    tracker.summary({"val/loss": 1.0})
    tracker.finish(1)
    assert tracker.sync_command is None and list(tmp_path.iterdir()) == []


def test_unwritable_out_dir_names_the_key(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="^out_dir: cannot write"):
        open_tracker(tmp_path / "file" / "out", FACTS, WandbConfig(mode="disabled"))


def test_auto_mode(plain, tmp_path):
    assert check_wandb(WandbConfig()) == "offline"
    plain.setenv("WANDB_MODE", "online")
    assert check_wandb(WandbConfig()) == "offline"  # no key, and no question about one
    plain.setenv("WANDB_API_KEY", API_KEY)
    assert check_wandb(WandbConfig()) == "online"
    for mode in ("offline", "disabled"):
        plain.setenv("WANDB_MODE", mode)
        assert check_wandb(WandbConfig()) == mode
        assert check_wandb(WandbConfig(mode="online")) == "online"
    plain.setenv("WANDB_MODE", "onlin")
    with pytest.raises(ValueError, match="WANDB_MODE=onlin is unknown"):
        check_wandb(WandbConfig())


def test_key_from_netrc(plain, tmp_path):
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai login user password {API_KEY}\n")
    assert check_wandb(WandbConfig()) == "online"
    plain.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert check_wandb(WandbConfig()) == "offline"  # a key of another server
    (tmp_path / "netrc").write_text(f"machine wandb.example.org login user password {API_KEY}\n")
    assert check_wandb(WandbConfig()) == "online"
    plain.delenv("WANDB_BASE_URL")  # `wandb login --host` stores the server here
    settings = tmp_path / ".config" / "wandb" / "settings"
    settings.parent.mkdir(parents=True)
    settings.write_text("[default]\nbase_url = https://wandb.example.org\n")
    assert check_wandb(WandbConfig()) == "online"


def test_online_without_a_key_is_refused(plain, tmp_path):
    with pytest.raises(ValueError, match="^wandb.mode=online, but there is no API key") as error:
        check_wandb(WandbConfig(mode="online"))
    assert "\n" not in str(error.value) and "wandb.mode=offline" in str(error.value)


def test_proxy_is_not_probed_around(plain):
    dead = "http://127.0.0.1:9"
    assert "refused" in wandb_settings.why_unreachable(dead)
    plain.setenv("http_proxy", "http://proxy.example.org:3128")
    plain.setenv("no_proxy", "")
    assert wandb_settings.why_unreachable(dead) is None


@pytest.mark.slow
def test_offline_runs_read_back(tmp_path):
    """Two runs in one process, as under `-m`, read by W&B's own reader, then uploaded."""
    child = Child(
        tmp_path,
        """
handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
for seed in (0, 1):
    tracker = start("auto", f"out {seed}")
    for i in range(3):
        tracker.log({"iter": i, "train/loss": seed + 0.1 * i, "perf/mfu": None, "phase": "warm"})
    tracker.alert(Alert("Steps are slow", f"by {seed + 1} ms"))
    tracker.summary({"val/loss": seed + 0.5, "none": None})
    tracker.wait_until_quiet()
    assert mirror_of(tracker).run_dir
    told[f"data_dir_{seed}"] = os.environ["WANDB_DATA_DIR"]
    finish(tracker, exit_code=seed)
    told[f"sync_{seed}"] = tracker.sync_command
told["data_dir_after"] = os.environ.get("WANDB_DATA_DIR")
told["same_handlers"] = handlers == [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
""",
        TRACKER,
    )
    assert child.told["mode"] == "offline" and child.told["failure"] is None
    assert child.told["same_handlers"] and child.told["data_dir_after"] is None
    assert child.exit_s < 5 and child.warnings == [] and "wandb:" not in child.output
    assert {path.name for path in (tmp_path / "home").iterdir()} <= {".cache"}  # wandb-core's log

    for seed in (0, 1):
        out_dir = tmp_path / f"out {seed}"
        assert child.told[f"data_dir_{seed}"].startswith(str(out_dir))
        (run_dir,) = (out_dir / "wandb").glob("offline-run-*")
        command = shlex.split(child.told[f"sync_{seed}"])
        assert command == ["wandb", "sync", str(run_dir.relative_to(tmp_path))]
        run = json.loads(inspect(run_dir, "--summary"))
        assert run["exit_code"] == seed
        assert run["config"] == NESTED_CONFIG
        assert sorted(run["tags"]) == ["mine", "stand-in"]
        assert run["name"] == "a name" and run["project"] == WandbConfig().project
        assert run["summary"]["val/loss"] == seed + 0.5 and "none" not in run["summary"]
        records = [json.loads(line) for line in inspect(run_dir).splitlines()]
        history = [r["history"]["item"] for r in records if r["type"] == "history"]
        assert len(history) == 3
        assert [without_own_keys(row) for row in history] == expected_history(out_dir)
        assert any(r.get("metric", {}).get("step_metric") == "iter" for r in records)
        (alert,) = [r["alert"] for r in records if r["type"] == "alert"]
        assert (alert["title"], alert["text"]) == ("Steps are slow", f"by {seed + 1} ms")

    server = FakeWandbServer()  # the command that the trainer prints does upload the run
    environment = os.environ | {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": API_KEY}
    sync = [sys.executable, "-m", *command]
    subprocess.run(sync, cwd=tmp_path, env=environment, capture_output=True, check=True)
    server.close()
    assert [without_own_keys(row) for (*rows,) in server.history.values() for row in rows] == (
        expected_history(out_dir)
    )
    assert [alert["text"] for alert in server.alerts] == ["by 2 ms"]


@pytest.mark.slow
def test_online(tmp_path):
    child = Child(
        tmp_path,
        """
server = FakeWandbServer()
os.environ["WANDB_BASE_URL"] = server.url
tracker = start("auto")
log_rows(tracker, 0, 200)
tracker.alert(Alert("Loss or gradients are not finite", "training loss is nan", "ERROR"))
tracker.summary({"val/loss": 1.5})
finish(tracker)
told["alerts"] = server.alerts
told["history"] = server.history
told["runs"] = server.runs
told["exit_codes"] = server.exit_codes
told["uploads"] = sorted(server.uploads)
""",
        WANDB_API_KEY=API_KEY,
    )
    assert child.told["mode"] == "online" and child.told["failure"] is None
    assert child.told["sync_command"] is None
    ((run_id, rows),) = child.told["history"].items()
    assert [without_own_keys(row) for row in rows] == expected_history(tmp_path / "out")
    run = child.told["runs"][run_id]
    config = {key: item["value"] for key, item in json.loads(run["config"]).items()}
    assert NESTED_CONFIG.items() <= config.items() and "wandb" not in config
    assert sorted(run["tags"]) == ["mine", "stand-in"] and run["displayName"] == "a name"
    assert child.told["exit_codes"] == {run_id: 0}
    (alert,) = child.told["alerts"]
    assert (alert["title"], alert["severity"]) == ("Loss or gradients are not finite", "ERROR")
    assert alert["text"] == "training loss is nan" and alert["runName"] == run_id
    assert alert["waitDuration"] == 3_600_000, "milliseconds in which it is not repeated"
    assert not any(name.startswith(("code/", "diff")) for name in child.told["uploads"])
    assert child.exit_s < 5 and child.warnings == []
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not any(API_KEY.encode() in path.read_bytes() for path in files)


@pytest.mark.slow
def test_what_wandb_is_told_of_a_run_besides_its_rows(tmp_path):
    """Notes, kind of job, the least loss; the checkpoint alone where it was asked for."""
    child = Child(
        tmp_path,
        """
for checkpoints in (False, True):
    out_dir = Path(f"out-{checkpoints}")
    keys = WandbConfig(mode="offline", notes="why", entity="team", checkpoints=checkpoints)
    keys.registry, keys.alerts = "model", False
    tracker = open_tracker(out_dir, FACTS, keys)
    for i, loss in enumerate((3.0, 2.0, 2.5)):
        tracker.log({"iter": i, "val/loss": loss})
    tracker.alert(Alert("Steps are slow", "by 1 ms"))
    (out_dir / "ckpt.pt").write_bytes(b"the newest")
    (out_dir / "ckpt_best.pt").write_bytes(b"the best")
    tracker.summary({"best_val_loss": 2.0, "best_iteration": 1, "iterations": 3})
    finish(tracker)
    told[str(checkpoints)] = str(mirror_of(tracker).run_dir)
""",
    )
    made = {}
    for asked in ("False", "True"):
        run_dir = Path(child.told[asked])
        records = [json.loads(line) for line in inspect(run_dir).splitlines()]
        run = next(record["run"] for record in records if record["type"] == "run")
        assert (run["job_type"], run["notes"], run["entity"]) == ("train", "why", "team")
        assert json.loads(inspect(run_dir, "--summary"))["summary"]["val/loss"] == {"min": 2.0}
        made[asked] = [r["artifact"] for r in records if r["type"] == "artifact"]
        assert not [r for r in records if r["type"] == "alert"], "wandb.alerts=false"
    assert made["False"] == [], "nothing leaves unless it was asked for"
    (warning,) = child.warnings
    assert warning.endswith("is not linked to registry model: the run is offline")
    (artifact,) = made["True"]
    assert artifact["type"] == "model" and artifact["name"].startswith("checkpoint-")
    assert set(artifact["aliases"]) == {"latest", f"run-{artifact['run_id']}"}
    metadata = json.loads(artifact["metadata"])
    assert metadata["best_val_loss"] == 2.0 and metadata["git"]["commit"] == "c0ffee"
    (sent,) = artifact["manifest"]["contents"]
    assert sent["path"] == "ckpt.pt" and Path(sent["local_path"]).read_bytes() == b"the best"


def test_no_key_of_the_configuration_has_a_dot(run, monkeypatch):
    """W&B joins sections by dots itself, and cannot tell such a key from a nested one."""
    seen = {}

    def opened(out_dir, facts, *rest):
        seen["facts"] = facts
        return open_tracker(out_dir, facts, *rest)

    monkeypatch.setattr("training.metrics.record.open_tracker", opened)
    run(max_iters=1, seed=5)
    facts = seen["facts"]
    assert facts.name.endswith("-eager-seed5") and facts.job_type == "train"
    sent = wandb_config(facts)
    assert "wandb" not in sent and "command" not in sent["environment"]
    assert len(sent["environment"]["git"]["commit"]) == 40
    assert sent["environment"]["packages"]["torch"] and sent["profile"]["kind"] == "none"
    sections = [sent]
    while sections:
        section = sections.pop()
        assert not [key for key in section if "." in key]
        sections += [value for value in section.values() if isinstance(value, dict)]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"seed": 2}, True),
        ({"out_dir": "x"}, True),
        ({"profile": {}}, True),
        ({"n_layer": 2}, False),
    ],
)
def test_an_artifact_has_the_name_of_its_configuration(change, same):
    keys = {"dataset": "a/b c", "attention": "auto", "compile": True, "n_layer": 6, "seed": 1}
    name = artifact_name("capture", keys, "flash")
    assert name.startswith("capture-a-b-c-flash-compile-")
    assert (artifact_name("capture", keys | change, "flash") == name) is same
    assert artifact_name("capture", keys | {"attention": "flash", "in_force": {}}, None) == name


RESUMED = """
server = FakeWandbServer()
os.environ["WANDB_BASE_URL"] = server.url
told["ids"] = []

def live(mode, first, last, out_dir="out"):
    global FACTS
    FACTS = dataclasses.replace(FACTS, iteration=first)
    tracker = start(mode, out_dir)
    wait_for(lambda: mirror_of(tracker).run_dir)
    for i in range(first, last):
        if i % 2 == 0:
            tracker.log({"iter": i, "val/loss": 2.0 / (i + 1)})
        tracker.log({"iter": i, "train/loss": 1.0 / (i + 1)})
    finish(tracker)
    told["ids"].append(json.loads(Path(out_dir, "wandb", "run.json").read_text())["id"])
"""


@pytest.mark.slow
def test_a_resumed_run_is_one_wandb_run_whose_rows_are_there_once(tmp_path):
    child = Child(
        tmp_path,
        RESUMED
        + """
import dataclasses, shutil
live("online", 0, 6)  # killed behind its checkpoint of iteration 4
live("online", 4, 9)
wandb_mirror.WandbMirror.log, log = lambda *_: None, wandb_mirror.WandbMirror.log
live("online", 9, 11)  # W&B got none of it
wandb_mirror.WandbMirror.log = log
live("online", 10, 13)
shutil.copytree("out", "copy")
live("online", 13, 15, "copy")  # a branch
Path("copy").rename("moved")
live("online", 15, 16, "moved")
told["history"] = {key: [row["iter"] for row in rows] for key, rows in server.history.items()}
server.close()
""",
        WANDB_API_KEY=API_KEY,
    )
    first, *_, branch, moved = child.told["ids"]
    assert child.told["ids"] == [first] * 4 + [branch] * 2 and first != branch == moved
    expected = [i for i in range(13) for _ in range(2 - i % 2)]
    assert child.told["history"][first] == expected
    assert child.told["history"][branch] == [13, 14, 14, 15]
    assert child.warnings == [] and "less than the current step" not in child.output


@pytest.mark.slow
def test_a_run_resumed_offline_is_one_when_it_is_sent(tmp_path):
    child = Child(
        tmp_path,
        RESUMED
        + """
import dataclasses, subprocess
live("offline", 0, 6)
time.sleep(1.1)  # W&B's folders are named by the second
live("offline", 4, 9)
folders = sorted(map(str, Path("out/wandb").glob("offline-run-*")))
sent = subprocess.run([sys.executable, "-m", "wandb", "sync", *folders], capture_output=True)
told["sent"], told["folders"] = sent.returncode, len(folders)
told["history"] = {key: [row["iter"] for row in rows] for key, rows in server.history.items()}
server.close()
""",
        WANDB_API_KEY=API_KEY,
    )
    assert (child.told["sent"], child.told["folders"]) == (0, 2)
    ((run_id, iters),) = child.told["history"].items()
    assert child.told["ids"] == [run_id] * 2
    assert sorted(iters) == [i for i in range(9) for _ in range(2 - i % 2)]
    assert child.warnings == []


@pytest.mark.slow
def test_wandb_core_killed(tmp_path):
    child = Child(
        tmp_path,
        """
tracker = start("offline")
log_rows(tracker, 0, 10)
wait_for(lambda: mirror_of(tracker).doing == "log")
os.kill(wandb_mirror._wandb_core().pid, signal.SIGKILL)
time.sleep(0.2)
log_rows(tracker, 10, 20)
wait_for(lambda: mirror_of(tracker).failure)
log_rows(tracker, 20, 30)
finish(tracker)
next_run = start("offline", "next")
log_rows(next_run, 0, 10)
next_run.finish()
told["next_failure"] = mirror_of(next_run).failure
""",
    )
    assert iterations(tmp_path / "out") == list(range(30))
    (warning,) = child.warnings
    assert "W&B failed in log: " in warning
    assert child.told["sync_command"] == "python -m profiling log out --metrics"
    assert child.told["finish_s"] < 5 and child.exit_s < 10
    assert child.told["next_failure"] is None  # a new wandb-core
    assert "Traceback" not in child.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["wandb"]["failure"] == child.told["failure"]


@pytest.mark.slow
def test_wandb_core_that_dies_as_it_starts(tmp_path):
    """wandb's own report of that would wait for a lock that it holds, and our end for the same."""
    child = Child(
        tmp_path,
        """
from wandb.sdk.lib.service import service_process
core = service_process.get_core_path
service_process.get_core_path = lambda: "/bin/false"
tracker = start("offline")
log_rows(tracker, 0, 10)
finish(tracker)
service_process.get_core_path = core
next_run = start("offline", "next")
log_rows(next_run, 0, 10)
next_run.finish()
told["next_failure"] = mirror_of(next_run).failure
""",
    )
    assert iterations(tmp_path / "out") == list(range(10))
    (warning,) = child.warnings
    assert "W&B failed in init: " in warning
    assert child.told["finish_s"] < 20  # and the process ended: it waits for nothing
    assert child.told["next_failure"] is None


@pytest.mark.slow
def test_wandb_core_stopped(tmp_path):
    """Nothing answers, nothing fails: only limits of time and of memory help."""
    child = Child(
        tmp_path,
        """
wandb_mirror.DEAD_TIMEOUT_S = 2.0
wandb_mirror.ABANDON_TIMEOUT_S = 0.5
wandb_mirror.QUEUE_ROWS = 100
tracker = start("offline")
wait_for(lambda: mirror_of(tracker).run_dir)
os.kill(wandb_mirror._wandb_core().pid, signal.SIGSTOP)
log_rows(tracker, 0, 20_000)
finish(tracker)
told["dropped"] = mirror_of(tracker).rows_dropped
""",
    )
    assert iterations(tmp_path / "out") == list(range(20_000))
    assert child.told["dropped"] > 1000 and child.told["worst_log_s"] < 0.5
    too_slow, failed = child.warnings
    assert "rows are dropped" in too_slow and "no answer in 2 s" in failed
    assert child.told["finish_s"] < 6 and child.exit_s < 5


@pytest.mark.slow
def test_wandb_s_own_variables_are_defaults(tmp_path):
    """Checks what W&B's own reader finds in the file, with WANDB_PROJECT and its kin set."""
    child = Child(
        tmp_path,
        """
def start(**keys):
    return open_tracker(Path("out"), FACTS, WandbConfig(mode="offline", **keys))
for keys in ({}, {"project": "key", "name": "key", "tags": ["key"]}):
    tracker = start(**keys)
    tracker.log({"iter": 0, "train/loss": 1.0})
    finish(tracker)
    told[str(len(keys))] = str(mirror_of(tracker).run_dir)
""",
        WANDB_PROJECT="theirs",
        WANDB_NAME="a name of theirs",
        WANDB_TAGS="one, two",
        WANDB_DIR=str(tmp_path / "elsewhere"),
        WANDB_ENTITY="team",
        WANDB_RUN_GROUP="a group",
    )
    bare, keyed = (Path(child.told[name]) for name in ("0", "3"))
    assert bare.parent == keyed.parent == tmp_path / "elsewhere" / "wandb"
    assert [path.name for path in (tmp_path / "out" / "wandb").iterdir()] == ["run.json"]  # its id
    run = json.loads(inspect(bare, "--summary"))
    assert (run["project"], run["name"]) == ("theirs", "a name of theirs")
    assert sorted(run["tags"]) == ["one", "stand-in", "two"]
    assert run["entity"] == "team" and '"run_group":"a group"' in inspect(bare)
    run = json.loads(inspect(keyed, "--summary"))  # a key that is given wins
    assert (run["project"], run["name"]) == ("key", "key")
    assert sorted(run["tags"]) == ["key", "stand-in"]


@pytest.mark.parametrize(
    ("word", "mode"), [("true", "disabled"), ("1", "disabled"), ("false", "offline")]
)
def test_wandb_disabled(plain, word, mode):
    plain.setenv("WANDB_DISABLED", word)
    assert check_wandb(WandbConfig()) == mode
    assert check_wandb(WandbConfig(mode="offline")) == "offline"  # a key that is given wins


@pytest.mark.slow
def test_a_long_wait_is_said_and_ctrl_c_skips_it(tmp_path):
    child = Child(
        tmp_path,
        """
import threading
from cli.interrupts import handle_signals
wandb_mirror.SILENT_S = 0.5
wandb_mirror.ABANDON_TIMEOUT_S = 0.5
tracker = start("offline")
wait_for(lambda: mirror_of(tracker).run_dir)
os.kill(wandb_mirror._wandb_core().pid, signal.SIGSTOP)
threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT)).start()
noted = []
try:
    with handle_signals(lambda number, frame: noted.append(number)):  # as the training loop's
        finish(tracker)
except KeyboardInterrupt:
    told["skipped"] = True
told["noted"] = noted
told["ended"] = time.time()
""",
    )
    assert child.told["skipped"] and child.told["noted"] == []
    assert child.output.count("waiting for W&B, at most 30 s; Ctrl-C skips") == 1
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["wandb"]["failure"]
    assert child.exit_s < 5


@pytest.mark.slow
def test_server_dies(tmp_path):
    child = Child(
        tmp_path,
        """
wandb_mirror.DEAD_TIMEOUT_S = 2.0
server = FakeWandbServer()
os.environ["WANDB_BASE_URL"] = server.url
tracker = start("online")
log_rows(tracker, 0, 10)
wait_for(lambda: mirror_of(tracker).run_dir)
server.close()
log_rows(tracker, 10, 20)
finish(tracker)
""",
        WANDB_API_KEY=API_KEY,
    )
    assert iterations(tmp_path / "out") == list(range(20))
    (warning,) = child.warnings
    assert "W&B failed in finish: " in warning
    assert child.told["sync_command"].startswith("wandb sync ")
    assert child.told["finish_s"] < 8 and child.exit_s < 5
    (run_dir,) = (tmp_path / "out" / "wandb").glob("run-*")
    records = [json.loads(line) for line in inspect(run_dir).splitlines()]
    assert len([r for r in records if r["type"] == "history"]) == 20  # for `wandb sync`


@pytest.mark.slow
@pytest.mark.parametrize("server", ["absent", "mute"])
def test_no_server_at_the_start(tmp_path, server):
    """Refused, or connected and never answered: the run goes on offline."""
    child = Child(
        tmp_path,
        f"""
import socket
wandb_mirror.INIT_TIMEOUT_S = 1.0
listener = socket.create_server(("127.0.0.1", 0))
os.environ["WANDB_BASE_URL"] = f"http://127.0.0.1:{{listener.getsockname()[1]}}"
if {server == "absent"}:
    listener.close()
tracker = start("online")
log_rows(tracker, 0, 10)
finish(tracker)
""",
        WANDB_API_KEY=API_KEY,
    )
    (warning,) = child.warnings
    assert "W&B cannot be online" in warning
    assert child.told["mode"] == "offline" and child.told["failure"] is None
    assert child.told["finish_s"] < 15 and child.exit_s < 5
    (run_dir,) = (tmp_path / "out" / "wandb").glob("offline-run-*")
    assert json.loads(inspect(run_dir, "--summary"))["summary"]["iter"] == 9


@pytest.mark.slow
@pytest.mark.parametrize("key", ["", "no-key-at-all"])
def test_no_question_at_a_terminal(tmp_path, key):
    """Runs without a key, and with a malformed one, where wandb would like to ask for one."""
    child = Child(
        tmp_path,
        """
os.dup2(os.openpty()[1], 0)
assert sys.stdin.isatty()
server = FakeWandbServer()
os.environ["WANDB_BASE_URL"] = server.url
tracker = start("auto")
log_rows(tracker, 0, 10)
finish(tracker)
""",
        **({"WANDB_API_KEY": key} if key else {}),
    )
    assert child.told["mode"] == "offline" and child.told["failure"] is None
    assert len(child.warnings) == bool(key)


@pytest.mark.slow
def test_full_disk(tmp_path):
    """A limit on the size of files stands for the full disk: it, too, cuts a line in two."""
    child = Child(
        tmp_path,
        """
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, unlimited[1]))
tracker = start("disabled")
log_rows(tracker, 0, 100)
tracker.summary({"val/loss": 1.5})
told["bytes_when_full"] = Path("out/metrics.jsonl").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
log_rows(tracker, 100, 101)
told["lines"] = len(Path("out/metrics.jsonl").read_text().splitlines())
finish(tracker)
told["imported_wandb"] = "wandb" in sys.modules
""",
        TRACKER,
    )
    assert child.told["bytes_when_full"] == 1000 and child.told["lines"] == 102
    assert iterations(tmp_path / "out") == list(range(101))
    (warning,) = child.warnings
    assert "metrics.jsonl" in warning and "too large" in warning
    assert not child.told["imported_wandb"]


@pytest.mark.slow
def test_full_disk_under_wandb(tmp_path):
    """The same limit on wandb-core's files: it loses rows in silence, so the tracker says so."""
    child = Child(
        tmp_path,
        """
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
tracker = start("offline")
log_rows(tracker, 0, 1000)
finish(tracker)
""",
    )
    kept = iterations(tmp_path / "out")
    assert 0 < len(kept) < 1000 and kept == list(range(len(kept)))  # whole lines
    assert any(f"is missing its last {1000 - len(kept)} lines" in line for line in child.warnings)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["wandb"]["failure"]
    assert child.told["finish_s"] < 10 and child.exit_s < 5


@pytest.mark.parametrize(
    "content, last",
    [
        (b'{"x": 1}\n{"x": 2.5}\n{"run": {}, "iter": 3}\n', 2.5),
        (b'{"x": 1}\n{"x": null}\n{"x": Infinity}\n{"x": "4"}\n{"x": 5', 1.0),
        (b'[1]\n\xff\n\n{"y": 1}\n', None),
        (b"", None),
    ],
)
def test_the_last_number_of_a_name(tmp_path, content, last):
    (tmp_path / "metrics.jsonl").write_bytes(content)
    assert last_value(tmp_path / "metrics.jsonl", "x") == last
    assert last_value(tmp_path / "none.jsonl", "x") is None
