"""Pages of every kind, made by the commands of a checkout from what any machine can make.

Called by validation.pages. What lies in the folder already is not made again.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import repeat_capture
from benchmarks.measuring import PROJECT
from validation.jax_events import steps_of_jax
from validation.made_runs import write_run

EAGER = PROJECT / "tests" / "captures" / "flash_eager.sqlite.gz"
SMALL = "n_layer=1 n_head=2 n_embd=16 block_size=16 batch_size=2 dropout=0 device=cpu"
TEXT = f"data_source={PROJECT / 'docs' / 'benchmarks.md'}"  # it has to be some text
CPU = f"config/shakespeare_char_cpu.yaml {TEXT}"
OWN = f"{CPU} profile=torch max_iters=100 eval_interval=50 wandb.mode=disabled"
RATES, DROPOUTS = (3e-4, 1e-3, 2e-3, 3e-3, 6e-3), (0.0, 0.1, 0.2)
ROWS, KERNELS = 4000, 120_000
WORDS_OF_ERROR = 300  # at most so many letters


@dataclass(frozen=True)
class Made:
    """A command of `python -m profiling` and its pages: name of the file -> what it shows."""

    words: str  # of the command; {page}, {pages} and {inputs} stand for paths
    pages: dict[str, str]


DEMO = {
    "demo-report": "`demo`: report",
    "demo-compare": "`demo`: comparison",
    "demo-ranks": "`demo`: two ranks",
    "demo-dashboard": "`demo`: dashboard, 8 runs",
}
COMMANDS = (
    Made("demo -o {pages} --no-open", DEMO),
    Made(f"report {EAGER} --html {{page}}", {"eager": "eager steps, nsys"}),
    Made("report {inputs}/jax.json --html {page}", {"jax": "JAX, 6 steps"}),
    Made("report {inputs}/own-1e-4 --html {page}", {"cpu": "own run on a CPU"}),
    Made(
        "dashboard {inputs}/own-1e-4 {inputs}/own-1e-3 -o {page}",
        {"own": "dashboard, 2 own runs"},
    ),
    Made("dashboard {inputs}/thirty -o {page}", {"thirty": "dashboard, 30 runs"}),
    Made(
        "report {inputs}/repeated.sqlite --html {page}",
        {"repeated": f"more than {KERNELS:,} kernels"},
    ),
    Made(
        f"ab {CPU} {SMALL} attention=slow,flash,math --repeats 4 --steps 40 --no-capture "
        "--out {pages}/ab --html {page}",
        {"ab": "`ab`, 12 processes"},
    ),
    Made(
        "attention --device cpu --backends slow,math,flash --seq 64,128,256 --tokens 256 "
        "--max-s 0.02 --backward --html {page}",
        {"attention": "`attention`"},
    ),
    Made(
        f"compiled {CPU} {SMALL} out_dir={{pages}}/compiled --html {{page}}",
        {"compiled": "`compiled`"},
    ),
    Made("home {inputs} -o {page}", {"home": "`home`"}),
)


def commands_for(captures: Sequence[Path]) -> list[Made]:
    """Commands of the ordinary pages and of the reports of these captures."""
    given = [
        Made(f"report {path.resolve()} --html {{page}}", {path.name.split(".")[0]: path.name})
        for path in captures
    ]
    return [*COMMANDS, *given]


def make_inputs(folder: Path) -> None:
    """Make captures and runs for the commands, some with their reports; two runs are trained."""
    folder.mkdir(parents=True, exist_ok=True)
    trace = {"displayTimeUnit": "ns", "traceEvents": steps_of_jax()}
    (folder / "jax.json").write_text(json.dumps(trace))
    if not (folder / "thirty").exists():
        make_thirty_runs(folder / "thirty")
    for rate in ("1e-4", "1e-3"):
        run = folder / f"own-{rate}"
        if not run.exists():
            keys = f"learning_rate={rate}", f"out_dir={run}"
            run_in(PROJECT, ["train.py", *OWN.split(), *keys])
    for reported, page in (("jax.json", "jax.html"), ("own-1e-3", "own-1e-3/report.html")):
        if not (folder / page).exists():
            words = ["report", str(folder / reported), "--html", str(folder / page)]
            run_in(PROJECT, ["-m", "profiling", *words])
    repeated = folder / "repeated.sqlite"
    if not repeated.exists():
        config = repeat_capture.RepeatConfig(str(EAGER), str(repeated), KERNELS)
        repeat_capture.main(config)


def make_thirty_runs(folder: Path) -> None:
    configurations = itertools.product(RATES, DROPOUTS, ("slow", "flash"))
    for number, (rate, dropout, attention) in enumerate(configurations):
        run = folder / f"run-{number:02}"
        write_run(run, attention, number, ROWS, start_s=20.0, learning_rate=rate, dropout=dropout)


def make_pages(tree: Path, commands: Sequence[Made], inputs: Path, pages: Path) -> Iterator[str]:
    """Make the pages by the checkout `tree`; yields each name. Verbs that it lacks are left out."""
    pages.mkdir(parents=True, exist_ok=True)
    for made in commands:
        words = made.words.split()
        if not (tree / "profiling" / "verbs" / f"{words[0]}.py").exists():
            continue
        if not all((pages / f"{name}.html").exists() for name in made.pages):
            page = pages / f"{next(iter(made.pages))}.html"
            filled = [word.format(page=page, pages=pages, inputs=inputs) for word in words]
            run_in(tree, ["-m", "profiling", *filled])
        yield from made.pages


def run_in(tree: Path, words: Sequence[str]) -> None:
    """Run Python with these words in a checkout. Raises ValueError with its last words."""
    print(f"{tree.name}: python {' '.join(words)}"[:200], file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, *words], cwd=tree, capture_output=True, text=True)
    if done.returncode:
        last = " ".join(done.stderr.split())[-WORDS_OF_ERROR:]
        raise ValueError(f"{tree}: {words[2]}: ended with {done.returncode}: {last}")
