"""Does a text of 10 GB cost a run memory, or time? Beside a small one, and nanoGPT's way to read.

    python -m benchmarks data_reading [KEY=VALUE ...]

Makes folders of random tokens, as nanoGPT lays them out, and then, each in a process of its own and
in turns: batches read with a pause between them, which stands for a step, by ours and as nanoGPT
does, from a cold file and from a warm one; and whole runs of train.py on the large text and on the
small one. Prints medians with their ratios, and the most memory that each process had.
"""

import json
import os
import pickle
import string
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.measuring import PROJECT, Keys, key, measure_in_turns

TOKEN_BYTES = 2
CHARACTERS = string.ascii_letters + string.digits + " \n"  # few: logits take no memory to speak of
WRITTEN_TOKENS = 1 << 24  # in one write
SETTLING_ROWS = 5  # left out at the start of a run
SMALL_GB = 0.01
POLL_S = 0.05


@dataclass
class DataReadingConfig(Keys):
    gigabytes: float = key(10, "of the large text", least=0.02)
    folder: str = key("", "where it is made, and found by the next measurement; empty: removed")
    batches: int = key(300, "that are read", least=20)
    pause_ms: float = key(5, "between two batches: the step", least=0)
    batch_size: int = key(12, "sequences", least=1)
    block_size: int = key(1024, "tokens of each", least=1)
    steps: int = key(40, "iterations of a run", least=SETTLING_ROWS + 10)
    repetitions: int = key(3, "of everything, in turns", least=1)
    words: str = key("device=cpu compile=false", "further words of train.py, by blanks")


@dataclass(frozen=True)
class Reading:
    wait_ms: float  # median wait for a batch
    peak_bytes: int  # process's own memory, without pages of files


@dataclass(frozen=True)
class RunUsage:
    step_ms: float
    data_ms: float
    peak_bytes: int
    peak_with_files_bytes: int


def main(config: DataReadingConfig) -> None:
    with TemporaryDirectory() as temporary:
        root = Path(config.folder or temporary).resolve()
        large = make_folder(root / "large", config.gigabytes)
        small = make_folder(root / "small", SMALL_GB)
        readings: dict[str, Callable[[], Reading]] = {
            f"{way.__name__.replace('_', ' ')}, {state}": partial(
                measure_in_fresh_process, way, large, state == "cold", config
            )
            for state in ("cold", "warm")
            for way in (read_by_us, read_as_nanogpt)
        }
        print_readings(measure_in_turns(readings, config.repetitions))
        runs = {
            name: partial(train_run, folder, config)
            for name, folder in (("large", large), ("small", small))
        }
        print_runs(measure_in_turns(runs, config.repetitions))


def make_folder(folder: Path, gigabytes: float) -> Path:
    """Write `gigabytes` of random tokens to train on into the folder, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for split, count in (("train", int(gigabytes * 1e9) // TOKEN_BYTES), ("val", 100_000)):
        path = folder / f"{split}.bin"
        if path.exists() and path.stat().st_size == count * TOKEN_BYTES:
            continue
        with open(path, "wb") as file:
            for start in range(0, count, WRITTEN_TOKENS):
                size = min(WRITTEN_TOKENS, count - start)
                file.write(random.integers(0, len(CHARACTERS), size, np.uint16).tobytes())
            os.fsync(file.fileno())  # what is not on the disk stays in the cache
    itos = dict(enumerate(CHARACTERS))
    stoi = {character: number for number, character in itos.items()}
    meta = {"vocab_size": len(itos), "itos": itos, "stoi": stoi}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
    return folder


# Batches alone


def measure_in_fresh_process(
    way: Callable[[Path, DataReadingConfig], list[float]],
    folder: Path,
    cold: bool,
    config: DataReadingConfig,
) -> Reading:
    """Measure in a fresh process, so that the peak memory is that of this measurement alone."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (way, folder, cold, config))


def measure(
    way: Callable[[Path, DataReadingConfig], list[float]],
    folder: Path,
    cold: bool,
    config: DataReadingConfig,
) -> Reading:
    path = folder / "train.bin"
    if cold:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    else:
        way(folder, config)  # draws the same again
    waits_s = way(folder, config)
    return Reading(median(waits_s) * 1e3, memory_of(os.getpid())[0])


def read_by_us(folder: Path, config: DataReadingConfig) -> list[float]:
    """Seconds waited for each batch of data.batches."""
    import torch

    from configs.schema import Config
    from data.batches import Batches
    from data.dataset import load_dataset

    keys = Config(batch_size=config.batch_size, block_size=config.block_size, token_storage="mmap")
    batches = Batches(load_dataset(folder).tokens("train"), "train", keys, torch.device("cpu"))
    return time_batches(lambda number: batches.draw(number, 0), config)


def read_as_nanogpt(folder: Path, config: DataReadingConfig) -> list[float]:
    """Seconds waited for each batch when it is read as nanoGPT does.

    For each batch it makes a new memory map, and stacks a slice for each sequence of inputs and of
    targets.
    """
    import torch

    def draw(_: int) -> object:
        data = np.memmap(folder / "train.bin", np.uint16, mode="r")
        starts = torch.randint(len(data) - config.block_size, (config.batch_size,)).tolist()
        size = config.block_size
        slices = [[data[i + by : i + by + size].astype(np.int64) for i in starts] for by in (0, 1)]
        return [torch.stack([torch.from_numpy(each) for each in part]) for part in slices]

    torch.manual_seed(0)
    return time_batches(draw, config)


def time_batches(draw: Callable[[int], object], config: DataReadingConfig) -> list[float]:
    """Seconds that each batch took, with a pause after each."""
    waits_s = []
    for number in range(config.batches):
        begin_s = time.perf_counter()
        draw(number)
        waits_s.append(time.perf_counter() - begin_s)
        time.sleep(config.pause_ms / 1e3)
    return waits_s


# Whole runs


def train_run(folder: Path, config: DataReadingConfig) -> RunUsage:
    """Train on the folder in a process of its own. Raises ValueError where it fails."""
    with TemporaryDirectory() as temporary:
        out = Path(temporary, "out")
        words = [f"dataset={folder}", f"out_dir={out}", "wandb.mode=disabled", "log_interval=1"]
        words += [f"max_iters={config.steps}", "eval_interval=1000000", "eval_iters=1"]
        words += [f"batch_size={config.batch_size}", f"block_size={config.block_size}"]
        words += ["n_layer=2", "n_head=2", "n_embd=64", "dropout=0", "token_storage=mmap"]
        command = [sys.executable, "train.py", *words, *config.words.split()]
        with open(Path(temporary, "log"), "w+b") as log:
            peaks = watch_memory(command, log.fileno())
            rows = Path(out, "metrics.jsonl")
            if not rows.exists():
                log.seek(0)
                raise ValueError(f"words={config.words}: {log.read().decode().splitlines()[-1]}")
            logged = [json.loads(line) for line in rows.read_text().splitlines()]
    steps = [row for row in logged if row.get("time/step_ms")][SETTLING_ROWS:]
    step_ms, data_ms = (
        median(row[f"time/{name}"] for row in steps) for name in ("step_ms", "data_ms")
    )
    return RunUsage(step_ms, data_ms, *peaks)


def watch_memory(command: list[str], output: int) -> tuple[int, int]:
    """Largest memory of the process while it ran, as the pair that `memory_of` gives."""
    peaks = (0, 0)
    with subprocess.Popen(command, cwd=PROJECT, stdout=output, stderr=output) as process:
        while process.poll() is None:
            now = memory_of(process.pid)
            peaks = max(peaks[0], now[0]), max(peaks[1], now[1])
            time.sleep(POLL_S)
    return peaks


def memory_of(pid: int) -> tuple[int, int]:
    """Resident bytes of a process: (anonymous, anonymous and mapped files). (0, 0) off Linux."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    fields = dict(line.split(":", 1) for line in lines)
    own, files = (
        int(fields.get(name, "0 kB").split()[0]) * 1024 for name in ("RssAnon", "RssFile")
    )
    return own, own + files


# What came out


def print_readings(results: dict[str, list[Reading]]) -> None:
    print("| batches | wait ms, median (least, most) | own memory MB |\n|---|---:|---:|")
    for name, readings in results.items():
        peak = max(reading.peak_bytes for reading in readings) / 1e6
        waits = format_times([reading.wait_ms for reading in readings])
        print(f"| {name} | {waits} | {peak:.0f} |")
    for state in ("cold", "warm"):
        ours, theirs = (
            median(reading.wait_ms for reading in results[f"read {way}, {state}"])
            for way in ("by us", "as nanogpt")
        )
        print(f"{state}: ours waits {ours / theirs:.3f} of nanoGPT's")
    print()


def print_runs(results: dict[str, list[RunUsage]]) -> None:
    print("| text | step ms | wait for data ms | own memory MB | with pages of files MB |")
    print("|---|---:|---:|---:|---:|")
    for name, runs in results.items():
        own = max(run.peak_bytes for run in runs) / 1e6
        both = max(run.peak_with_files_bytes for run in runs) / 1e6
        steps = format_times([run.step_ms for run in runs])
        waits = format_times([run.data_ms for run in runs])
        print(f"| {name} | {steps} | {waits} | {own:.0f} | {both:.0f} |")
    large, small = (median(run.step_ms for run in results[name]) for name in ("large", "small"))
    wait_ms = median(run.data_ms for run in results["large"])
    print(f"step of the large text over that of the small one: {large / small:.3f}")
    print(f"of a step on the large text the host waits {wait_ms / large:.2%} for data")


def format_times(times_ms: list[float]) -> str:
    return f"{median(times_ms):.3f} ({min(times_ms):.3f}, {max(times_ms):.3f})"
