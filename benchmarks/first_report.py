"""Bytes to download and seconds of this machine, from `git clone` to the first report.

    python -m benchmarks first_report [python=PYTHON] [captures=FILE,...]

Each way to install this project gets a clone and an empty environment. Packages are downloaded
first, and installed from there without a network, so that a near mirror or a slow link changes no
figure: the bytes are counted, and what they take on a link is computed. Then come the README's
commands up to the first report. What the base says of a capture of each format follows, with those
of captures=. The last commit is measured. Prints Markdown tables.
"""

import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measuring import PROJECT, Keys, key
from cli.program import NAME

TRAIN = "config/shakespeare_char_cpu.yaml profile=torch max_iters=100"
RUN = "out-shakespeare-char-cpu"
OWN = "validation/any_programs/hugging_face.py trainer_gpt2"  # 120 steps of a Trainer
WAYS = {  # arguments of pip install, in the clone -> commands up to the first report
    ".": ["profiling-nanogpt demo --no-open"],
    ". torch transformers accelerate": [f"profiling-nanogpt run -- python {OWN}"],
    "'.[train]'": [f"profiling-nanogpt train {TRAIN}", f"profiling-nanogpt report {RUN}"],
    "-r requirements.txt": [f"python train.py {TRAIN}", f"python -m profiling report {RUN}"],
}
CAPTURES = {
    "Nsight Systems, `.sqlite.gz`": "profiling/examples/flash_compile.sqlite.gz",
    "PyTorch, `.trace.json.gz`": "tests/captures/flash_eager.trace.json.gz",
    "two ranks, a folder": "tests/captures/ranks/hidden_waits",
    "a run without a capture, a folder": "profiling/examples/runs/flash-1",
}
MBIT_PER_S = (1, 10, 100)


@dataclass
class FirstReportConfig(Keys):
    python: str = key(sys.executable, "interpreter of the environments", file=True)
    captures: str = key("", "more captures for the table of formats, with commas between")


@dataclass
class Costs:
    """Seconds by part, and bytes, of one way to the first report."""

    seconds: dict[str, float] = field(default_factory=dict)
    cpu_s: float = 0
    clone: int = 0
    packages: int = 0
    installed: int = 0


def main(config: FirstReportConfig) -> None:
    load = os.getloadavg()[0]
    costs: dict[str, Costs] = {}
    with tempfile.TemporaryDirectory(prefix="first-report-") as name:
        for number, way in enumerate(WAYS):
            folder = Path(name, str(number))
            folder.mkdir()
            costs[way] = first_report(folder, way, config.python)
        base = Path(name, "0")
        more = [Path(path) for path in config.captures.split(",") if path]
        captures = CAPTURES | {path.name: str(path.resolve()) for path in more}
        answers = [answer(base, what, path) for what, path in captures.items()]
    version = subprocess.check_output([config.python, "--version"], text=True).strip()
    print(f"{platform.machine()}, {os.cpu_count()} cores, {version}, load before {load:.1f}\n")
    print("\n".join(table(costs)))
    print("\n| capture | MB | `report`, s | exit code | what it says at last |")
    print("|---|---:|---:|---:|---|")
    print("\n".join(answers))


def first_report(folder: Path, way: str, python: str) -> Costs:
    """Costs of `pip install WAY` in a clone in `folder`, and of the commands that follow."""
    costs, words = Costs(), shlex.split(way)
    clone, packages, environment = (folder / name for name in ("clone", "packages", "venv"))

    def timed(part: str, *command: str | Path) -> None:
        start, used = time.perf_counter(), children_cpu_s()
        run_successfully(folder, *command)
        costs.seconds[part] = time.perf_counter() - start
        costs.cpu_s += children_cpu_s() - used

    clone.mkdir()
    timed("`git clone`", "git", "clone", "--quiet", f"file://{PROJECT}", ".")
    timed("`python -m venv`", python, "-m", "venv", environment)
    project = tomllib.loads((clone / "pyproject.toml").read_text("utf-8"))
    # an old pip wants wheel for a dependency that has no wheel
    to_build = [*project["build-system"]["requires"], "wheel"]
    pip = ("python", "-m", "pip")
    download = (*pip, "download", "--quiet", "--dest", packages)
    for wanted in (words, to_build):
        run_successfully(folder, *download, *wanted)
    own = NAME.replace("-", "_")  # some versions of pip put it among the packages
    costs.packages = sum(size(path) for path in packages.iterdir() if own not in path.name)
    costs.clone = size(clone / ".git")
    before = size(environment)
    local = ("--quiet", "--no-index", "--find-links", packages)
    timed("`pip install`", *pip, "install", *local, *words)
    costs.installed = size(environment) - before
    for command in WAYS[way]:
        typed = shlex.split(command)
        timed(f"`{' '.join(typed[: 4 if '-m' in typed else 2])}`", *typed)
    return costs


def run(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """The command in the clone in `folder`, by its environment, and without caches of others."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environ = kept | {
        "PATH": f"{folder / 'venv/bin'}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PIP_NO_CACHE_DIR": "1",
    }
    return subprocess.run(
        command, cwd=folder / "clone", env=environ, capture_output=True, text=True
    )


def run_successfully(folder: Path, *command: str | Path) -> None:
    """Run a command as `run` does. Raises ValueError with its last words if it fails."""
    done = run(folder, *command)
    if done.returncode:
        last = " ".join((done.stdout + done.stderr).split())[-300:]
        raise ValueError(f"{shlex.join(map(str, command))} ended with {done.returncode}: {last}")


def children_cpu_s() -> float:
    """Processor seconds of all processes that this one has waited for, and of theirs."""
    times = os.times()
    return times.children_user + times.children_system


def size(path: Path) -> int:
    """Bytes of the files in a folder, or of a file."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir())


def table(costs: dict[str, Costs]) -> list[str]:
    """Markdown table of the ways, a column each; a part of another way is a dash."""
    rows = [
        "| | " + " | ".join(f"`pip install {way}`" for way in costs) + " |",
        "|---|" + "---:|" * len(costs),
    ]

    def row(name: str, cells: list[str]) -> None:
        rows.append(f"| {name} | {' | '.join(cells)} |")

    for part in dict.fromkeys(part for cost in costs.values() for part in cost.seconds):
        seconds = [cost.seconds.get(part) for cost in costs.values()]
        row(f"{part}, s", ["-" if each is None else f"{each:.1f}" for each in seconds])
    row(
        "**all without the network, s**",
        [f"**{sum(c.seconds.values()):.1f}**" for c in costs.values()],
    )
    row("processor time of these, s", [f"{cost.cpu_s:.1f}" for cost in costs.values()])
    row("the clone, MB", [f"{cost.clone / 1e6:.1f}" for cost in costs.values()])
    row("packages, MB", [f"{cost.packages / 1e6:.1f}" for cost in costs.values()])
    for rate in MBIT_PER_S:
        link = [(cost.clone + cost.packages) * 8 / 1e6 / rate for cost in costs.values()]
        row(f"both on a link of {rate} Mbit/s, s", [f"{each:,.0f}" for each in link])
    row("installed, MB", [f"{cost.installed / 1e6:.0f}" for cost in costs.values()])
    return rows


def answer(folder: Path, what: str, path: str) -> str:
    """Row of a capture: its size, seconds and exit code of `report`, and its verdict or error."""
    start = time.perf_counter()
    done = run(folder, "profiling-nanogpt", "report", path)
    seconds = time.perf_counter() - start
    last = " ".join((done.stderr or done.stdout).strip().split("\n\n")[-1].split())
    megabytes = size(folder / "clone" / path) / 1e6
    return f"| {what} | {megabytes:.1f} | {seconds:.1f} | {done.returncode} | {last} |"
