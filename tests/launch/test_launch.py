"""python -m profiling run: with a fake nsys, as three versions of it."""

import gzip
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier

import pytest

from cli.lock import Lock
from configs.profiling import ProfileConfig
from profiling.launch import command, rank, reports
from profiling.shared.secrets import secret_names, without_secret_values
from profiling.timeline.scrub import without_folders
from profiling.tools import nsight, nsys_tool
from profiling.verbs import report, run, run_program
from tests.helpers.planted_secrets import TOKENS
from tests.helpers.processes import read_until
from tests.paths import CAPTURES, FAKES, PROJECT

# what the launcher reads in `nsys profile --help`: the options' lines, and values it looks for
HELP_2022 = """\
usage: nsys profile [<args>] [application] [<application args>]

\t-c, --capture-range=
\t   Possible values are none, cudaProfilerApi, nvtx, hotkey.
\t--capture-range-end=
\t   Possible values are none, stop, stop-shutdown, repeat[:N], repeat-shutdown:N.
\t--cpuctxsw=
\t   Possible values are 'process-tree', 'system-wide', 'none'.
\t--cuda-graph-trace=
\t   Possible values are 'graph' or 'node'.
\t--cuda-memory-usage=
\t   Possible values are 'true' or 'false'.
\t-f, --force-overwrite=
\t   Possible values are 'true' or 'false'.
\t--gpu-metrics-device=
\t   Possible values are 'none', 'all' or a list of GPU IDs.
\t--gpu-metrics-frequency=
\t   In Hz.
\t--gpu-metrics-set=
\t   An index that --gpu-metrics-set=help prints.
\t-o, --output=
\t   The name of the report.
\t-s, --sample=
\t   Possible values are 'process-tree', 'system-wide', 'none'. See --cpuctxsw too.
\t-t, --trace=
\t   Possible values are 'cuda', 'nvtx', 'cublas-verbose', 'cudnn', 'osrt', 'none'.
\t-w, --wait=
\t   Possible values are 'primary' or 'all'.
"""
HELP_2024 = (
    HELP_2022.replace("'none', 'all' or", "'none', 'cuda-visible', 'all' or")
    .replace("'cublas-verbose'", "'cublas', 'cublas-verbose'")
    .replace("An index that", "One of the aliases that")
    .replace("repeat[:N]", "repeat[:N][:mode]")
) + "\t--python-sampling=\n\t   Possible values are 'true' or 'false'.\n"
HELP_2025 = HELP_2024.replace("--gpu-metrics-device=", "--gpu-metrics-devices=") + (
    "\t--discard-environment=\n\t   Possible values are 'true' or 'false'.\n"
    "\t--cudabacktrace=\n\t   Possible values are 'kernel[:<threshold>]' or 'none'.\n"
    "\t--python-backtrace=\n\t   Possible values are 'cuda', 'none' or 'false'.\n"
)
ALIASES = "Possible values are:\n\t[ga100]\tGeneral, GA100\n\t[gh100]\tGeneral, GH100\n"
NUMBERED = ALIASES.replace("[ga100]", "[0] [ga100]").replace("[gh100]", "[1] [gh100]")
VERSIONS = {
    "2022.4.2.1": (HELP_2022, NUMBERED),
    "2024.2.3.38": (HELP_2024, NUMBERED),  # takes either
    "2025.3.1.90": (HELP_2025, ALIASES),
}
NEWEST = "2025.3.1.90"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """install(version, folder, **facts): a fake nsys in a folder; no other is found."""
    monkeypatch.setitem(nsight.PLACES, "nsys", (str(tmp_path / "opt" / "*" / "bin" / "nsys"),))
    path = [p for p in os.environ["PATH"].split(os.pathsep) if not (Path(p) / "nsys").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(path))

    def fake(version=NEWEST, folder=None, **facts) -> Path:
        folder = folder or tmp_path / "opt" / version / "bin"
        folder.mkdir(parents=True)
        text, sets = VERSIONS.get(version, VERSIONS[NEWEST])
        facts = {"version": version, "help": text, "sets": sets, "outcome": "report", **facts}
        (folder / "fake.json").write_text(json.dumps(facts))
        shutil.copy(FAKES / "fake_nsys.py", folder / "fake_nsys.py")
        program = folder / "nsys"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} "{folder}/fake_nsys.py" "$@"\n')
        program.chmod(0o755)
        return program

    return fake


@pytest.fixture
def trainer(tmp_path):
    """trainer(body): a program in train.py's place; it prints its words, then does `body`."""

    def write(body: str = "") -> list[str]:
        path = tmp_path / "train stub.py"
        path.write_text(f"import sys\nprint('trained', *sys.argv[1:])\n{body}\n")
        return [str(path)]

    return write


@pytest.fixture
def out_dir(tmp_path):
    return tmp_path / "out of a run"


@pytest.fixture
def words(out_dir):
    return ["config/shakespeare_char_cpu.yaml", f'out_dir="{out_dir}"']


def calls(nsys: Path) -> list[dict]:
    return [json.loads(line) for line in (nsys.parent / "calls.jsonl").read_text().splitlines()]


def dry_run(capsys, *argv: str) -> tuple[list[str], str]:
    """The printed command as a shell would read it, and what was said of it."""
    assert run.main(["--dry-run", *argv]) == 0
    printed = capsys.readouterr()
    line = printed.out.splitlines()[-1]
    words = shlex.split(line)
    if words[0] == "env":
        del words[: 1 + 2 * words.count("-u")]
    return words, printed.err


def options(words: list[str]) -> dict[str, str]:
    pairs = (word[2:].partition("=") for word in words[: words.index("-o")] if word[:2] == "--")
    return {name: value for name, _, value in pairs}


LIGHT = {
    "trace": "cuda,nvtx",
    "sample": "none",
    "cpuctxsw": "none",
    "cuda-graph-trace": "node",
    "capture-range": "cudaProfilerApi",
    "capture-range-end": "stop",
    "wait": "primary",
    "force-overwrite": "true",
}
DISCARD = {"discard-environment": "true"}


def test_the_dry_run_is_the_command_and_starts_nothing(install, words, out_dir, capsys):
    nsys = install()
    command, _ = dry_run(capsys, *words, "attention=slow")
    assert command[:2] == [str(nsys), "profile"]
    assert options(command) == LIGHT | DISCARD
    at = command.index("-o")
    assert command[at + 1] == str(out_dir / "nsys.partial" / "nsys")
    assert command[at + 2 : at + 5] == [sys.executable, "-u", str(PROJECT / "train.py")]
    assert command[at + 5 :] == [*words, "attention=slow", "profile=nsys"]
    assert not out_dir.exists()
    assert [call["arguments"][0] for call in calls(nsys)] == ["--version", "profile"]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_metrics_are_spelled_as_the_version_has_them(install, words, capsys, version):
    install(version)
    command, said = dry_run(capsys, "--preset", "metrics", "--metric-set=gh100", *words)
    expected = {
        "2022.4.2.1": {"gpu-metrics-device": "all", "gpu-metrics-set": "1"},
        "2024.2.3.38": {"gpu-metrics-device": "cuda-visible", "gpu-metrics-set": "gh100"},
        NEWEST: {"gpu-metrics-devices": "cuda-visible", "gpu-metrics-set": "gh100"} | DISCARD,
    }[version]
    assert options(command) == LIGHT | expected | {"gpu-metrics-frequency": "10000"}
    assert ("has no --discard-environment" in said) == (version != NEWEST)


@pytest.mark.slow
def test_what_the_version_lacks_is_left_out_and_said(install, words, capsys):
    lines = [line for line in HELP_2022.splitlines() if "--cuda-graph-trace" not in line]
    install("2022.4.2.1", help="\n".join(lines))
    command, said = dry_run(capsys, "--preset=full", *words)
    found = options(command)
    assert found["trace"] == "cuda,nvtx,osrt,cudnn"  # cublas-verbose is another word than cublas
    assert found["sample"] == found["cpuctxsw"] == "process-tree"
    for name in ("python-sampling", "cuda-graph-trace", "discard-environment"):
        assert name not in found and f"has no --{name}: left out" in said
    assert "does not trace cublas: left out" in said
    assert set(found) <= set(nsys_tool.find().options)


@pytest.mark.parametrize("version", ["2022.4.2.1", NEWEST])
def test_stacks_are_recorded_where_the_version_can(install, words, capsys, version):
    install(version)
    stacks = {"sample": "process-tree", "cudabacktrace": "kernel:0", "python-backtrace": "cuda"}
    has = version == NEWEST
    for argv in ([*words, "profile.stack=true"], ["--kind", "nsys", "--stack", "--", "true"]):
        command, said = dry_run(capsys, *argv)
        assert options(command) == LIGHT | (stacks | DISCARD if has else {})
        assert ("has no --python-backtrace: no lines of the program" in said) != has


@pytest.mark.slow
def test_memory_and_full(install, words, capsys):
    install()
    command, said = dry_run(capsys, "--preset", "memory", *words)
    assert options(command) == LIGHT | DISCARD | {"cuda-memory-usage": "true"}
    command, said = dry_run(capsys, "--preset", "full", *words)
    assert options(command)["trace"] == "cuda,nvtx,osrt,cublas,cudnn"
    assert options(command)["python-sampling"] == "true" and "left out" not in said


def test_the_users_own_options_pass_and_replace_the_presets(install, words, capsys):
    install()
    own = "-t cuda --sample=process-tree --bogus"
    command, _ = dry_run(capsys, *words, "--nsys-options", own)
    before = command[: command.index("-o")]
    assert before[-4:] == ["-t", "cuda", "--sample=process-tree", "--bogus"]
    assert not [word for word in before if word.startswith("--trace")]
    assert before.count("--sample=none") == 0


def test_several_windows_are_all_recorded(install, words, capsys):
    install()
    keys = ["profile.windows=3", "profile.start=10", "profile.steps=5"]
    command, _ = dry_run(capsys, *words, *keys)
    assert options(command)["capture-range-end"] == "repeat:3"


@pytest.mark.slow
def test_the_report_and_its_sqlite(install, trainer, words, out_dir, capfd):
    install()
    for _ in range(2):
        assert run.main([*words, "seed=2"], trainer("print('to stderr', file=sys.stderr)")) == 0
    report = out_dir / "profile" / "nsys.nsys-rep"
    assert report.read_text().endswith("seed=2 profile=nsys")
    database = sqlite3.connect(report.with_suffix(".sqlite"))
    (exported,) = database.execute("SELECT text FROM report").fetchone()
    assert exported == without_folders(report.read_text())
    names = sorted(path.name for path in out_dir.rglob("*"))
    older = ["nsys.previous-1.nsys-rep", "nsys.previous-1.sqlite"]
    assert names == sorted(["nsys.nsys-rep", "nsys.sqlite", *older, "profile"])
    said = capfd.readouterr().out
    assert "trained config/shakespeare_char_cpu.yaml" in said and "to stderr" in said
    assert f"report  {report}" in said and f"sqlite  {report.with_suffix('.sqlite')}" in said
    assert f"stats --report=nvtx_gpu_proj_sum,cuda_gpu_kern_sum {shlex.quote(str(report))}" in said
    capture, page = (shlex.quote(str(report.with_suffix(end))) for end in (".sqlite", ".html"))
    assert f"next    python -m profiling report {capture} --html {page}\n" in said
    assert f"python -m profiling compare {capture} OTHER.sqlite" in said


@pytest.mark.slow
def test_the_run_ends_with_what_the_capture_says(install, trainer, words, tmp_path, capfd):
    capture = tmp_path / "captured.sqlite"
    capture.write_bytes(gzip.decompress((CAPTURES / "slow_eager.sqlite.gz").read_bytes()))
    install(sqlite=str(capture))
    assert run.main([*words, "wandb.captures=true", "wandb.mode=offline"], trainer()) == 0
    said, unsent = capfd.readouterr().out.split("\n\nthe capture is not in W&B: ")
    assert "W&B recorded no run in this folder" in unsent
    assert "\nBound by GPU memory bandwidth" in said and "The typical step" in said
    assert report.main([str(capture)]) == 0
    assert said.splitlines()[-1] == capfd.readouterr().out.splitlines()[-1]


@pytest.mark.slow
def test_a_report_for_each_window(install, trainer, words, out_dir, capfd):
    install(outcome="two windows")
    assert run.main([*words, "profile.windows=3", "profile.start=10"], trainer()) == 1
    assert "2 of 3 windows have a report" in capfd.readouterr().out
    shutil.rmtree(out_dir)
    assert run.main([*words, "profile.windows=2", "profile.start=10"], trainer()) == 0
    names = sorted(path.name for path in (out_dir / "profile").iterdir())
    assert names == ["nsys.1.nsys-rep", "nsys.1.sqlite", "nsys.2.nsys-rep", "nsys.2.sqlite"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "outcome, status, why, cure",
    [
        ("no range", 1, "no window was opened", "profile.start"),
        ("qdstrm", 1, "no working QdstrmImporter", "apt-get install libdw1 libelf1"),
        ("permission", 1, "RmProfilingAdminOnly", "--preset light"),
        ("attached", 1, "another profiler is attached", "end the other profiler"),
        ("illegal", 1, "cannot sample metrics of this GPU", "--preset light"),
        ("option", 1, "nsys rejected an option", "--dry-run"),
        ("export fails", 1, "sqlite  none", "disk full"),
    ],
)
def test_no_report_is_explained(install, trainer, words, capfd, outcome, status, why, cure):
    install(outcome=outcome)
    assert run.main(words, trainer()) == status
    said = capfd.readouterr().out
    assert why in said and cure in said


def test_the_reports_of_ranks_are_exported_at_once_and_told_in_their_order(
    tmp_path, monkeypatch, capsys
):
    made = [tmp_path / f"nsys-rank{rank}.nsys-rep" for rank in range(3)]
    meet = Barrier(len(made), timeout=60)

    def export(nsys, report):
        meet.wait()
        return "disk full" if report == made[1] else None

    monkeypatch.setattr(reports, "export", export)
    for path in made:
        path.write_text("report")
        path.with_suffix(".sqlite").write_text("exported")
    nsys = nsys_tool.Nsys("nsys", NEWEST, {}, {})
    assert not reports.export_reports(nsys, made, nullcontext)
    said = capsys.readouterr().out
    assert re.findall("report  .*/(.*?)\\.nsys-rep", said) == [path.stem for path in made]
    assert said.count("sqlite  none: disk full") == 1


@pytest.mark.slow
def test_the_capture_that_was_not_imported_is_kept(install, trainer, words, out_dir, capfd):
    """The importer is there and lacks a library: said before training starts, and at the end."""
    nsys = install(outcome="qdstrm")
    importer = nsys.parent.parent / "host-linux-x64" / "QdstrmImporter"
    importer.parent.mkdir()
    complaint = "error while loading shared libraries: libdw.so.1: cannot open shared object file"
    importer.write_text(f"#!/bin/sh\necho '{complaint}' >&2\nexit 127\n")
    importer.chmod(0o755)
    assert run.main(words, trainer()) == 1
    said = capfd.readouterr()
    cure = f"{importer} needs libdw.so.1, which is missing; apt-get install libdw1 libelf1"
    assert f"warning: the report will stay a .qdstrm file: {cure}" in said.err
    assert cure in said.out
    assert "--input-file" in said.out and (out_dir / "profile" / "nsys.qdstrm").exists()


@pytest.mark.slow
def test_trainings_own_failure_passes_through(install, trainer, words, out_dir, capfd):
    install()
    assert run.main(words, trainer("sys.exit('out of luck')")) == 1
    assert run.main(words, trainer("print('half a line', end=''); sys.exit(7)")) == 7
    assert (out_dir / "profile" / "nsys.nsys-rep").exists()
    said = capfd.readouterr().out
    assert "out of luck" in said and "ended with exit code 7" in said


def test_a_failure_before_the_window_is_not_blamed_on_nsys(install, trainer, words, capfd):
    install(outcome="no range")
    assert run.main(words, trainer("sys.exit(3)")) == 3
    assert "training ended before a window was opened" in capfd.readouterr().out


@pytest.mark.slow
def test_secrets_do_not_reach_the_report(install, trainer, words, monkeypatch, capfd):
    nsys = install()
    secrets = {
        "WANDB_API_KEY": "planted-1",
        "HF_TOKEN": "planted-2",
        "DB_PASSWORD": "planted-3",
        "MY_SECRET": "planted-4",
        "aws_credentials": "planted-5",
        "HTTPS_PROXY": "http://me:planted-6@proxy:8080",
    }
    harmless = {"TOKENIZERS_PARALLELISM": "false", "HTTP_PROXY": "http://proxy:8080", "LANG": "C"}
    for name, value in (secrets | harmless).items():
        monkeypatch.setenv(name, value)
    body = "import os; print([v for v in os.environ.values() if 'planted' in v])"
    assert run.main(words, trainer(body)) == 0
    asked = [call["arguments"][0] for call in calls(nsys)]
    assert asked == ["--version", "profile", "profile", "export", "export"]
    assert "--include-blobs=true" in calls(nsys)[-1]["arguments"]
    for call in calls(nsys):
        assert "planted" not in json.dumps(call)
        assert harmless.items() <= call["environ"].items()
    said = capfd.readouterr()
    assert "\n[]\n" in said.out and "planted" not in said.out + said.err
    assert all(name in said.err for name in secrets) and "wandb login" in said.err
    assert shlex.split(said.out.splitlines()[0])[:2] == ["env", "-u"]
    assert secret_names({"PWD": "/", "PATH": "a", "MONKEY": "1"}) == ["MONKEY"]


@pytest.mark.parametrize(
    "typed, kept",
    [
        ("python t.py --api-key=planted --lr=1", "python t.py '--api-key=[hidden]' --lr=1"),
        ("t.py --token planted --token --x", "t.py --token '[hidden]' --token --x"),
        ("env HF_TOKEN=planted t.py", "env 'HF_TOKEN=[hidden]' t.py"),
        ("sh -c 'A=1 KEY=planted t.py'", "sh -c 'A=1 KEY=[hidden] t.py'"),
        ("""t.py '{"api_key": "planted", "n": 1}'""", """t.py '{"api_key": [hidden], "n": 1}'"""),
        ("t.py --db=x://me:planted@host/a", "t.py '--db=x://[hidden]@host/a'"),
        ("t.py --args=--api-key=planted", "t.py '--args=--api-key=[hidden]'"),
        ("t.py --password 1234", "t.py --password '[hidden]'"),
        ("docker run --env=HF_TOKEN=planted t.py", "docker run '--env=HF_TOKEN=[hidden]' t.py"),
        ("t.py --data='s3://a/b?token=planted'", "t.py '--data=s3://a/b?token=[hidden]'"),
        ("t.py '++hub.token=planted planted'", "t.py '++hub.token=[hidden]'"),
        ("t.py --db-pass planted --pass=planted", "t.py --db-pass '[hidden]' '--pass=[hidden]'"),
        ("""-c 'e["HF_TOKEN"] = "planted"; go()'""", """-c 'e["HF_TOKEN"] = [hidden]; go()'"""),
        ("""-c 'e["A"]="b"; x = y["z"]' --url=http://a:80/b --bypass x""", None),
        ("t.py --max_tokens=64 --key_dim 8 --tokenizer x --hub-token false", None),
    ],
)
def test_a_file_never_gets_the_secrets_of_a_command(typed, kept):
    assert shlex.join(without_secret_values(shlex.split(typed))) == (kept or typed)


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_is_known_by_its_shape_whatever_its_name(token):
    assert without_secret_values(["t.py", f"hub={token}", token]) == [
        *("t.py", "hub=[hidden]", "[hidden]")
    ]
    assert secret_names({"A": f"x {token}", "B": token[:12], "C": f"a{token}"}) == ["A"]


def test_what_only_begins_like_a_token_stays():
    words = [
        "sk-learn-experiment-with-long-name",
        "sk-learn-Baseline-ResNet50Large-run-3",
        "sk-learn-RandomForest-n100-20241126T113055",
        "sk-Llama3p1-8B-Instruct-ctx32k-lr2e5",
        "pypi-mirror-of-the-cluster-with-AgE",
        "npm_and_yarn_are_not_needed_for_this_run",
        "AIzawa-is-a-town",
        "eyJafjallajokull.eyJafjord.run",
        "hf_transfer",
        "task-ABCDEFGHIJKLMNOPQRST1",
        "ghp",
        "sk-" * 15_000,
        "sk-" + "a-" * 15_000,
        "eyJ-aaaaaaaaaa-" * 5_000,
    ]
    began_s = time.process_time()
    assert without_secret_values(words) == words
    assert time.process_time() - began_s < 2, "a name in a capture may be made to take long"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_ends_training_in_order_and_the_report_is_written(
    install, trainer, words, out_dir, start, number
):
    nsys = install()
    stub = trainer(
        "import signal, time\n"
        "def stop(*_):\n    print('window closed', flush=True); sys.exit(130)\n"
        "signal.signal(signal.SIGINT, stop)\nprint('ready', flush=True)\ntime.sleep(60)"
    )
    code = (
        "import sys; from profiling.verbs import run\n"
        "sys.exit(run.main(sys.argv[2:], sys.argv[1:2]))"
    )
    arguments = ["-c", code, *stub, "--nsys", str(nsys), *words]
    process = start(arguments, PYTHONPATH=str(PROJECT))
    read_until(process, "ready")
    process.send_signal(number)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 128 + number, output
    assert output.count("window closed") == 1 and output.count("fake nsys: interrupted") == 1
    assert (out_dir / "profile" / "nsys.sqlite").exists()


@pytest.mark.slow
def test_torchrun_has_nsys_inside_the_chosen_ranks(install, trainer, words, out_dir, capfd):
    nsys = install()
    body = (
        "import os\n"
        "names = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')\n"
        "print('of torchrun:', *(os.environ[name] for name in names))"
    )
    arguments = ["--nproc-per-node", "3", "--ranks", "0,2", *words]
    assert run.main(arguments, trainer(body)) == 0
    names = sorted(path.name for path in (out_dir / "profile").iterdir())
    assert names == [f"nsys-rank{n}.{kind}" for n in (0, 2) for kind in ("nsys-rep", "sqlite")]
    started = [c for c in calls(nsys) if "-o" in c["arguments"]]
    assert sorted(c["environ"]["RANK"] for c in started) == ["0", "2"]
    assert all(c["arguments"][-2:] == ["profile=nsys", "profile.ranks=[0,2]"] for c in started)
    said = capfd.readouterr().out
    ranks = re.findall(r"of torchrun: (\d) (\d) 3 (\S+) (\d+)$", said, re.M)
    assert sorted(rank[:2] for rank in ranks) == [(n, n) for n in "012"]
    assert len({rank[2:] for rank in ranks}) == 1, "they find each other"


@pytest.mark.slow
def test_a_failing_rank_passes_its_failure_on(install, trainer, words, out_dir, capfd, forked):
    install()
    folder = out_dir / "profile"
    folder.mkdir(parents=True)
    earlier = folder / "flight-rank7"
    earlier.touch()
    os.utime(earlier, (1, 1))
    assert run.main(["--nproc-per-node", "1", *words], trainer("sys.exit(3)")) != 0
    said = capfd.readouterr().out
    assert "ended with exit code" in said and "profiling hang" not in said
    hangs = f"open({str(folder / 'flight-rank0')!r}, 'w').close(); os.abort()"
    assert run.main(["--nproc-per-node", "1", *words], trainer(f"import os; {hangs}")) != 0
    said = capfd.readouterr().out
    assert (
        f"what each rank did last: python -m profiling hang {shlex.quote(str(out_dir))}\n" in said
    )


def test_each_rank_samples_the_metrics_of_its_own_gpu(install, words, capsys):
    install()
    arguments = ["--preset", "metrics", "--nproc-per-node", "2", "--ranks", "0,1", *words]
    command, _ = dry_run(capsys, *arguments)
    script = next(n for n, word in enumerate(command) if word.endswith("rank.py"))
    program = [sys.executable, "-u", str(PROJECT / "train.py")]
    for environ, gpu in (
        ({"RANK": "1", "LOCAL_RANK": "1"}, "1"),
        ({"RANK": "1", "LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,5"}, "5"),
    ):
        inner = rank.command(command[script + 1 :], environ)
        assert inner[1] == "profile" and f"--gpu-metrics-devices={gpu}" in inner
        assert inner[inner.index("-o") + 1].endswith("nsys-rank%q{RANK}")
        assert [*program, *words] == inner[inner.index("-o") + 2 :][: 3 + len(words)]
    assert rank.command(command[script + 1 :], {"RANK": "7"})[:3] == program


def test_the_ranks_of_the_key_are_those_of_the_flag():
    every, words = ProfileConfig(kind="nsys", ranks=["all"]), ["profile.ranks=all"]
    assert command.chosen_ranks(words, every, None, 3) == [0, 1, 2]
    assert command.chosen_ranks(words, every, "all", 3) == [0, 1, 2]
    assert command.training_command(["train.py"], words, [0, 1, 2])[-1] == "profile=nsys"
    with pytest.raises(ValueError, match="--ranks: differs from profile.ranks"):
        command.chosen_ranks(words, every, [0], 3)


@pytest.mark.parametrize(
    "argv, message",
    [
        (["bogus_key=1"], "bogus_key: no such key"),
        (["nowhere.yaml"], "nowhere.yaml: no such file"),
        (["--preset", "heavy"], "--preset"),
        (["--ranks", "0"], "--ranks: needs --nproc-per-node"),
        (["--nproc-per-node", "2", "--ranks", "2"], "starts ranks 0 to 1"),
        (["--nproc-per-node", "0"], "must be at least 1"),
        (["--nproc-per-node", "2", "--ranks", "a"], "--ranks: a: give numbers"),
        (["--metric-set", "gh100"], "only with --preset metrics"),
        (["--preset", "metrics", "--metric-set", "tu10x"], "this nsys has ga100, gh100"),
        (["-m", "attention=slow,flash"], "one run at a time"),
        (["--cfg", "job"], "--cfg: this flag of train.py"),
        (["profile=torch"], "this verb always uses nsys"),
        (["profile.start=5000"], "profile.start=5000"),
        (["--nsys", "/nowhere/nsys"], "does not answer to --version"),
        (["--nsys-options", "-o here"], "the report is always written to out_dir/profile"),
        (["--nsys-options='"], "No closing quotation"),
        (["--", "--trace=cuda", "-b"], "are given as --nsys-options='--trace=cuda -b'"),
        (["--", "python", "mine.py"], "is for our training, but a program follows --"),
        (["--steps", "5"], "--steps: only with a program, which follows --"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(install, words, out_dir, argv, message):
    install()
    with pytest.raises(ValueError, match=re.escape(message)):
        run.main([*words, *argv])
    assert not out_dir.exists()


@pytest.mark.slow
def test_a_folder_in_use_is_left_alone(install, trainer, words, out_dir):
    """A capture may be on its way there."""
    install()
    partial = out_dir / "nsys.partial" / "nsys.qdstrm"
    with Lock(out_dir, "X"):
        partial.parent.mkdir()
        partial.write_text("half of it")
        with pytest.raises(ValueError, match=rf"^out_dir={re.escape(str(out_dir))}: in use by pro"):
            run.main(words, trainer(""))
        assert partial.read_text() == "half of it"


def test_nsys_is_found_on_path_and_else_the_newest(install, tmp_path, monkeypatch, words, capsys):
    instead = re.escape(shlex.join(["python", "train.py", *words, "profile=torch"]))
    with pytest.raises(ValueError, match=f"install Nsight Systems .*; without nsys: {instead}$"):
        run.main(["--dry-run", *words])
    for version in ("2024.2.3.38", NEWEST, "2024.10.1"):
        install(version)
    broken = tmp_path / "opt" / "toolkit" / "bin" / "nsys"  # a toolkit without Nsight Systems
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\necho 'no Nsight Systems here' >&2; exit 1\n")
    broken.chmod(0o755)
    versions = [program.version for program in nsight.installed_programs("nsys")]
    assert versions == [NEWEST, "2024.10.1", "2024.2.3.38"]
    own = install("2022.4.2.1", folder=tmp_path / "own bin")
    command, _ = dry_run(capsys, "--nsys", str(own), *words)
    assert command[0] == str(own)
    monkeypatch.setenv("PATH", f"{own.parent}{os.pathsep}{os.environ['PATH']}")
    assert nsys_tool.find().path == str(own)


@pytest.mark.slow
def test_the_verbs_on_the_command_line(start):
    for arguments, status, message in (
        (["--help"], 0, "the lab\n  attention "),
        (["run", "--help"], 0, "--nproc-per-node N"),
        (["runn"], 2, "profiling: error: runn: no such verb; did you mean run?"),
        (["memory"], 2, "memory: no such verb; report reads memory snapshots"),
        (["run", "bogus=1"], 2, "profiling run: error: bogus: no such key"),
    ):
        process = start(["-m", "profiling", *arguments], PYTHONPATH=str(PROJECT))
        output = process.communicate(timeout=60)[0]
        assert (process.returncode, message in output) == (status, True), output


def test_generation_runs_under_nsys_too(install, tmp_path, capsys):
    install()
    words = ["sample.py", f"out_dir={tmp_path}/run", "num_samples=3", "profile.steps=5"]
    command, _ = dry_run(capsys, *words)
    at = command.index("-o")
    assert command[at + 1] == str(tmp_path / "run" / "sample" / "nsys.partial" / "nsys")
    program = [sys.executable, "-u", str(PROJECT / "sample.py")]
    assert command[at + 2 :] == [*program, *words[1:], "profile=nsys"]
    assert options(command)["capture-range"] == "cudaProfilerApi"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sample.py", "profile=torch"], "profile=torch: this verb always uses nsys"),
        (["sample.py", "num_sample=3"], "num_sample: no such key; did you mean num_samples"),
        (["sample.py", "profile.steps=501"], "profile.steps=501: the window would be tokens"),
        (["--nproc-per-node", "2", "sample.py"], "--nproc-per-node: sample.py runs in one process"),
    ],
)
def test_mistakes_of_generation_are_refused_before_it_starts(install, words, message):
    install()
    with pytest.raises(ValueError, match=f"^{message}"):
        run.main(["--dry-run", *words])


# a program of the user's


def test_a_program_under_nsys_has_the_hook_and_no_secrets(install, tmp_path, monkeypatch, capfd):
    nsys = install()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_SECRET", "planted")
    code = "import os; print(os.environ.get('MY_SECRET'), 'PROFILING_ATTACH' in os.environ)"
    flags = ["--kind", "nsys", "--steps", "5", "--nsys-options", "--trace=cuda"]
    assert run.main([*flags, "--", sys.executable, "-c", f"{code}; raise SystemExit(6)"]) == 6
    said = capfd.readouterr()
    assert said.out == "None True\n" and "Generated:\n" in said.err
    assert "profiling run: not passed to the run" in said.err and "MY_SECRET" in said.err
    assert "5 steps are recorded by nsys; files go to out-run" in said.err
    assert "planted" not in json.dumps(calls(nsys)) and "report  out-run/profile/nsys" in said.err
    (called,) = [call["arguments"] for call in calls(nsys) if "-o" in call["arguments"]]
    assert options(called) == LIGHT | DISCARD | {"trace": "cuda"}
    assert called[called.index("-o") + 1] == str(tmp_path / "out-run" / "nsys.partial" / "nsys")
    names = {path.name for path in (tmp_path / "out-run").rglob("*")}
    assert {"config.yaml", "nsys.nsys-rep", "nsys.sqlite"} <= names and "run.lock" not in names


@pytest.mark.slow
def test_any_command_is_recorded_whole(install, tmp_path, monkeypatch, capfd):
    capture = tmp_path / "captured.sqlite"
    capture.write_bytes(gzip.decompress((CAPTURES / "slow_eager.sqlite.gz").read_bytes()))
    nsys = install(sqlite=str(capture))
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert run.main(["--whole", "--", "echo", "any command"]) == 0
    said = capfd.readouterr()
    assert said.out == 2 * "any command\n" and "all of it is recorded by nsys" in said.err
    assert "no steps are known of this program: the report is about all of it" in said.err
    assert "\nBound by GPU memory bandwidth" in said.err
    assert "the earlier run in out-run is now in previous-1" in said.err
    called = next(call["arguments"] for call in calls(nsys) if "-o" in call["arguments"])
    left_out = {"capture-range", "capture-range-end", "wait"}
    kept = {name: text for name, text in LIGHT.items() if name not in left_out}
    assert options(called) == kept | DISCARD


def test_a_program_that_opens_no_window_is_told_of_whole(install, tmp_path, monkeypatch, capfd):
    install(outcome="no range")
    monkeypatch.chdir(tmp_path)
    assert run.main(["--kind", "nsys", "--", "echo", "any command"]) == 0
    said = capfd.readouterr().err
    assert "nothing was recorded: no step of the program opened the window" in said
    assert "--whole records from the start to the end" in said
    assert not (tmp_path / "out-run").exists()
    note = '{"notes": ["no window of nsys: torch uses no GPU in this process"]}'
    line = f"mkdir out-run/facts; echo '{note}' > out-run/facts/rank0.json"
    assert run.main(["--kind", "nsys", "--", "sh", "-c", line]) == 0
    said = capfd.readouterr().err
    assert "nothing was recorded: the program uses no GPU" in said and "--start" not in said


@pytest.mark.parametrize(
    ("gpu", "installed", "kind"), [(0, 1, "torch"), (1, 0, "torch"), (1, 1, "nsys")]
)
def test_the_kind_is_nsys_where_it_and_a_gpu_are(
    install, tmp_path, monkeypatch, capfd, gpu, installed, kind
):
    if installed:
        install()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_program, "has_gpu", lambda: bool(gpu))
    assert run.main(["--", "true"]) == 0
    tool = {"torch": "torch.profiler", "nsys": "nsys"}[kind]
    why = "nsys is not installed" if gpu and not installed else "no GPU is here"
    why = "it is installed and a GPU is here" if kind == "nsys" else why
    assert f"20 steps are recorded by {tool}, because {why}; files go" in capfd.readouterr().err
