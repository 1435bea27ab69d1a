"""Announcement of `ab` and `bench` before they start: their duration, and what to run instead."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from configs.command_line import compose_one
from profiling.analysis.bench.bench_records import Asked
from profiling.analysis.difference.comparison_records import ProcessRun
from profiling.launch import pace as pace_module
from profiling.launch.bench import ahead as bench_ahead
from profiling.launch.bench.plan import Plan, Trial, trials
from profiling.launch.duration import (
    LONG_S,
    Process,
    duration_line,
    offer_line,
    spell_range,
    total_s,
)
from profiling.launch.experiment.ahead import duration_lines, processes_ahead
from profiling.launch.experiment.plan import order, plan_experiment
from profiling.launch.pace import Pace, find_pace, flops_of, gpu_iteration_s
from profiling.verbs import ab, bench

FULL, SMALL = "config/shakespeare_char.yaml", "config/shakespeare_char_cpu.yaml"
FACTOR = "attention=slow,flash"
TINY = ["n_layer=1", "n_embd=16", "n_head=1", "block_size=8", "batch_size=2"]
LAPTOP_FLOPS_PER_S = 60e9


def pace_of(*words: str, **values) -> Pace:
    """Pace of train.py's words on a laptop that makes 60 GFLOP/s of all of them."""
    config = compose_one([*words])
    flops = flops_of(config)
    sequences = config.batch_size * config.gradient_accumulation_steps
    made = Pace(
        device="cpu",
        name="cpu",
        flops=flops,
        iteration_s=(flops / LAPTOP_FLOPS_PER_S, flops / LAPTOP_FLOPS_PER_S),
        tokens=sequences * config.block_size,
        sequences=sequences,
        compiles=config.compile,
        has_cpu_size=config.n_embd <= 128,
    )
    return replace(made, **values)


def said_by_ab(*words: str, paces: list[Pace], repeats: int = 5, steps: int = 300) -> list[str]:
    experiment = plan_experiment(list(words), steps)
    values = order(len(paces), repeats)
    ahead = processes_ahead(experiment, values, paces, uncaptured=range(len(paces)))
    return duration_lines(experiment, ahead, paces)


def minutes(line: str) -> tuple[float, float]:
    """Reads what a line says it takes, from and to."""
    found = re.search(r"about ([\d.]+) to ([\d.]+) (s|min|h)\b", line)
    assert found, line
    size = {"s": 1 / 60, "min": 1.0, "h": 60.0}[found[3]]
    return float(found[1]) * size, float(found[2]) * size


def test_the_main_experiment_on_a_cpu_takes_hours_and_the_small_one_is_offered():
    line, offer = said_by_ab(FULL, FACTOR, paces=[pace_of(FULL)] * 2)
    low, high = minutes(line)
    assert 17 * 60 < low < high < 60 * 60 and " h on this CPU" in line
    assert offer.endswith(f"python -m profiling ab {SMALL} {FACTOR} --steps 100")


@pytest.mark.slow
def test_the_offered_experiment_is_one_and_takes_minutes():
    *_, offer = said_by_ab(FULL, FACTOR, paces=[pace_of(FULL)] * 2)
    flags, words = ab.parse(shlex.split(offer.partition("profiling ab ")[2]))
    said = said_by_ab(*words, paces=[pace_of(SMALL)] * 2, steps=flags.steps)
    assert len(said) == 1 and 1 < minutes(said[0])[0] < minutes(said[0])[1] < 10


def test_who_has_the_small_size_already_is_told_to_run_fewer():
    slow = pace_of(SMALL, iteration_s=(5.0, 6.0))
    _, offer = said_by_ab(SMALL, FACTOR, paces=[slow] * 2)
    assert "already of a size for CPUs" in offer and "--steps 20 --repeats 2" in offer


def test_on_a_gpu_nothing_is_offered_and_the_arithmetic_is_told():
    gpu = pace_of(FULL, device="cuda", name="NVIDIA H200", iteration_s=(0.0035, 0.015))
    (line,) = said_by_ab(FULL, FACTOR, paces=[gpu] * 2)
    low, high = minutes(line)
    assert 1 < low < 1.5 and 4 < high < 6
    assert "on NVIDIA H200 (an iteration has 1.16 TFLOP; to start 5 to 20 s each" in line


def test_a_gpu_of_unknown_speed_is_said_to_be_that():
    gpu = pace_of(FULL, device="cuda", name="NVIDIA X1", iteration_s=gpu_iteration_s(1e12, None))
    (line,) = said_by_ab(FULL, FACTOR, paces=[gpu] * 2)
    assert "plus the iterations, whose time on NVIDIA X1 is not known" in line


@pytest.mark.parametrize("measured_ms", [3.47, 5.41, 8.14, 13.4])
def test_measured_steps_of_an_h200_lie_between_the_two_shares_of_its_peak(measured_ms):
    low, high = gpu_iteration_s(flops_of(compose_one([FULL])), 989.4e12)
    assert low * 1e3 <= measured_ms <= high * 1e3


def test_what_is_there_already_is_not_counted_again():
    paces = [pace_of(SMALL)] * 2
    experiment = plan_experiment([SMALL, FACTOR], 100)
    run = ProcessRun(0, "slow", [], "runs/01", 7.0, 768, [60], [28.0], [28.0])
    values = order(2, 2)
    whole = processes_ahead(experiment, values, paces, uncaptured=[])
    experiment.runs.append(run)
    left = processes_ahead(experiment, values, paces, uncaptured=[])
    assert (len(whole), len(left)) == (4, 3)
    assert total_s(left)[0] == pytest.approx(total_s(whole)[0] * 3 / 4)
    with_capture = processes_ahead(experiment, values, paces, uncaptured=[1])
    assert [process.captured for process in with_capture] == [False] * 3 + [True]
    assert duration_lines(experiment, [], paces) == []


@pytest.mark.slow
def test_compiling_on_a_cpu_widens_the_range():
    eager, compiled = pace_of(SMALL, compiles=False), pace_of(SMALL, compiles=True)
    widths = [high - low for low, high in (total_s([Process(p, 10)]) for p in (eager, compiled))]
    assert widths[1] > widths[0] + 60
    assert "including compilation" in duration_line([Process(compiled, 10)], {"a": compiled})


def test_half_an_hour_is_where_it_begins_to_be_long():
    pace = pace_of(FULL, compiles=False)
    at_best_s, _ = pace.iteration_s
    short, long = (Process(pace, seconds / at_best_s) for seconds in (LONG_S - 60, LONG_S + 60))
    assert offer_line([short], "ab {file}", "") is None
    assert SMALL in offer_line([long], "ab {file}", "")


@pytest.mark.parametrize(
    ("low_s", "high_s", "said"),
    [(40, 80, "40 to 80 s"), (50, 150, "0.8 to 2.5 min"), (1e5, 1.5e5, "28 to 42 h")],
)
def test_spans_are_told_in_the_unit_of_the_longer_time(low_s, high_s, said):
    assert spell_range(low_s, high_s) == said


def planned(*words: str, iterations: int = 1000, steps: int = 300) -> Plan:
    return Plan(Asked(list(words), None, None, steps, iterations, 200, 64), None, Path("out"))


def said_by_bench(plan: Plan, pace: Pace) -> list[str]:
    kinds = ["steps", "run", "sample", "samples", "captured"]
    return bench_ahead.duration_lines(plan, trials(plan, kinds, 3), pace)


@pytest.mark.slow
def test_bench_of_the_main_experiment_on_a_cpu_takes_hours_and_the_small_one_is_offered():
    line, offer = said_by_bench(planned(FULL), pace_of(FULL))
    assert 20 * 60 < minutes(line)[0] < 60 * 60
    assert offer.endswith(f"profiling bench {SMALL} --iterations 200 --steps 100")
    flags, words = bench.parse(shlex.split(offer.partition("profiling bench ")[2]))
    small = planned(*words, iterations=flags.iterations, steps=flags.steps)
    said = said_by_bench(small, pace_of(SMALL))
    assert len(said) == 1 and 1 < minutes(said[0])[0] < minutes(said[0])[1] < 10


def test_a_whole_run_counts_its_evaluations():
    pace = pace_of(SMALL)
    run = Trial("run", "ours", 0)
    exact = bench_ahead.iterations(planned(SMALL, iterations=200), run, pace)
    # at both ends, of 55 iterations each as the file says
    assert 200 + 2 * 45 < exact < 200 + 2 * 65
    sampled = bench_ahead.iterations(planned(SMALL, "eval_iters=10", iterations=200), run, pace)
    assert sampled == pytest.approx(200 + 2 * 2 * 10 / 3)


@pytest.mark.slow
def test_an_iteration_is_timed_on_this_machine(monkeypatch):
    """Orders of magnitude alone: other programs may be on the cores."""
    monkeypatch.setattr(pace_module, "TIMED_S", 0.3)
    tiny, small, deep = (
        find_pace([SMALL, *words]) for words in (TINY, [], ["n_layer=400", "batch_size=1"])
    )
    assert tiny.device == "cpu" and tiny.has_cpu_size and not tiny.compiles
    assert 0 < tiny.iteration_s[0] <= tiny.iteration_s[1] < small.iteration_s[1] < 2
    assert deep.iteration_s[0] > small.iteration_s[0] and not deep.has_cpu_size
