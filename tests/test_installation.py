"""An installation from the project's own wheel: what is in it, and what works there."""

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from runpy import run_path
from subprocess import CompletedProcess

import pytest

from cli.extras import PARTS, READING
from profiling.__main__ import VERBS
from tests.paths import CAPTURES, PROJECT
from validation.jax_events import steps_of_jax

pytestmark = pytest.mark.slow

PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))
PACKAGES = [
    name.removesuffix("*")
    for name in PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
]
MODULES = [f"{name}.py" for name in PYPROJECT["tool"]["setuptools"]["py-modules"]]
SOURCE = [*PACKAGES, *MODULES, "README.md", "LICENSE", "pyproject.toml", "setup.py"]
BUILD = "from setuptools import build_meta; build_meta.build_{}('../dist')"
MODEL = ["n_layer=1", "n_head=2", "n_embd=16", "block_size=16", "batch_size=2", "compile=false"]
QUIET = ["device=cpu", "eval_iters=1", "wandb.mode=disabled"]
# verbs in one process, as a JSON list of lists of words; the last line is their exit codes
VERBS_HERE = """
import json, sys
from importlib import import_module
codes = []
for verb, *words in json.loads(sys.argv[1]):
    try:
        codes.append(import_module(f"profiling.verbs.{verb}").main(words))
    except SystemExit as ended:
        codes.append(ended.code)
print(codes)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Folder with source/, what a build needs, and dist/: its sdist, and the wheel of that."""
    pytest.importorskip("setuptools", minversion="77", reason="needs setuptools>=77")
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    source.mkdir()
    for name in SOURCE:
        if (PROJECT / name).is_file():
            shutil.copy(PROJECT / name, source)
            continue
        ignore = shutil.ignore_patterns("__pycache__", *([] if name != "data" else ["*[!y]"]))
        shutil.copytree(PROJECT / name, source / name, ignore=ignore)
    build = [sys.executable, "-c"]
    subprocess.run([*build, BUILD.format("sdist")], cwd=source, check=True, capture_output=True)
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as content:
        content.extractall(folder, filter="data")
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    stale = unpacked / "build" / "lib" / "stale.py"  # of a version with another layout
    stale.parent.mkdir(parents=True)
    stale.touch()
    subprocess.run([*build, BUILD.format("wheel")], cwd=unpacked, check=True, capture_output=True)
    return folder


def wheel(built: Path) -> dict[str, bytes]:
    """Names and contents of the files in the wheel."""
    (path,) = built.glob("dist/*.whl")
    with zipfile.ZipFile(path) as content:
        return {name: content.read(name) for name in content.namelist()}


@pytest.fixture(scope="module")
def installed(built) -> Path:
    """A virtual environment with the wheel, which also finds the packages of the tests' own."""
    (path,) = (built / "dist").glob("*.whl")
    venv.create(built / "venv", with_pip=False)
    (packages,) = (built / "venv").glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text(f"{Path(pytest.__file__).parent.parent}\n")
    offline = ["-q", "--no-deps", "--no-index", "--disable-pip-version-check", "--no-compile"]
    install = ["install", *offline, "--prefix", built / "venv", "--ignore-installed", path]
    subprocess.run([built / "venv/bin/python", "-m", "pip", *install], check=True)
    return built / "venv"


def run(command: list[str | Path], folder: Path, **variables: str) -> CompletedProcess[str]:
    """A command in `folder`, which knows nothing of the checkout."""
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "DISPLAY")}
    environ |= {"XDG_CACHE_HOME": str(folder / "cache")} | variables
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)


@pytest.fixture(scope="module")
def trained(installed, tmp_path_factory) -> tuple[Path, str]:
    """A folder with out/, a run of a few iterations by the installed program, and what it said."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "text.txt").write_text("To be, or not to be. ROMEO:\n" * 200)
    before = files_of(installed)
    words = ["config/shakespeare_char_cpu.yaml", *MODEL, *QUIET, "data_source=text.txt"]
    words += ["max_iters=10", "profile=torch", "profile.start=4", "profile.steps=2", "out_dir=out"]
    done = run([installed / "bin/profiling-nanogpt", "train", *words], folder)
    assert done.returncode == 0, done.stderr
    assert files_of(installed) == before, "an installation is not written into"
    return folder, done.stdout


def files_of(installation: Path) -> set[Path]:
    """All files but Python's own bytecode."""
    return {path for path in installation.rglob("*") if "__pycache__" not in path.parts}


def test_a_wheel_has_one_package_with_all_data_and_no_tests(built):
    names = set(wheel(built))
    tops = {name.split("/")[0] for name in names}
    assert tops == {"profiling", f"profiling_nanogpt-{PYPROJECT['project']['version']}.dist-info"}
    tracked = subprocess.check_output(
        ["git", "ls-files", *PACKAGES, *MODULES], cwd=PROJECT, text=True
    ).splitlines()
    inside = {name if name.startswith("profiling/") else f"profiling/{name}" for name in tracked}
    made = {"profiling/report/plotly.packed", "profiling/report/plotly.LICENSE"}
    assert inside | made == {name for name in names if name.startswith("profiling/")}
    hook = [name for name in names if re.search(r"sitecustomize|_profiling_attach", name)]
    assert hook and all(name.startswith("profiling/attach/hook/") for name in hook)


def test_no_import_of_a_moved_name_is_left(built):
    moved = "|".join([*(name.removesuffix(".py") for name in MODULES), *PACKAGES])
    left = re.compile(rf"^\s*(?:from|import) (?!profiling)(?:{moved})\b", re.M)
    for name, content in wheel(built).items():
        if name.endswith(".py"):
            assert not left.search(content.decode("utf-8")), name


def test_the_sdist_has_all_that_the_wheel_is_made_of(built):
    source = built / "source"
    files = [path for path in source.rglob("*") if path.is_file() and "egg-info" not in str(path)]
    (unpacked,) = (path.parent for path in built.glob("*/PKG-INFO"))
    assert len(files) > 400
    for path in files:
        assert path.read_bytes() == (unpacked / path.relative_to(source)).read_bytes(), path


@pytest.mark.parametrize(
    "line, refusal",
    [
        ("import data.batches", "needs `as`, or from"),
        ("import_module(f'data.{name}')", "names the module in a string"),
        ("x = importlib.util.find_spec('data')", "names the module in a string"),
    ],
)
def test_a_build_refuses_what_it_cannot_translate(line, refusal):
    translate = run_path(str(PROJECT / "setup.py"))["with_imports_of_package"]
    good = "import os, data.x as y  # data\nif a: from data import b; from data.c import (\n  d)\n"
    moved = good.replace("data.x", "profiling.data.x").replace("from data", "from profiling.data")
    assert translate(good, {"data"}, Path("m.py")) == moved
    with pytest.raises(SystemExit, match=f"m.py:3: {re.escape(refusal)}"):
        translate(f"\n\n{line}\n", {"data"}, Path("m.py"))


def test_it_trains_and_the_commands_that_it_prints_work(installed, trained):
    folder, said = trained
    (text,) = (folder / "cache/profiling-nanogpt").iterdir()
    assert f"{text}: tokens of the text" in said
    program = str(installed / "bin/profiling-nanogpt")  # which is not on PATH
    commands = re.findall(r"^next: (.*)$", said, re.M)
    assert [shlex.split(command)[:2] for command in commands] == [
        [program, "sample"],
        [program, "report"],
    ]
    for command, more in zip(commands, (["num_samples=1", "max_new_tokens=9"], []), strict=True):
        followed = run([*shlex.split(command), *more], folder)
        assert followed.returncode == 0, followed.stderr


def test_both_entry_points_do_the_same(installed, trained):
    """Commands that they print differ as they do."""
    folder, _ = trained
    modules = [installed / "bin/python", "-P", "-m", "profiling"]
    script = [installed / "bin/profiling-nanogpt"]
    environ = {"PATH": f"{installed / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    for words in (
        ["--help"],
        ["train", "--help"],
        ["sample", "--help"],
        ["data.prepare", "--help"],
        ["training.export", "--help"],
        ["reprot"],
        ["train", "n_layers=3"],
        ["sample", "tempreature=1"],
    ):
        first, second = (run([*start, *words], folder, **environ) for start in (modules, script))
        spelled = second.stdout.replace("profiling-nanogpt", "python -m profiling")
        assert first.stdout.replace("profiling-nanogpt", "python -m profiling") == spelled
        assert first.returncode == second.returncode == (0 if "--help" in words else 2)
        assert "python train.py" not in first.stdout and "-m data.prepare" not in first.stdout
        assert first.stderr.replace("python -m profiling", "profiling-nanogpt") == second.stderr


def test_data_and_checkpoints_are_prepared_and_exported(installed, trained):
    folder, _ = trained
    start = [installed / "bin/python", "-P", "-m", "profiling"]
    made = run([*start, "data.prepare", "text.txt", "tokenizer=char", "out=mine"], folder)
    assert made.returncode == 0, made.stderr
    hint = re.search(r"^next: (.*)$", made.stdout, re.M)[1]
    assert hint.startswith("python -m profiling train dataset=mine ")
    again = run([*start, *shlex.split(hint)[3:], "--cfg", "job"], folder)
    assert again.returncode == 0, again.stderr
    exported = run([*start, "training.export", "out_dir=out", "folder=weights"], folder)
    assert exported.returncode == 0, exported.stderr
    assert (folder / "weights/model.safetensors").is_file()


def test_processes_of_its_own_find_the_package(installed, trained):
    """`ab` starts the trainer's script, and `run` gives the hook to a program of others."""
    folder, _ = trained
    start = [installed / "bin/profiling-nanogpt"]
    planned = run([*start, "ab", "--dry-run", *MODEL, "device=cpu", "seed=1,2"], folder)
    command = re.search(r"^\S+ -u .*train\.py .*$", planned.stdout, re.M)
    assert command, planned.stdout + planned.stderr
    shown = run([*shlex.split(command[0]), "--cfg", "job"], folder)
    assert "seed: 1\n" in shown.stdout, shown.stderr
    (folder / "mine.py").write_text(
        "import torch\nweight = torch.ones(4, requires_grad=True)\n"
        "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
        "for _ in range(30): (weight * 2).sum().backward(); optimizer.step()\n"
    )
    program = ["run", "--kind", "none", "--", installed / "bin/python", "mine.py"]
    done = run([*start, *program], folder)
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert "profiling run: 29 steps; a step ends with SGD.step()" in done.stderr


def test_it_shows_the_demo_from_any_folder_and_imports_no_torch(installed, tmp_path):
    program = installed / "bin/profiling-nanogpt"
    shown = run([program, "demo"], tmp_path, PYTHONPROFILEIMPORTTIME="1")
    assert shown.returncode == 0, shown.stderr
    assert len(list(tmp_path.glob("profiling-demo/*.html"))) == 4
    assert str(installed) in shown.stdout, "the examples are those of the wheel"
    assert f"  {program} train config/" in shown.stdout
    modules = set(re.findall(r"^import time:.*\| +(\S+)$", shown.stderr, re.M))
    assert "numpy" in modules and not {"torch", "wandb", "hydra"} & modules


# The half that reads


def needed_by(names: Iterator[str]) -> set[str]:
    """Packages that these need, themselves included."""
    found: set[str] = set()
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            lines = [line for line in distribution(name).requires or [] if "extra ==" not in line]
            waiting += [re.match(r"[\w.-]+", line)[0].lower() for line in lines]
    return found


@pytest.fixture(scope="module")
def base(built) -> list[str | Path]:
    """Python with the wheel, the packages that its base needs, and no other."""
    folder = built / "base"
    folder.mkdir()
    (path,) = (built / "dist").glob("*.whl")
    with zipfile.ZipFile(path) as content:
        content.extractall(folder)
    for name in needed_by(name for name in READING.modules.values() if name != "plotly"):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            if top != "__pycache__":
                (folder / top).symlink_to(found.locate_file(top))
    return [sys.executable, "-S", "-P"]


@pytest.fixture
def reader(base, built, tmp_path):
    """reader(words): Python with these words in an empty folder."""
    return lambda *words: run([*base, *words], tmp_path, PYTHONPATH=str(built / "base"))


def test_the_table_of_packages_is_that_of_the_metadata():
    project = PYPROJECT["project"]
    for part in PARTS:
        lines = (
            project["optional-dependencies"][part.extra] if part.extra else project["dependencies"]
        )
        names = [re.match(r"[\w.-]+", line)[0] for line in lines]
        names += ["plotly"] if part is READING else []  # of a checkout: a wheel has its script
        assert sorted(part.modules.values()) == sorted({*names} - {project["name"]})
    tested = (PROJECT / "requirements.txt").read_text("utf-8")
    (built_with,) = (line for line in PYPROJECT["build-system"]["requires"] if "plotly" in line)
    assert f"\n{built_with}\n" in tested


def test_captures_and_runs_are_read_with_the_base_alone(reader, tmp_path):
    jax = tmp_path / "jax.trace.json.gz"
    jax.write_bytes(gzip.compress(json.dumps({"traceEvents": steps_of_jax()}).encode()))
    ranks = CAPTURES / "ranks" / "hidden_waits"
    nsys, other = CAPTURES / "flash_compile.sqlite.gz", CAPTURES / "slow_compile.sqlite.gz"
    runs = PROJECT / "profiling" / "examples" / "runs"
    commands = [
        ["report", nsys, "--html", "a.html"],
        ["report", CAPTURES / "flash_eager.trace.json.gz", "--json", "a.json"],
        ["report", jax, "--markdown", "a.md"],
        ["report", ranks, "--html", "ranks.html"],
        ["compare", other, nsys, "--html", "b.html"],
        ["dashboard", runs / "flash-1", runs / "slow-1", "-o", "c.html"],
        ["home", tmp_path, "-o", "d.html"],
        ["export", nsys, "--perfetto", "e.json.gz"],
        ["scrub", nsys, "-o", "f.sqlite"],
        *([verb, "--help"] for verb in VERBS),
    ]
    done = reader("-c", VERBS_HERE, json.dumps([[*map(str, words)] for words in commands]))
    assert done.stdout.endswith(f"{[0] * len(commands)}\n"), done.stdout + done.stderr
    for told in ("Bound by GPU compute", "1.23x faster", "usage: python -m profiling ncu"):
        assert told in done.stdout


LIBRARY = """
import sys
from profiling import compare, open_capture, open_run
slow, flash, run = sys.argv[1:]
print(open_capture(flash).verdict, compare(slow, flash).verdict, open_run(run).iterations > 0)
open_capture(flash).html("page.html")
"""


def test_the_library_needs_the_base_alone(reader, tmp_path):
    run = PROJECT / "profiling" / "examples" / "runs" / "flash-1"
    captures = [CAPTURES / f"{name}_compile.sqlite.gz" for name in ("slow", "flash")]
    done = reader("-c", LIBRARY, *captures, run)
    assert done.stdout == "gpu_compute faster True\n", done.stderr
    assert (tmp_path / "page.html").is_file()


def test_a_verb_without_its_extra_says_which(reader, tmp_path):
    train = "needs PyTorch and more: pip install 'profiling-nanogpt[train]'"
    wandb = "needs W&B: pip install 'profiling-nanogpt[wandb]'"
    for verb, *words, line in (
        ("train", "max_iters=3", train),
        ("sample", train),
        ("data.prepare", train),
        ("training.export", train),
        ("attention", train),
        ("ab", "seed=1,2", train),
        ("run", "config/shakespeare_char.yaml", train),
        ("dashboard", "--entity", "me", "--project", "mine", wandb),
    ):
        done = reader("-m", "profiling", verb, *words)
        assert (done.returncode, done.stderr) == (2, f"profiling {verb}: error: {line}\n")
    checked = reader("-m", "profiling", "doctor")
    assert re.search(r"^ok +reads captures: numpy \d", checked.stdout, re.M), checked.stderr
    assert re.search(r"^note +trains: not installed: torch, .*\n.*\[train\]", checked.stdout, re.M)
    assert re.search(r"^note +shows in W&B: not installed.*\n.*\[wandb\]", checked.stdout, re.M)
