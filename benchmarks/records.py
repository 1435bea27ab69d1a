"""A record that others can check: time to a validation loss, and speed and energy of GPT-2 124M.

    python -m benchmarks records against=../nanoGPT text=input.txt
    python -m benchmarks records against=../nanoGPT limit_s=540 out=out-records
    python -m benchmarks records small=true seeds=1,2 batches=2 against=../nanoGPT text=input.txt

`char` times processes from their start to the line of the first validation loss below `loss`, on
tiny Shakespeare. A process of each side before them fills the caches of compiled kernels. `124m`
times steps from line to line behind a warm-up, and reads the GPU's energy counter meanwhile, for
both sides alike. Each seed is a round of fresh processes, in which ours and nanoGPT's train.py
take turns; nanoGPT's seed is always its own. Its text is prepared if it is not; a text other than
tiny Shakespeare is refused. Both sides of 124m read `tokens`.

Writes OUT/records.json, OUT/records.md, and the output of each process into OUT/logs. What was
measured is there at once: a command that was stopped goes on where it is typed again, with more
seeds too, but not on another machine, commit or version. `limit_s` ends it between processes.
`small=true` tries all of it on the CPU, with tiny models. docs/records.md says how to check it.
"""

import hashlib
import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import torch

from benchmarks.energy import Reading, energy_readings, mean_power_w
from benchmarks.measuring import Keys, key, numbers, say
from benchmarks.record_commands import char_words, command, with_names
from benchmarks.record_tables import (
    OURS,
    THEIRS,
    Part,
    Record,
    Run,
    Trial,
    continue_record,
    save,
    tables,
)
from benchmarks.timed_training import TimedTraining, check_keys, time_training
from cli.process import environment_for_others
from data.prepare import prepare
from data.source_text import TINY_SHAKESPEARE_SHA256
from profiling.launch.bench.checkout import commit_of, open_checkout, prepare_text
from profiling.launch.bench.plan import compose
from profiling.launch.bench.work import read_prepared
from profiling.launch.experiment.processes import remove_checkpoints
from profiling.shared.hardware import mfu
from profiling.shared.json_records import read_json
from profiling.shared.metric_names import ENERGY_PER_TOKEN
from profiling.shared.run_files import remove_run
from training.disk.run_folder import environment

PARTS: tuple[Part, ...] = ("char", "124m")
EXPECTED_S = {"prepare": 90, "char": 150, "124m": 90}  # until the first of a kind has run
SOURCES = ("train.py", "model.py", "configurator.py", "config/train_shakespeare_char.py")
FASTEST = "attention=triton kernels=fused residual_dtype=bfloat16 compile=true compile_scope=model"
# keys that change no process; of what two of them name, the content is compared
ASIDE = ("parts", "seeds", "batches", "limit_s", "out", "against", "text")


@dataclass
class RecordsConfig(Keys):
    against: str = key("", "a checkout of nanoGPT, to be run as it stands")
    text: str = key("", "tiny Shakespeare's input.txt; else it is downloaded", file=True)
    tokens: str = key("", "folder with GPT-2's tokens for 124m; else random ones are made")
    parts: str = key("char,124m", "what to measure, by comma")
    char: str = key("config/shakespeare_char.yaml recipe=fast", "words of train.py, by blanks")
    fastest: str = key(FASTEST, "words of train.py for 124m, by blanks")
    seeds: str = key("11,12,13,14,15", "of ours, one for each round, by comma")
    batches: str = key("12,32", "sequences of a step of 124m, by comma")
    loss: float = key(1.47, "validation loss to come below", least=0)
    iterations: int = key(400, "of a process of 124m", least=40)
    warm_up: int = key(100, "of them, not timed", least=0)
    small: bool = key(False, "try it on the CPU, with tiny models")
    limit_s: float = key(0, "start no process that would end later; 0: no limit", least=0)
    out: str = key("out-records", "folder of the record, its logs and runs")


class Summary(msgspec.Struct):
    """The field of a run's summary.json that is read."""

    token_j: float | None = msgspec.field(name=ENERGY_PER_TOKEN.name, default=None)


def main(config: RecordsConfig) -> None:
    check_keys(config.against, config.iterations, config.warm_up)
    planned = trials(config)
    out = Path(config.out).resolve()
    record = continue_record(out, fresh_record(config))
    for name in ("logs", "runs"):
        (out / name).mkdir(parents=True, exist_ok=True)
    done = {run.trial for run in record.runs}
    left = [trial for trial in planned if trial not in done]
    began_s, failed = time.perf_counter(), []
    for number, trial in enumerate(left):
        needs_s = time.perf_counter() - began_s + expected_s(trial, record.runs)
        if 0 < config.limit_s < needs_s:
            say(f"{len(left) - number} processes are left; the same command goes on")
            break
        try:
            run = run_trial(trial, config, out)
        except ValueError as error:
            failed.append(trial.name)
            say(f"{number + 1} of {len(left)}: {error}")
            continue
        record = replace(record, runs=[*record.runs, run])
        save(record, out)
        reached = "" if run.reached_s is None else f", below {config.loss} at {run.reached_s:.2f} s"
        took = f"{run.wall_s:.1f} s, {run.step_ms:.2f} ms per step"
        say(f"{number + 1} of {len(left)}: {trial.name}, {took}{reached}")
    print(tables(record), end="")
    if failed:
        raise SystemExit(f"records: failed: {', '.join(failed)}; the logs are in {out / 'logs'}")


def trials(config: RecordsConfig) -> list[Trial]:
    """All processes in order: those that prepare, then each part in rounds a b, b a, a b, ..."""
    parts = [part for part in PARTS if part in config.parts.split(",")]
    if unknown := set(config.parts.split(",")) - set(PARTS):
        raise ValueError(f"parts={unknown.pop()}: no such part; use {','.join(PARTS)}")
    seeds = numbers("seeds", config.seeds)
    batches = numbers("batches", config.batches, least=1)
    sides = [OURS, *([THEIRS] if config.against else [])]
    planned = [Trial("prepare", side) for side in sides if "char" in parts]
    for part in parts:
        for number, seed in enumerate(seeds):
            turn = [
                Trial(part, side, number, seed if side == OURS else None, batch)
                for batch in (batches if part == "124m" else [None])
                for side in sides
            ]
            planned += turn if number % 2 == 0 else turn[::-1]
    return planned


def fresh_record(config: RecordsConfig) -> Record:
    """A record without runs. Prepares the texts of both sides.

    Raises ValueError if the text is not tiny Shakespeare, or nanoGPT has another one.
    """
    against = Path(config.against).resolve()
    has_theirs = bool(config.against)
    text_sha256 = None
    if "char" in config.parts.split(","):
        dataset = prepare(compose(char_words(config)))
        text_sha256 = dataset.text_sha256
        if text_sha256 != TINY_SHAKESPEARE_SHA256 and not config.small:
            raise ValueError(f"text={config.text}: is not tiny Shakespeare, so it gives no record")
        if has_theirs:
            log = Path(config.out).resolve() / "logs" / "prepare-text.log"
            prepare_text(open_checkout(against), dataset, log)
    asked = {name: value for name, value in asdict(config).items() if name not in ASIDE}
    sources = {name: (against / name).read_bytes() for name in SOURCES if has_theirs}
    return Record(
        asked=asked,
        environment={name: v for name, v in environment().items() if name != "command"},
        text_sha256=text_sha256,
        theirs_commit=commit_of(against) if has_theirs else None,
        theirs_sha256={name: hashlib.sha256(text).hexdigest() for name, text in sources.items()},
    )


def expected_s(trial: Trial, runs: Sequence[Run]) -> float:
    """Longest process of its part, side and batch so far, or an estimate."""
    alike = (trial.part, trial.side, trial.batch)
    known = [r.wall_s for r in runs if (r.trial.part, r.trial.side, r.trial.batch) == alike]
    return max(known, default=EXPECTED_S[trial.part])


def run_trial(trial: Trial, config: RecordsConfig, out: Path) -> Run:
    """Run a process to its end. Raises ValueError if it fails or lacks the lines to be timed."""
    run_dir = out / "runs" / trial.name
    folder, words = command(trial, config, out)
    remove_run(run_dir)  # left by a process that was stopped
    environ = dict(os.environ) if trial.side == OURS else environment_for_others()
    if config.small:
        environ["OMP_NUM_THREADS"] = "1"  # tiny models gain nothing from threads
    metered = trial.part == "124m" and torch.cuda.is_available() and not config.small
    uuid = str(torch.cuda.get_device_properties(0).uuid) if metered else None
    warm_up = 0 if trial.part == "prepare" else config.warm_up
    began = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    with open(out / "logs" / f"{trial.name}.log", "wb") as log, energy_readings(uuid) as readings:
        timed = time_training(words, folder, environ, log, trial.name, warm_up)
    remove_checkpoints(run_dir)
    evaluations = timed.run.evaluations
    below = next((each for each in evaluations if each.val_loss < config.loss), None)
    losses = [each.val_loss for each in evaluations]
    if not all(map(math.isfinite, losses)):
        raise ValueError(f"{trial.name}: its validation loss is not finite")
    run = Run(
        trial=trial,
        command=with_names(words, config, out),
        began=began,
        wall_s=timed.wall_s,
        reached_s=below.at_s if below else None,
        reached_at=below.iteration if below else None,
        best_val_loss=min(losses, default=None),
        last_val_loss=losses[-1] if losses else None,
        step_ms=timed.step_ms,
        rows_ms=[ms for _, ms in timed.run.steps(warm_up)],
        evaluations=evaluations,
    )
    return with_speed(run, timed, readings, out, warm_up) if trial.part == "124m" else run


def with_speed(
    run: Run, timed: TimedTraining, readings: Sequence[Reading], out: Path, warm_up: int
) -> Run:
    """The run of 124m with its MFU and energy, for both sides by our count of the arithmetic.

    That is in the folder of a run of ours: without one, nothing is known.
    """
    ours = sorted((out / "runs").glob(f"124m-{run.trial.batch}-{OURS}-*/config.yaml"))
    if not ours:
        return run
    model = read_prepared(ours[0].parent)
    tokens_per_s = model.tokens / run.step_ms * 1e3
    rows = [row for row in timed.run.rows if row.iteration >= warm_up]
    ends_s = [timed.began_s + row.at_s for row in (rows[0], rows[-1])]
    power_w = mean_power_w(readings, *ends_s)
    summary = out / "runs" / run.trial.name / "summary.json"
    own_j = read_json(summary, Summary).token_j if run.trial.side == OURS else None
    flops, device = model.in_force.flops_per_token, model.in_force.device
    return replace(
        run,
        mfu=mfu(flops, tokens_per_s, device, model.dtype, 1),
        power_w=power_w,
        energy_per_token_j=power_w and power_w / tokens_per_s,
        own_energy_per_token_j=own_j,
    )
