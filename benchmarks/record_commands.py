"""Commands of the processes of `records`, ours and nanoGPT's, and what both of them read."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import scaling
from benchmarks.measuring import PROJECT
from benchmarks.record_tables import OURS, Trial

if TYPE_CHECKING:
    from benchmarks.records import RecordsConfig

FEW = 20  # iterations that fill the caches
VOCABULARY, RANDOM_TOKENS = 50_257, {"train": 4_000_000, "val": 400_000}
SMALL = {"device": "cpu", "compile": False, "n_layer": 1, "n_head": 1, "n_embd": 16}
SMALL |= {"block_size": 8}
SMALL_OURS = [f"{name}={value}" for name, value in SMALL.items()]
SMALL_OURS += ["kernels=compiled", "attention=flash"]
SMALL_THEIRS = [f"--{name}={value}" for name, value in SMALL.items()]


def char_words(config: "RecordsConfig") -> list[str]:
    source = f"data_source={Path(config.text).resolve()}" if config.text else ""
    words = [*config.char.split(), source or "offline_fallback=false", "wandb.mode=disabled"]
    return words + (SMALL_OURS if config.small else [])


def command(trial: Trial, config: "RecordsConfig", out: Path) -> tuple[Path, list[str]]:
    """(folder to start the process in, arguments of python)."""
    run_dir = out / "runs" / trial.name
    if trial.part == "124m":
        return steps_command(trial, config, out, run_dir)
    few = trial.part == "prepare"
    if trial.side == OURS:
        words = [f"seed={trial.seed}"] if trial.seed is not None else []
        words += [f"max_iters={FEW}"] if few else []
        return PROJECT, ["train.py", *char_words(config), *words, f"out_dir={run_dir}"]
    words = [*SMALL_THEIRS, "--max_iters=250", "--eval_iters=2"] if config.small else []
    words += [f"--max_iters={FEW}", "--eval_iters=1"] if few else []
    fixed = ["train.py", "config/train_shakespeare_char.py"]
    return Path(config.against).resolve(), [*fixed, *words, f"--out_dir={run_dir}"]


def steps_command(
    trial: Trial, config: "RecordsConfig", out: Path, run_dir: Path
) -> tuple[Path, list[str]]:
    """The command of one rank that `scaling` makes, for a process of 124m."""
    tokens = Path(config.tokens).resolve() if config.tokens else random_tokens(out / "tokens")
    ours = " ".join(SMALL_OURS) if config.small else config.fastest
    theirs = " ".join(SMALL_THEIRS) if config.small else ""
    shared = scaling.ScalingConfig(
        words=f"dataset={tokens} batch_size={trial.batch} seed={trial.seed} {ours}",
        against=config.against,
        theirs=f"config/train_gpt2.py --wandb_log=False --dataset={tokens} "
        f"--batch_size={trial.batch} {theirs}",
        iterations=config.iterations,
    )
    way = "" if trial.side == OURS else scaling.THEIRS
    return scaling.command(scaling.Process(way, 1), shared, run_dir)


def random_tokens(folder: Path) -> Path:
    """The folder, with random tokens of GPT-2's vocabulary in it."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for split, count in RANDOM_TOKENS.items():
        tokens = random.integers(0, VOCABULARY, count, dtype=np.uint16)
        if not (folder / f"{split}.bin").exists():
            tokens.tofile(folder / f"{split}.bin")
    return folder


def with_names(words: list[str], config: "RecordsConfig", out: Path) -> list[str]:
    """The words with names for the folders and files of this machine."""
    given = {"TEXT": config.text, "TOKENS": config.tokens, "OUT": str(out)}
    text = "\0".join(words)
    for name, place in given.items():
        text = text.replace(str(Path(place).resolve()), name) if place else text
    return text.split("\0")
