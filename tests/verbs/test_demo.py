"""`python -m profiling demo`: pages of shipped examples, without a GPU, a network or torch."""

import gzip
import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
import venv
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from configs import command_line
from configs.compose import compose_jobs
from profiling.verbs import demo, report
from tests.paths import PROJECT

PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))
FOLDERS = [
    name.removesuffix("*")
    for name in PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
]
ANSWERS = {
    "demo-report.html": "Bound by GPU compute",
    "demo-compare.html": "flash_compile is 1.23x faster than slow_compile",
    "demo-ranks.html": "Rank 1 holds the others up by 5.35 ms per step: its GPU computes 4.59 ms",
    "demo-dashboard.html": "kernels=fused is 1.17x faster than",
}


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """The addresses that a browser is given; the working directory is empty, the network away."""

    def refuse(*_, **__):
        raise AssertionError("the demo reached for the network")

    addresses: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(demo.webbrowser, "open", lambda address: addresses.append(address) or True)
    for name in demo.DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    return addresses


@pytest.fixture
def quick(monkeypatch):
    """Pages without their content."""
    pages = tuple(replace(page, make=lambda: "<p>") for page in demo.PAGES)
    monkeypatch.setattr(demo, "PAGES", pages)


@pytest.mark.slow
def test_pages_with_their_answers_and_a_line_each(opened, capsys):
    assert demo.main([]) == 0
    folder = Path("profiling-demo")
    assert {path.name for path in folder.iterdir()} == ANSWERS.keys()
    lines = capsys.readouterr().out.splitlines()
    for line, (name, answer) in zip(lines, ANSWERS.items(), strict=False):
        assert line.startswith(f"{folder / name}  ") and len(line) <= 120
        page = (folder / name).read_text(encoding="utf-8")
        assert answer in re.sub(r"\s+", " ", page) and len(page) < 3_000_000
    assert "8 runs" in page and "NVIDIA H200" in (folder / "demo-report.html").read_text()


def test_the_first_page_is_opened_where_there_is_a_display(opened, quick, capsys, monkeypatch):
    demo.main([])
    assert opened == [] and "open profiling-demo/demo-report.html" in capsys.readouterr().out
    monkeypatch.setenv("DISPLAY", ":0")
    demo.main(["--no-open"])
    assert opened == []
    demo.main([])  # its own pages are made anew
    assert opened == [Path("profiling-demo/demo-report.html").resolve().as_uri()]


def test_the_commands_it_ends_with_work(opened, quick, capsys):
    demo.main([])
    commands = re.findall(r"^  python (.*)$", capsys.readouterr().out, re.M)
    verbs = [shlex.split(c) for c in commands if c.startswith("-m profiling ")]
    assert [words[2] for words in verbs] == ["report", "report", "run", "report", "doctor"]
    assert report.main(verbs[0][3:]) == report.main(verbs[1][3:]) == 0
    assert verbs.pop(2)[3:] == ["--", "python", "train_mine.py"]
    (training,) = [shlex.split(c)[1:] for c in commands if c.startswith("train.py ")]
    _, _, words = command_line.split_arguments(training)
    (config,) = compose_jobs(*command_line.split_words(words, None), False)
    assert config.out_dir == verbs[2][3]


def test_it_writes_onto_no_file_of_a_run_and_into_no_file(opened, quick):
    Path("run").mkdir()
    Path("run/metrics.jsonl").write_text("{}\n")
    Path("pages").mkdir()
    Path("pages/demo-compare.html").symlink_to(Path("run/metrics.jsonl").resolve())
    with pytest.raises(ValueError, match="demo-compare.html: this file belongs to the run in"):
        demo.main(["-o", "pages"])
    assert [path.name for path in Path("pages").iterdir()] == ["demo-compare.html"]
    with pytest.raises(ValueError, match="metrics.jsonl: is a file or has a file as parent"):
        demo.main(["-o", "run/metrics.jsonl"])


def test_examples_say_nothing_of_where_they_were_made():
    examples = PROJECT / "profiling" / "examples"
    for path in [*(examples / "runs").rglob("*.*"), *examples.glob("*/*.json.gz")]:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            assert not re.search(r"/(home|root|work|tmp|usr|opt)\b", file.read()), path


@pytest.mark.slow
def test_it_imports_no_torch(tmp_path):
    command = [sys.executable, "-X", "importtime", "-m", "profiling", "demo", "--no-open"]
    told = subprocess.run(
        [*command, "-o", str(tmp_path)], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    modules = set(re.findall(r"^import time:.*\| +(\S+)$", told.stderr, re.M))
    assert "numpy" in modules and not {"torch", "wandb", "hydra"} & modules


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The program of a wheel of this project, in an environment that finds the tests' packages."""
    pytest.importorskip("setuptools", minversion="77", reason="needs setuptools>=77")
    folder = tmp_path_factory.mktemp("installed")
    names = [
        *FOLDERS,
        "README.md",
        "LICENSE",
        "pyproject.toml",
        "train.py",
        "model.py",
        "sample.py",
    ]
    (folder / "source").mkdir()
    subprocess.run(["cp", "-r", *(PROJECT / name for name in names), folder / "source"], check=True)
    offline = ["-q", "--no-deps", "--no-index", "--disable-pip-version-check"]
    build = ["wheel", *offline, "--no-build-isolation", "-w", folder, folder / "source"]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    site = Path(pytest.__file__).parent.parent
    (packages / "tests.pth").write_text(f"{site}\n")
    install = ["install", *offline, "--prefix", folder / "venv", "--ignore-installed", wheel]
    subprocess.run([folder / "venv/bin/python", "-m", "pip", *install], check=True)
    with zipfile.ZipFile(wheel) as content:
        (folder / "content").write_text("\n".join(content.namelist()))
    return folder


def call(installed: Path, folder: Path, *words: str, **variables: str) -> CompletedProcess[str]:
    """The installed program in `folder`, which is not on PATH."""
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", *demo.DISPLAYS)}
    program = installed / "venv/bin/profiling-nanogpt"
    return subprocess.run(
        [program, *words], cwd=folder, env=environ | variables, capture_output=True, text=True
    )


def files_of(installation: Path) -> set[Path]:
    return {path for path in installation.rglob("*") if path.suffix != ".pyc"}


@pytest.mark.slow
def test_an_installed_program_trains_and_writes_nothing_into_its_installation(installed, tmp_path):
    before = files_of(installed)
    path = f"{installed / 'venv/bin'}{os.pathsep}{os.environ['PATH']}"
    said = partial(call, installed, tmp_path, PATH=path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("To be, or not to be. ROMEO:\n" * 200)
    model = ["n_layer=1", "n_head=2", "n_embd=16", "block_size=16", "batch_size=2"]
    rest = ["device=cpu", "compile=false", "max_iters=30", "eval_iters=1", "wandb.mode=disabled"]
    trained = said(
        "train",
        *model,
        *rest,
        "data_source=text.txt",
        "profile=torch",
        "profile.start=10",
        "profile.steps=2",
    )
    assert trained.returncode == 0, trained.stderr
    (text,) = (tmp_path / "cache/profiling-nanogpt").iterdir()
    assert f"{text}: tokens of the text" in trained.stdout
    commands = re.findall(r"^next: profiling-nanogpt (.*)$", trained.stdout, re.M)
    assert [command.split()[0] for command in commands] == ["sample", "report"]
    for command in commands:
        followed = said(*shlex.split(command))
        assert followed.returncode == 0, followed.stderr
    assert files_of(installed) == before


@pytest.mark.slow
def test_an_installed_program_shows_the_demo_from_any_folder(installed, tmp_path):
    said = partial(call, installed, tmp_path)
    shown = said("demo")
    assert shown.returncode == 0, shown.stderr
    assert len(list(tmp_path.glob("profiling-demo/*.html"))) == len(ANSWERS)
    assert str(installed / "venv") in shown.stdout, "the examples are those of the wheel"
    program = installed / "venv/bin/profiling-nanogpt"  # which is not on PATH
    assert f"  {program} train config/" in shown.stdout
    assert f"usage: {program} VERB" in said("--help").stdout
    mistakes = {
        ("reprot",): "profiling: error: reprot: no such verb; did you mean report?",
        ("train", "n_layers=3"): "train.py: error: n_layers: no such key; did you mean n_layer?",
        ("sample", "tempreature=1"): "sample.py: error: tempreature: no such key",
    }
    for words, error in mistakes.items():
        refused = said(*words)
        assert refused.returncode == 2 and error in refused.stderr, refused.stderr


@pytest.mark.slow
def test_a_wheel_has_all_data_and_no_tests(installed):
    content = set((installed / "content").read_text().splitlines())
    tracked = subprocess.check_output(["git", "ls-files", *FOLDERS], cwd=PROJECT, text=True)
    assert set(tracked.splitlines()) <= content
    left_out = {"tests", "benchmarks", "validation", "docs"}
    assert not {name.split("/")[0] for name in content} & left_out


@pytest.mark.slow
def test_an_installed_hook_is_data_that_programs_are_given(installed, tmp_path):
    """An installed sitecustomize would be everybody's."""
    content = (installed / "content").read_text().splitlines()
    hook = [name for name in content if re.search(r"sitecustomize|_profiling_attach", name)]
    assert hook and all(name.startswith("profiling/attach/hook/") for name in hook)
    (tmp_path / "mine.py").write_text(
        "import torch\nweight = torch.ones(4, requires_grad=True)\n"
        "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
        "for _ in range(30): (weight * 2).sum().backward(); optimizer.step()\n"
    )
    program = ["run", "--kind", "none", "--", installed / "venv/bin/python", "mine.py"]
    done = call(installed, tmp_path, *program)
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert "profiling run: 29 steps; a step ends with SGD.step()" in done.stderr
