"""Losses and hangs that several ranks of the real trainer survive: are the results the same?

    python -m validation ranks_survive ranks=4
    python -m validation ranks_survive ranks=4 words="dropout=0 attention=triton" within=5e-3
    python -m validation ranks_survive cases=killed_rank,resumed config=shakespeare_char_cpu

    killed_rank   a rank is killed, and torchrun starts all ranks again
    lost_host     two torchruns with half of the ranks each; one is killed with its ranks, and the
                  other goes on alone
    hang          a rank comes too late to a collective; `python -m profiling hang` reads the flight
                  recorder's dumps
    resumed       a run begins on half of the ranks, goes on on all, and ends on half of them

Trains once undisturbed, then once for each case, and prints a row for each: what was done, what
happened, and the largest difference to the undisturbed run's losses. OUT has the logs and
results.json. A case that did not come out as it should is named at the end, with exit code 1.

With GPUs the ranks use NCCL and the first `ranks` of the GPUs, without them gloo on the CPU.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import PROJECT, Keys, free_port, key, launcher
from cli.files import write_text
from profiling.shared.json_records import to_json
from profiling.shared.run_files import METRICS
from profiling.shared.units import ABSENT
from validation.diagnoses import choose, end_where_failed
from validation.planted import TRAINER, failure_message
from validation.plants.ends import AT, ENDS, LOST
from validation.plants.ranks import LATE

ITERATIONS, SAVED_EVERY = 30, 5
SHORT = (
    f"eval_interval={SAVED_EVERY} eval_iters=1 log_interval=1 always_save_checkpoint=true "
    "decay_lr=false learning_rate=1e-4 wandb.mode=disabled"
)  # at ten times this rate, losses of the first iterations rise, and rounding with them
VISIBLE = "CUDA_VISIBLE_DEVICES"
LIMIT_S = 240  # for a training, restarts included
# a lost agent is noticed after three intervals; agents that start together need no last call
RENDEZVOUS = "last_call_timeout=15,keep_alive_interval=2"
RESUMED = re.compile(r"resumed \S+ at iteration \d+|ranks \d+ -> \d+")
HEADER = "| case | done | happened | loss differs by | as it should |\n|---|---|---|---:|---|"


@dataclass
class RanksSurviveConfig(Keys):
    cases: str = key("all", "or names, by comma")
    ranks: int = key(2, "ranks on one host, an even number", least=2)
    config: str = key("shakespeare_char", "experiment to train")
    words: str = key("dropout=0 dtype=float32 compile=false", "further words of train.py")
    within: float = key(1e-4, "difference of a loss that is rounding", least=0)
    out: str = key("out-ranks-survive", "folder of runs, logs and results.json; a new one")


@dataclass(frozen=True)
class Survived:
    """One case: what was done to a run, and what came of it."""

    case: str
    done: str
    happened: str
    difference: float | None  # largest of a loss to the undisturbed run; None: rows are missing
    is_right: bool


@dataclass(frozen=True)
class Runs:
    """Starts trainings, each in a folder of its own."""

    config: RanksSurviveConfig
    out: Path

    def start(
        self, launched: Sequence[str], folder: str, keys: str, environ: Mapping[str, str] = {}
    ) -> subprocess.Popen[bytes]:
        """Start a training. Its output is added to FOLDER.log."""
        words = [self.config.config, *SHORT.split(), f"max_iters={ITERATIONS}"]
        words += [f"gradient_accumulation_steps={self.config.ranks}", *self.config.words.split()]
        command = [sys.executable, *launched, *words, *keys.split(), f"out_dir={self.out / folder}"]
        with open(self.out / f"{folder}.log", "ab") as log:
            return subprocess.Popen(
                command, cwd=PROJECT, env=os.environ | environ, stdout=log, stderr=log
            )

    def train(self, ranks: int, folder: str, keys: str = "") -> int:
        return ended(self.start([*launcher(ranks), "train.py"], folder, keys))

    def train_with(self, case: str, flags: Sequence[str]) -> int:
        """Train with a fault, launched with torchrun's further flags."""
        plant, environ = ENDS[case], {"PLANT": case, **ENDS[case].environ}
        launched = [*launcher(self.config.ranks), *flags, *TRAINER]
        return ended(self.start(launched, case, plant.keys, environ))

    def resumes(self, folder: str) -> str:
        """Phrases of the trainer's log on resumes, in their order."""
        log = (self.out / f"{folder}.log").read_text(encoding="utf-8", errors="replace")
        return ", ".join(re.sub(r"\S+/ckpt.pt ", "", line) for line in RESUMED.findall(log))

    def difference(self, folder: str) -> float | None:
        expected, found = losses(self.out / "undisturbed"), losses(self.out / folder)
        if expected.keys() != found.keys():
            return None
        return max(abs(found[iteration] - loss) for iteration, loss in expected.items())

    def survived(self, case: str, done: str, status: int, expected: str) -> Survived:
        """A case whose run should end well, resume as `expected`, and have the same losses."""
        resumes, difference = self.resumes(case), self.difference(case)
        equal = difference is not None and difference <= self.config.within
        happened = f"ended with {status}; {resumes or 'nothing was resumed'}"
        return Survived(
            case, done, happened, difference, not status and equal and expected in resumes
        )


def main(config: RanksSurviveConfig) -> None:
    """Run the cases. Raises ValueError for a mistake, SystemExit where a case went wrong."""
    names = choose("cases", config.cases, 1, {1: CASES})
    if config.ranks % 2:
        raise ValueError(f"ranks={config.ranks}: must be even; two hosts share them in a case")
    out = Path(config.out).resolve()
    if out.exists():
        raise ValueError(f"out={out}: exists already; name another folder")
    out.mkdir(parents=True)
    runs, results = Runs(config, out), list[Survived]()
    if status := runs.train(config.ranks, "undisturbed"):
        raise SystemExit(failure_message(out / "undisturbed", status))
    print(HEADER, flush=True)
    for name in names:
        results.append(CASES[name](runs))
        print(row(results[-1]), flush=True)
        write_text(out / "results.json", to_json(results))
    end_where_failed("ranks_survive", [each.case for each in results if not each.is_right], out)


def killed_rank(runs: Runs) -> Survived:
    status = runs.train_with("killed_rank", ["--max-restarts=1"])
    done = f"rank {LATE} of {runs.config.ranks} killed in iteration {AT}"
    return runs.survived("killed_rank", done, status, f"at iteration {AT - AT % SAVED_EVERY}")


def lost_host(runs: Runs) -> Survived:
    port, half = free_port(), runs.config.ranks // 2
    agent = ["-m", "torch.distributed.run", "--nnodes=1:2", f"--nproc-per-node={half}"]
    agent += ["--max-restarts=3", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}"]
    agent += ["--rdzv-id=two", f"--rdzv-conf={RENDEZVOUS}", *TRAINER]
    environ = {"PLANT": "lost_host", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    environ |= ENDS["lost_host"].environ
    visible = os.environ.get(VISIBLE, ",".join(map(str, range(2 * half)))).split(",")
    hosts = []
    for first, lost in ((0, ""), (half, "1")):
        own = {**environ, VISIBLE: ",".join(visible[first : first + half]), LOST: lost}
        hosts.append(runs.start(agent, "lost_host", ENDS["lost_host"].keys, own))
        if first == 0:
            wait_for_port(port, hosts[0])  # torchrun's store has to be on the host that stays
    status, _ = map(ended, hosts)
    done = f"one of two torchruns of {half} killed with its ranks in iteration {AT}"
    return runs.survived("lost_host", done, status, f"ranks {2 * half} -> {half}")


def hang(runs: Runs) -> Survived:
    status, folder = runs.train_with("hang", []), runs.out / "hang"
    verb = [sys.executable, "-m", "profiling", "hang", str(folder), "--json", "-"]
    read = subprocess.run(verb, cwd=PROJECT, capture_output=True, text=True, timeout=60)
    done = f"rank {LATE} late by far in iteration {AT}"
    try:
        stuck = json.loads(read.stdout)["stuck"][0]
    except (ValueError, LookupError):
        happened = f"ended with {status}; no collective hangs: {read.stderr.strip()[-200:]}"
        return Survived("hang", done, happened, None, False)
    waiting, absent = stuck["waiting"], stuck["absent"]
    happened = f"ended with {status}; {stuck['why']}: {waiting} wait for {absent}"
    right = status != 0 and (stuck["why"], absent) == (ENDS["hang"].verdict, [LATE])
    return Survived("hang", done, happened, None, right)


def resumed(runs: Runs) -> Survived:
    ranks = runs.config.ranks
    counts = ranks // 2, ranks, ranks // 2
    third, status = ITERATIONS // len(counts), 0
    for number, count in enumerate(counts, 1):
        keys = f"go_on=true max_iters={number * third}"
        status = status or runs.train(count, "resumed", keys)
    done = f"on {' -> '.join(map(str, counts))} ranks, {third} iterations each"
    return runs.survived("resumed", done, status, f"ranks {ranks} -> {ranks // 2}")


CASES: dict[str, Callable[[Runs], Survived]] = {
    "killed_rank": killed_rank,
    "lost_host": lost_host,
    "hang": hang,
    "resumed": resumed,
}


def ended(process: subprocess.Popen[bytes]) -> int:
    """Exit code of a process, which is ended after LIMIT_S."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(LIMIT_S)
    process.terminate()  # torchrun ends its ranks, too
    with suppress(subprocess.TimeoutExpired):
        return process.wait(60)
    process.kill()
    return process.wait()


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the process accepts connections, or has ended."""
    while process.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("localhost", port)) == 0:
                return
        time.sleep(0.2)


def losses(folder: Path) -> dict[int, float]:
    """Training loss by iteration; an iteration that was done again has its last one."""
    path = folder / METRICS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row["iter"]: row["train/loss"] for row in rows if "train/loss" in row}


def row(each: Survived) -> str:
    difference = ABSENT if each.difference is None else f"{each.difference:.1e}"
    cells = [each.case, each.done, each.happened, difference, "yes" if each.is_right else "no"]
    return f"| {' | '.join(cells)} |"
