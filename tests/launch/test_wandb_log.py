"""`python -m profiling log`: with the real W&B client, and a server of our own to send to."""

import gzip
import json
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from cli.lock import Lock
from profiling.launch.wandb_log import training_run
from profiling.verbs import log
from tests.fakes.fake_wandb_server import FakeWandbServer
from tests.helpers.planted_secrets import PRESENT
from tests.paths import CAPTURES
from training.metrics.wandb_run import keep_id

CAPTURE = CAPTURES / "flash_compile.sqlite.gz"
PLANTED = "sk-planted-4711"  # in the capture
API_KEY = "0123456789abcdef" * 3

TRAINING = """
import sys
from pathlib import Path
from configs.training import WandbConfig
from training.metrics.sinks import RunFacts
from training.metrics.tracker import open_tracker

out_dir = Path("out")
facts = RunFacts("a name", config={"attention": "flash"}, in_force={"data": "x"}, iteration=0)
tracker = open_tracker(out_dir, facts, WandbConfig(mode=sys.argv[1]))
for i in range(5):
    tracker.log({"iter": i, "train/loss": 1.0})
tracker.finish()
(out_dir / "config.yaml").write_text('''
seed: 7
dataset: mine
attention: auto
compile: true
wandb: {project: profiling-nanogpt}
''')
"""


@pytest.fixture
def capture(tmp_path):
    """A capture in a run's folder, with what nsys keeps of the environment."""
    path = tmp_path / "out" / "profile" / "nsys.sqlite"
    path.parent.mkdir(parents=True)
    with gzip.open(CAPTURE) as packed, open(path, "wb") as file:
        shutil.copyfileobj(packed, file)
    with sqlite3.connect(path) as database:
        rows = [("PROCESS_0:ENVIRONMENT_VARIABLE", f'API_KEY="{PLANTED}"')] * 3
        database.execute("CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE (name TEXT, value TEXT)")
        database.executemany("INSERT INTO META_DATA_CAPTURE (name, value) VALUES (?, ?)", rows)
        block = f"HOME=/home/me\0API_KEY={PLANTED}\0"
        database.execute("INSERT INTO StringIds (id, value) VALUES (99999999, ?)", (block,))
    database.close()
    path.with_name("nsys.nsys-rep").write_text(PLANTED)
    assert PLANTED.encode() in path.read_bytes()
    return path


def check_what_arrived(server: FakeWandbServer) -> None:
    """The run has its rows and the report's; nothing has a secret."""
    ((run_id, history),) = server.history.items()
    assert [row["iter"] for row in history[:5]] == [0, 1, 2, 3, 4] and len(history) == 6
    panels = {name: item for name, item in history[5].items() if name.startswith("capture/")}
    types = {name: item["_type"] for name, item in panels.items()}
    assert types == {
        "capture/summary": "table-file",
        "capture/families": "table-file",
        "capture/phases": "table-file",
        "capture/report": "html-file",
    }
    assert history[5]["iter"] > 5  # where the window was
    (made,) = [a for a in server.artifact_inputs if a["artifactTypeName"] == "capture"]
    name = made["artifactCollectionName"]
    assert re.fullmatch(r"capture-mine-flash-compile-[0-9a-f]{8}", name)
    assert {a["alias"] for a in made["aliases"]} == {"latest", f"run-{run_id}", "gpu_compute"}
    metadata = json.loads(made["metadata"])
    assert metadata["gpu"] == "NVIDIA H200" and metadata["seed"] == 7
    assert metadata["verdict"].startswith("Bound by") and 1 < metadata["step_ms"] < 100
    assert json.loads(server.runs[run_id]["config"])["attention"] == {"value": "flash"}
    uploads = {name.rpartition("/")[2]: content for name, content in server.uploads.items()}
    assert not [name for name in uploads if "nsys-rep" in name]
    assert uploads["nsys.sqlite"].startswith(b"SQLite format 3\0")
    (page,) = [content for name, content in uploads.items() if name.endswith(".html")]
    assert b"Bound by" in page and b"<script" in page
    figures = json.loads(uploads["summary.table.json"])
    (values,) = figures["data"]
    typed = dict(zip(figures["columns"], values, strict=True))
    assert typed["step_ms"] == metadata["step_ms"] and typed["bottleneck"] == metadata["bottleneck"]
    families = json.loads(uploads["families.table.json"])
    sums, means = ["family", "count", "total_ns"], ["count_per_step", "total_per_step_ns"]
    assert families["columns"] == [*sums, *means, "percent"]
    assert "gemm" in {row[0] for row in families["data"]}
    for secret in (PLANTED, PRESENT, API_KEY):
        assert secret.encode() not in server.received


@pytest.mark.slow
def test_an_offline_run_gets_its_report_offline(shell, capture, tmp_path):
    trained = shell("-c", TRAINING, "offline")
    assert trained.returncode == 0, trained.stdout
    logged = shell("-m", "profiling", "log", str(capture), anew=True)
    assert logged.returncode == 0, logged.stdout
    said, command = logged.stdout.splitlines()
    assert said.startswith("nsys.sqlite: Bound by ") and command.startswith("offline so far: ")
    written = [path for path in (tmp_path / "out" / "wandb").rglob("*") if path.is_file()]
    assert len(written) > 10
    for secret in (PLANTED, PRESENT):
        assert not [path for path in written if secret.encode() in path.read_bytes()]
    assert {path.name for path in tmp_path.iterdir()} <= {"out", ".cache", ".config"}

    server = FakeWandbServer()
    words = command.split()
    words = words[words.index("wandb") :]
    assert len(words) == 4  # wandb sync, the training's record, the report's
    sent = shell("-m", *words, anew=True, WANDB_BASE_URL=server.url, WANDB_API_KEY=API_KEY)
    server.close()
    assert sent.returncode == 0, sent.stdout
    check_what_arrived(server)
    assert training_run(tmp_path / "out").sync_command() == "wandb sync"  # all are sent


@pytest.mark.slow
def test_an_online_run_gets_its_report(shell, capture, tmp_path):
    server = FakeWandbServer()
    environ = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": API_KEY}
    trained = shell("-c", TRAINING, "online", **environ)
    assert trained.returncode == 0, trained.stdout
    keyless = shell("-m", "profiling", "log", str(capture), WANDB_BASE_URL=server.url)
    assert keyless.returncode == 2 and "there is no API key for" in keyless.stdout
    logged = shell("-m", "profiling", "log", str(capture), **environ)
    server.close()
    assert logged.returncode == 0, logged.stdout
    assert "offline" not in logged.stdout
    check_what_arrived(server)
    refused = shell("-m", "profiling", "log", str(capture), **environ)  # the server is gone
    assert refused.returncode == 2 and len(refused.stdout.splitlines()) == 1
    assert refused.stdout.startswith("profiling log: error: W&B does not answer")


@pytest.mark.slow
def test_a_training_sends_its_capture_and_its_checkpoint_by_keys(shell, command, tmp_path):
    server = FakeWandbServer()
    keys = {"wandb.mode": "online", "profile": "torch", "profile.start": 10, "profile.steps": 3}
    keys |= {"max_iters": 16, "wandb.captures": True, "wandb.checkpoints": True}
    words = command(**keys, **{"wandb.registry": "model"}, always_save_checkpoint=True)
    trained = shell(*words, trainer=True, WANDB_BASE_URL=server.url, WANDB_API_KEY=API_KEY)
    server.close()
    output = trained.stdout
    assert trained.returncode == 0, output
    assert re.search(r"window-1.trace.json.gz: .*; added to W&B run \w+ of profiling-", output)
    assert "not linked" not in output
    made = {a["artifactTypeName"]: a["artifactCollectionName"] for a in server.artifact_inputs}
    linked = [f"wandb-registry-model/{made[kind]}" for kind in ("model", "capture")]
    assert server.links == linked and made["capture"].startswith("capture-")
    assert {Path(name).suffix for name in server.uploads} >= {".pt", ".html"}
    assert len(server.runs) == 1, "the capture is in the run of its training"
    assert PRESENT.encode() not in server.received
    (capture,) = [name for name in server.uploads if name.endswith(".trace.json.gz")]
    assert str(tmp_path).encode() not in gzip.decompress(server.uploads[capture])


@pytest.mark.slow
def test_rows_that_the_server_lacks_are_sent_once(shell, tmp_path, monkeypatch):
    """Recorded offline, sent in part, then in full, then once more."""
    assert shell("-c", TRAINING, "offline").returncode == 0
    metrics = tmp_path / "out" / "metrics.jsonl"
    whole = metrics.read_bytes()
    metrics.write_bytes(b"".join(whole.splitlines(keepends=True)[:3]))
    server = FakeWandbServer()
    environ = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": API_KEY}
    words = ("-m", "profiling", "log", "out", "--metrics")
    assert shell(*words, **environ).stdout.startswith("2 of 2 rows sent; W&B run ")
    metrics.write_bytes(whole)
    assert shell(*words, **environ).stdout.startswith("3 of 5 rows sent; ")
    again = shell(*words, **environ)
    assert again.stdout.startswith("0 of 5 rows sent; "), again.stdout
    assert again.stdout.count("\n") == 1, "without a warning"
    server.close()
    ((_, history),) = server.history.items()
    assert [row["iter"] for row in history] == [0, 1, 2, 3, 4]
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="a copy"):
        log.main(["copy", "--metrics"])


@pytest.mark.parametrize(
    "words, message",
    [
        (["out/profile/nsys.nsys-rep"], "cannot be scrubbed; give its export, nsys.sqlite"),
        (
            ["out/profile/nsys.sqlite"],
            "is not in the folder of a run with W&B; name that folder with --run",
        ),
        (["nowhere"], "^nowhere: no such file or folder$"),
        (["out/profile/nsys.sqlite", "--run", "out"], "W&B recorded no run in this folder"),
        ([], "the following arguments are required: CAPTURE; see python -m profiling log --help"),
        (["out/profile/nsys.sqlite", "--rum", "out"], "unrecognized arguments: --rum out"),
    ],
)
def test_mistakes(capture, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message) as error:
        log.main(words)
    assert "\n" not in str(error.value)


def test_the_run_is_found_where_wandb_dir_says(tmp_path, monkeypatch):
    out_dir, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out_dir.mkdir()
    (out_dir / "config.yaml").write_text("wandb: {project: mine}")
    for name in ("offline-run-20260101_000000-abc", "run-20260102_000000-another"):
        (elsewhere / "wandb" / name).mkdir(parents=True)
    monkeypatch.setenv("WANDB_DIR", str(elsewhere))
    with pytest.raises(ValueError, match="/elsewhere/wandb: W&B recorded no run in this folder"):
        training_run(out_dir)  # it does not say which is its own
    keep_id(out_dir / "wandb", "abc")
    run = training_run(out_dir)
    assert (run.id, run.folder, run.offline) == ("abc", elsewhere, True)
    assert run.sync_command().endswith("/elsewhere/wandb/offline-run-20260101_000000-abc")


def test_a_run_that_goes_on_is_left_alone(capture, tmp_path):
    """W&B takes one writer of a run at a time."""
    out_dir = tmp_path / "out"
    (out_dir / "wandb" / "offline-run-20260101_000000-abc").mkdir(parents=True)
    (out_dir / "config.yaml").write_text("wandb: {project: mine}")
    with Lock(out_dir, "X"), pytest.raises(ValueError, match="/out: in use by process .* on host"):
        log.main([str(capture)])


def test_help(capsys):
    with pytest.raises(SystemExit, match="0"):
        log.main(["--help"])
    assert "a .nsys-rep is never" in capsys.readouterr().out
