"""Runs the processes of `bench` one after the other, and times their lines as they come.

Called by profiling.verbs.bench. bench.json is written anew after every process, so that a series
that was stopped can go on where it was.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from msgspec.structs import replace as with_fields

from cli.files import write_text
from cli.process import environment_for_others
from configs.python_files import Setting
from profiling.analysis.bench.bench_records import BENCH, Bench, Kind, TimedProcess
from profiling.analysis.runs.folder import read_config
from profiling.launch.bench import printed
from profiling.launch.bench.plan import LEFT_OPEN, Plan, Trial, command, report_of
from profiling.launch.bench.printed import StampedOutput
from profiling.launch.bench.work import prepared_work, read_prepared
from profiling.launch.experiment.plan import WARM_UP
from profiling.launch.experiment.processes import (
    check_ended,
    processes_bar,
    remove_checkpoints,
    say,
)
from profiling.launch.process import stream
from profiling.shared.json_records import JsonObject, read_json, to_json
from profiling.shared.manifest import Manifest
from profiling.shared.run_files import remove_run
from profiling.shared.secrets import secret_names
from profiling.shared.units import milliseconds, number

PREPARED = Trial("prepare", "ours", 0)


def open_bench(folder: Path, asked: Bench) -> Bench:
    """The series measured in this folder before, without its result, or `asked` if there is none.

    Raises ValueError if the folder holds another series.
    """
    path = folder / BENCH
    if not path.exists():
        return asked
    earlier = read_json(path, Bench, cure="give another folder with --out")
    if earlier.asked != asked.asked:
        raise ValueError(
            f"--out {folder}: contains another series of processes; give another folder"
        )
    return with_fields(earlier, result=[])


def save(bench: Bench, folder: Path) -> None:
    write_text(folder / BENCH, to_json(bench, indent=1))


def trials_left(bench: Bench, trials: list[Trial]) -> list[Trial]:
    """Trials that the series still lacks."""
    done = {(p.kind, p.side, p.round) for p in bench.processes}
    return [trial for trial in trials if (trial.kind, trial.side, trial.round) not in done]


def measure(plan: Plan, bench: Bench, trials: list[Trial]) -> Bench:
    """Run the trials that the series lacks, and return it with them. Raises ValueError if one
    fails; a capture that fails is only left out."""
    left = trials_left(bench, trials)
    with processes_bar() as progress:
        task = progress.add_task("", total=len(trials), completed=len(trials) - len(left))
        for number, trial in enumerate(left, start=1):
            progress.update(task, description=plan.label(trial))
            try:
                process, lines = time_process(plan, trial, settings_in_force(plan))
            except ValueError as error:
                if trial.kind != "captured":  # the series can do without a capture
                    raise
                say(f"no capture, so this part has no result: {error}")
                continue
            bench = with_fields(bench, processes=[*bench.processes, process])
            if trial.kind == "prepare":
                bench = with_facts(plan, bench, trial, lines)
            save(bench, plan.folder)
            progress.advance(task)
            left_min = seconds_left(bench, left[number:]) / 60
            say(
                f"{len(trials) - len(left) + number:3d}/{len(trials)}  {plan.label(trial)}  "
                f"{figure(process)}  ({process.wall_s:.0f} s, about {left_min:.1f} min left)"
            )
    return bench


def settings_in_force(plan: Plan) -> dict[str, Setting]:
    """Device and dtype as our first process decided them; empty before that one has run."""
    if not (plan.out_dir(PREPARED) / "config.yaml").is_file():
        return {}
    config = read_config(plan.out_dir(PREPARED))
    settings = {name: config.get(name) for name in ("device", "dtype")}
    return {n: v for n, v in settings.items() if isinstance(v, str) and v != LEFT_OPEN}


def seconds_left(bench: Bench, left: list[Trial]) -> float:
    """Expected seconds of the trials that are left.

    Each is expected to take the mean of similar processes, or of all if there is no similar one.
    """

    def expected_s(trial: Trial) -> float:
        same_kind = [p for p in bench.processes if p.kind == trial.kind]
        same_side = [p for p in same_kind if p.side == trial.side]
        return fmean(p.wall_s for p in same_side or same_kind or bench.processes)

    return sum(map(expected_s, left))


def time_process(
    plan: Plan, trial: Trial, known: dict[str, Setting]
) -> tuple[TimedProcess, list[printed.Line]]:
    """Run one process; its record, and the lines that it printed.

    `known` has device and dtype as far as they are decided. Raises ValueError if it fails.
    """
    folder, words = command(plan, trial, known)
    run_dir, environ = plan.out_dir(trial), environment_for_others() if folder else dict(os.environ)
    if trial.kind == "captured" and folder:  # nsys keeps the environment
        environ = {n: v for n, v in environ.items() if n not in secret_names(environ)}
    remove_run(run_dir)  # left by a process that was stopped
    log = run_dir.with_name(run_dir.name + ".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as file:
        output = StampedOutput(file)
        ended = stream(words, environ, output, folder)
        wall_s = output.now_s()
    for suffix in (".nsys-rep", ".qdstrm"):  # the latter is what nsys leaves without its importer
        report_of(plan, trial).with_suffix(suffix).unlink(missing_ok=True)
    check_ended(ended, words, log, plan.label(trial))
    process = TimedProcess(
        kind=trial.kind,
        side=trial.side,
        round=trial.round,
        command=words[1:],
        folder=str(run_dir.relative_to(plan.folder)),
        wall_s=wall_s,
    )
    if trial.kind != "prepare":
        remove_checkpoints(run_dir)
    return READERS[trial.kind](plan, process, output.lines), output.lines


def read_training(plan: Plan, process: TimedProcess, lines: list[printed.Line]) -> TimedProcess:
    """The process with times out of its lines. Raises ValueError if they are unlike nanoGPT's."""
    run = printed.training(lines)
    steps = run.steps(0 if process.kind == "prepare" else WARM_UP)
    if not run.rows or not run.evaluations or (process.kind == "steps" and not steps):
        log = f"{plan.folder / process.folder}.log"
        raise ValueError(
            f"{log}: no lines such as 'iter 10: loss 4.1, time 5.0ms' or 'step 0: train loss "
            "4.1, val loss 4.2'; the checkout must print these lines as nanoGPT does"
        )
    return replace(
        process,
        first_iteration_s=run.rows[0].at_s,
        row_ms=[ms for _, ms in steps],
        printed_ms=[row.printed_ms for row, _ in steps],
        iterations=run.iterations,
        evaluations=run.evaluations,
        end_s=process.wall_s - lines[-1].at_s,
    )


def read_sampling(plan: Plan, process: TimedProcess, lines: list[printed.Line]) -> TimedProcess:
    """The process with the time of its samples. Raises ValueError if the lines do not show that
    time alone."""
    tokens = plan.asked.tokens * (plan.asked.samples if process.kind == "samples" else 1)
    sampling_s = printed.sampling_s(lines, tokens)
    if sampling_s is None:
        raise ValueError(
            f"{plan.folder / process.folder}.log: no line 'Loading meta from ...' before the "
            f"samples, or no '{printed.SAMPLE_END}' after one; the checkout must print these "
            "lines as nanoGPT does"
        )
    return replace(process, tokens=tokens, sampling_s=sampling_s)


def read_capture(plan: Plan, process: TimedProcess, lines: list[printed.Line]) -> TimedProcess:
    """The process with the ratio of captured steps to those before and after, from the manifest.

    The other checkout's process is captured as a whole: its steps are read from its lines.
    """
    if process.side == "theirs":
        return read_training(plan, process, lines)
    for path in (plan.folder / process.folder / "profile").glob("window-*.json"):
        overhead = read_json(path, Manifest).overhead_percent
        return replace(process, captured_ratio=None if overhead is None else 1 + overhead / 100)
    return process


READERS: dict[Kind, Callable[[Plan, TimedProcess, list[printed.Line]], TimedProcess]] = {
    "prepare": read_training,
    "steps": read_training,
    "run": read_training,
    "sample": read_sampling,
    "samples": read_sampling,
    "captured": read_capture,
}


def with_facts(plan: Plan, bench: Bench, trial: Trial, lines: list[printed.Line]) -> Bench:
    """The series with the facts that the first process of a side gives about machine and work."""
    ours = plan.out_dir(PREPARED)
    if trial.side == "theirs":
        return with_fields(bench, work=prepared_work(plan, ours, printed.facts(lines)))
    prepared = read_prepared(ours)
    return with_fields(
        bench,
        environment=read_json(ours / "environment.json", JsonObject),
        device=prepared.in_force.device,
        dtype=prepared.dtype,
        flops_per_step=prepared.in_force.flops_per_token * prepared.tokens,
    )


def figure(process: TimedProcess) -> str:
    """The figure that this kind of process is run for, as text."""
    if process.tokens and process.sampling_s:
        return f"{number(process.tokens / process.sampling_s)} tokens/s"
    if process.kind == "steps":
        return f"{milliseconds(median(process.row_ms))} ms per step"
    if process.captured_ratio:
        return f"captured steps {process.captured_ratio:.3f} times as long"
    return f"{process.wall_s:.1f} s"
