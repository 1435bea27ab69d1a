"""Programs run with `profiling run --` before them and without: same output, steps counted, judged?

    python -m validation any_program
    python -m validation any_program kinds=torch,nsys,none repeats=10 at_once=6 nanogpt=../nanoGPT
    python -m validation any_program programs=gan,fsdp repeats=2 kinds=torch

Runs each program as often bare as hooked, each in an empty folder of its own; the hooked ones
take turns through the kinds. Compares exit codes and what is printed, in which times
and a peak of memory are left out. Where bare runs differ among themselves, says so, and compares
with all of them. Prints a row for each program; OUT/runs.jsonl has each run, and a command that was
stopped goes on where it is typed again.

Needs what the programs need: pip install transformers accelerate pytorch-lightning deepspeed, and
for two that only nsys can record jax and cupy. A program whose packages are missing is named.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock

import torch

from benchmarks.measuring import PROJECT, Keys, free_port, key, launcher
from profiling.shared.json_records import append_lines, read_lines
from profiling.shared.program_facts import read_program_facts
from validation.frameworks import is_installed
from validation.started_programs import chosen_names, python_path

FOLDER = PROJECT / "validation" / "any_programs"
STEPS = 120  # of each program
LONGEST_S = 240.0
WINDOW = 10  # steps
# what nanoGPT, transformers and nanochat print of time, and nanochat of the memory's peak, which is
# higher where torch.compile finds nothing in its cache
OF_MACHINE = re.compile(
    r"time [\d.]+ms, mfu -?[\d.]+%|'\w+(_runtime|_per_second)': '[\d.]+'"
    r"|dt: [\d.]+ms \| tok/sec: [\d,]+ \| bf16_mfu: [\d.]+|(time|eta): [\d.]+m"
    r"|Peak memory usage: [\d.]+MiB"
)
HEADER = (
    "| program | kinds | same output and exit code | steps made | steps seen | rule | verdict |\n"
    "|---|---|---|---:|---:|---|---|"
)


@dataclass(frozen=True)
class Program:
    """A command, and what is true of it."""

    name: str
    words: list[str]  # behind `python`
    packages: str = ""
    steps: int = STEPS
    more_steps: int = 0  # that may be counted too, such as a warm-up's
    code: int = 0
    whole: bool = False  # recorded from start to end by nsys alone; no steps are known
    place: str = ""  # folder to run in, of which a copy is made
    environ: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """A line of runs.jsonl."""

    program: str
    kind: str  # bare, or the hooked run's
    code: int
    output: str  # stdout without OF_MACHINE
    wall_s: float
    steps: int | None = None  # seen by the hook
    rule: str | None = None
    verdict: str | None = None
    said: str = ""  # stderr of a hooked run, its last 4,000 characters


def script(file: str, names: str, packages: str = "", ranks: int = 1) -> list[Program]:
    path = str(FOLDER / f"{file}.py")
    return [Program(name, [*launcher(ranks), path, name], packages) for name in names.split()]


def all_programs(config: "AnyProgramConfig") -> list[Program]:
    on_one_rank = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    loops = "plain gan lbfgs grad_scaler loader_workers own_profiler compiled_model"
    programs = [
        *script("loops", loops),
        *script("loops", "reduce_overhead compiled_step inference"),
        Program("own_graphs", [str(FOLDER / "loops.py"), "own_graphs"], more_steps=4),
        Program("ends_with_an_error", [str(FOLDER / "loops.py"), "ends_with_an_error"], code=1),
        *script("ranks", "ddp_gloo", ranks=2),
        *script("ranks", "spawned"),
        *script("ranks", "deepspeed", "deepspeed", ranks=2),
        Program("fsdp", [*on_one_rank, str(FOLDER / "ranks.py"), "fsdp"]),
        *script("hugging_face", "trainer_gpt2 trainer_bert trainer_llama generate", "transformers"),
        *script("hugging_face", "accelerate", "accelerate"),
        two_of_accelerate(),
        *script("lightning_fit", "automatic manual", "pytorch-lightning"),
        Program("with_jax", [str(FOLDER / "arrays.py"), "with_jax"], "jax", whole=True),
        Program("with_cupy", [str(FOLDER / "arrays.py"), "with_cupy"], "cupy-cuda13x", whole=True),
    ]
    if torch.cuda.device_count() > 1:
        programs += script("ranks", "ddp_nccl", ranks=2)
    if config.nanogpt:
        keys = f"--max_iters={STEPS} --eval_interval=1000 --log_interval=20 --eval_iters=2"
        words = ["train.py", "config/train_shakespeare_char.py", *keys.split(), "--compile=False"]
        programs.append(Program("nanogpt", words, steps=STEPS + 1, place=config.nanogpt))
    if config.nanochat:
        keys = (
            f"--num-iterations={STEPS} --depth=2 --aspect-ratio=32 --head-dim=32 --max-seq-len=128 "
            "--device-batch-size=4 --total-batch-size=1024 --window-pattern=L --eval-every=-1 "
            "--core-metric-every=-1 --sample-every=-1"
        )
        words = ["-m", "scripts.base_train", *keys.split()]
        programs.append(Program("nanochat", words, place=config.nanochat))
    if config.timm:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        keys = (
            f"--device={device} --model=test_resnet --num-classes=2 --img-size=32 --batch-size=4 "
            "--epochs=2 --warmup-epochs=0 --workers=1 --seed=1 --log-interval=10 --output=out"
        )
        words = ["train.py", "pictures", *keys.split()]
        programs.append(Program("timm", words, place=config.timm))
    return programs


def two_of_accelerate() -> Program:
    """Two processes of accelerate, which share the batches: by its own command, or, without two
    GPUs, for which that starts one process, by torchrun."""
    words = [*launcher(2)]
    if torch.cuda.device_count() > 1:
        keys = "--multi_gpu --num_processes=2 --num_machines=1 --mixed_precision=no"
        port = f"--main_process_port={free_port()}"
        words = ["-m", "accelerate.commands.launch", *keys.split(), "--dynamo_backend=no", port]
    path = str(FOLDER / "hugging_face.py")
    on_cpu = {} if torch.cuda.is_available() else {"ACCELERATE_USE_CPU": "true"}
    words += [path, "accelerate"]
    return Program("accelerate_two", words, "accelerate", steps=STEPS // 2, environ=on_cpu)


@dataclass
class AnyProgramConfig(Keys):
    programs: str = key("all", "or names of any, by comma")
    kinds: str = key("torch,none", "of hooked runs, in turns: torch, nsys, memory, none")
    repeats: int = key(10, "bare and hooked runs of each program", least=1)
    at_once: int = key(2, "programs that run side by side", least=1)
    nanogpt: str = key("", "a checkout of nanoGPT whose shakespeare_char is prepared")
    nanochat: str = key("", "a checkout of nanochat; NANOCHAT_BASE_DIR has its tokenizer and texts")
    timm: str = key("", "a checkout of timm, with 240 pictures of two classes in pictures/train")
    out: str = key("out-any-program", "folder of runs.jsonl and of the runs")


def main(config: AnyProgramConfig) -> None:
    programs = chosen(all_programs(config), config.programs)
    out = Path(config.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    record = Record(out / "runs.jsonl")
    kinds = config.kinds.split(",")
    with ThreadPoolExecutor(config.at_once) as pool:
        tries = partial(try_program, kinds=kinds, repeats=config.repeats, out=out, record=record)
        try:
            list(pool.map(tries, programs))
        except KeyboardInterrupt:  # which has reached the programs, too
            record.stopped.set()
            raise
    print(HEADER)
    wrong = [each.name for each in programs if not print_row(each, record.of(each.name))]
    if wrong:
        sys.exit(f"not as without the hook, or its steps not as they were: {', '.join(wrong)}")


def chosen(programs: list[Program], names: str) -> list[Program]:
    """The programs asked for. Raises ValueError for an unknown name and for missing packages."""
    known = {each.name: each for each in programs}
    programs = [known[name] for name in chosen_names(names, known)]
    missing = {
        each.packages for each in programs if each.packages and not is_installed(each.packages)
    }
    if missing:
        raise ValueError(f"programs={names}: first pip install {' '.join(sorted(missing))}")
    return programs


class Record:
    """The runs so far, kept in a file line by line; none that Ctrl-C ended."""

    def __init__(self, file: Path) -> None:
        self.file, self.lock, self.stopped = file, Lock(), Event()
        self.runs = read_lines(file, Run) if file.exists() else []

    def add(self, run: Run) -> None:
        if self.stopped.is_set():
            return
        with self.lock:
            append_lines(self.file, [run])
            self.runs.append(run)

    def of(self, name: str) -> list[Run]:
        return [run for run in self.runs if run.program == name]


def try_program(
    program: Program, kinds: Sequence[str], repeats: int, out: Path, record: Record
) -> None:
    """Run the program bare and hooked in turns, as far as earlier commands did not."""
    kinds = ["nsys"] if program.whole else kinds
    bare, hooked = (
        [run for run in record.of(program.name) if (run.kind == "bare") == is_bare]
        for is_bare in (True, False)
    )
    for number in range(repeats):
        if record.stopped.is_set():
            return
        if number >= len(bare):
            record.add(run_once(program, "bare", out))
        if number >= len(hooked):
            record.add(run_once(program, kinds[number % len(kinds)], out))
    print(f"{program.name}: done", file=sys.stderr, flush=True)


def run_once(program: Program, kind: str, out: Path) -> Run:
    place, folder = out / program.name / kind, out / program.name / f"{kind}-run"
    shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    if program.place:
        shutil.copytree(program.place, place)
    place.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, *program.words]
    environ = os.environ | program.environ
    if kind != "bare":
        how = ["--kind", kind, "--out", str(folder), *(["--whole"] if program.whole else [])]
        if kind in ("nsys", "torch") and not program.whole:
            how += ["--steps", str(WINDOW)]
        command = [sys.executable, "-m", "profiling", "run", *how, "--", *command]
        environ = environ | {"PYTHONPATH": python_path(environ)}
    began_s = time.perf_counter()
    try:
        done = subprocess.run(
            command, cwd=place, env=environ, capture_output=True, text=True, timeout=LONGEST_S
        )
        code, printed, errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, printed, errors = -1, "", f"took longer than {LONGEST_S:g} s"
    run = Run(program.name, kind, code, compared(printed), time.perf_counter() - began_s)
    return run if kind == "bare" else with_findings(run, folder, errors)


def compared(printed: str) -> str:
    """Leave OF_MACHINE out of what a program printed."""
    return OF_MACHINE.sub("", printed)


def with_findings(run: Run, folder: Path, errors: str) -> Run:
    """The run with what its folder and its report say."""
    facts = read_program_facts(folder, 0)
    verdict = None
    if (folder / "profile").is_dir():
        file = folder / "report.json"
        words = [sys.executable, "-m", "profiling", "report", str(folder), "--json", str(file)]
        subprocess.run(words, cwd=PROJECT, capture_output=True, timeout=LONGEST_S)
        if file.exists():
            found = json.loads(file.read_text()).get("bottleneck") or {}
            verdict = found.get("verdict")
    steps, rule = (facts.steps, facts.rule) if facts else (None, None)
    return replace(run, steps=steps, rule=rule, verdict=verdict, said=errors[-4000:])


def print_row(program: Program, runs: list[Run]) -> bool:
    """Print the program's row; return whether all is as without the hook."""
    bare = [run for run in runs if run.kind == "bare"]
    hooked = [run for run in runs if run.kind != "bare"]
    outputs = {(run.code, run.output) for run in bare}
    same = sum((run.code, run.output) in outputs for run in hooked)
    ends = all(run.code == program.code for run in runs)
    counted = program.whole or all(
        run.steps is not None
        and program.steps - 1 <= run.steps <= program.steps + program.more_steps
        for run in hooked
    )
    said = f"{same} of {len(hooked)}"
    said += "" if len(outputs) == 1 else f" (bare ones print {len(outputs)} different texts)"
    said += "" if ends else f" (exit codes {sorted({run.code for run in runs})})"
    seen = "–" if program.whole else ", ".join(sorted({str(run.steps) for run in hooked}))
    kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(run.kind for run in hooked).items())
    rule = "; ".join(sorted({run.rule for run in hooked if run.rule}))
    verdicts = Counter(run.verdict for run in hooked if run.verdict)
    judged = ", ".join(f"{name} {n}" for name, n in verdicts.most_common())
    columns = (program.name, kinds, said, str(program.steps), seen, rule, judged or "–")
    print(f"| {' | '.join(columns)} |", flush=True)
    return ends and counted and (same == len(hooked) or len(outputs) > 1)
