"""Chance is no difference: single runs on a CPU, equal work, other cores, unchecked work."""

from dataclasses import replace

import numpy as np
import pytest

from configs.schema import BEFORE
from profiling.analysis.difference.answer import undecided_words
from profiling.analysis.difference.comparability import config_differences, factor, work_reasons
from profiling.analysis.difference.compared import TRAINING, CapturedStep, Compared, Environment
from profiling.analysis.difference.comparison import compare
from profiling.analysis.runs.configuration import same_work
from profiling.report.comparison.document import facts
from profiling.verbs.gate import CANNOT_TELL, gate
from tests.helpers.reports import flash, slow

CPU_WORK = {
    "attention": "flash",
    "batch_size": 12,
    "seed": 1,
    "learning_rate": 1e-3,
    "grad_clip": 1,
}


def run(step_ms: list[float], **fields) -> Compared:
    """One run on a CPU, by the medians of its rows."""
    nothing = {"step_name": None, "free_step_ms": None, "free_laps_ms": [], "notes": []}
    made = Compared(
        file="out-a",
        kind=TRAINING,
        device="cpu",
        step_ms=step_ms,
        mean_ms=float(np.mean(step_ms)),
        config=CPU_WORK,
        environment=Environment(),
        captured=CapturedStep(len(step_ms)),
        on_cpu=True,
        **nothing,
    )
    return replace(made, **fields)


def disturbed(random: np.random.Generator, ms: float = 10.0, steps: int = 40) -> list[float]:
    """Steps of a start beside other work, which sets their level and disturbs some of them."""
    level = ms * np.exp(random.normal(0, 0.25))
    return (level * np.exp(np.abs(random.normal(0, 0.1, steps)))).tolist()


def runs(random: np.random.Generator, ms: float, count: int = 5) -> Compared:
    """Several starts as a side; other work reaches each a little."""
    medians = [ms * float(np.exp(random.normal(0, 0.08))) for _ in range(count)]
    return run(medians, runs=count)


def test_pairs_of_equal_cpu_runs_are_not_called_different():
    random = np.random.default_rng(20)
    pairs = [(run(disturbed(random)), run(disturbed(random), file="out-b")) for _ in range(60)]
    found = [compare(*pair) for pair in pairs]
    assert {each.verdict for each in found} == {"cannot_tell"}
    assert {each.cannot_tell.reason for each in found} == {"one_process"}
    as_if_steps_told = [
        compare(*(replace(side, on_cpu=False, device="GPU") for side in pair)) for pair in pairs
    ]
    called = sum(each.verdict in ("faster", "slower") for each in as_if_steps_told)
    assert called > 30, "the same samples, were steps taken as the unit"


def test_several_runs_of_each_are_judged_by_what_starts_differ_by():
    random = np.random.default_rng(21)
    equal = [compare(runs(random, 10), runs(random, 10)) for _ in range(60)]
    assert sum(each.verdict in ("faster", "slower") for each in equal) <= 3
    differing = [compare(runs(random, 10), runs(random, 15)) for _ in range(20)]
    assert sum(each.verdict == "slower" for each in differing) >= 19
    step = differing[0].step_ms
    assert step.noise_percent > 1 and len(step.baseline_values) == 5
    assert step.ratio == pytest.approx(step.candidate / step.baseline)


def test_too_few_runs_say_how_many_it_takes():
    one, other = run([10.0, 14.0], runs=2), run([12.0, 11.0], runs=2)
    found = compare(one, other)
    assert found.cannot_tell.reason == "noise" and found.cannot_tell.needed > 2
    assert f"about {found.cannot_tell.needed} runs of each are needed" in found.sentence


def test_cores_that_other_work_held_are_no_difference_of_the_program():
    one = run([34.0, 34.5, 34.2], runs=3, cores_at_work=0.5)
    found = compare(one, run([17.5, 17.3, 17.4], runs=3, cores_at_work=1.0))
    assert found.verdict == "cannot_tell" and found.cannot_tell.reason == "other_work"
    assert "0.5 and 1.0 cores were at work" in found.sentence
    assert compare(one, run([10.0, 10.1, 10.2], runs=3, cores_at_work=1.0)).verdict == "faster"
    assert compare(one, run([17.5, 17.3, 17.4], runs=3)).verdict == "faster"


def test_one_run_of_each_on_a_cpu_shows_medians_and_spreads_and_no_interval():
    one = run([30.0, 34.0, 38.0, 34.0, 33.0, 35.0], cores_at_work=1.0)
    other = run([2.0, 2.5, 3.0, 2.6, 2.4, 2.5], cores_at_work=1.94)
    found = compare(one, replace(other, config=CPU_WORK | {"attention": "slow"}))
    assert found.sentence == (
        "cannot tell whether slow is faster than flash (34.00 -> 2.50 ms per step): there is one "
        "run of each, and on a CPU the speed of a program varies from start to start (1.0 and "
        "1.9 cores were at work); alternate several runs of each: use python -m profiling ab, or "
        "give folders of such runs"
    )
    assert found.step_ms.ci95 is None
    shown = dict(facts(found))
    assert shown["flash"] == "34.00 ms" and shown["slow"] == "2.50 ms"
    assert shown["spread (interquartile)"] == "1.50 -> 0.150 ms"
    assert shown["95 % interval"] == "none: one run of each, on a CPU"


def test_means_that_are_far_from_the_medians_are_shown_because_the_parts_add_up_to_them():
    captured = CapturedStep(8, host_parts={"host_forward": 5.0})
    one, other = (run([ms] * 8, runs=2, captured=captured) for ms in (10.0, 8.0))
    assert not [what for what, _ in facts(compare(one, other)) if "mean" in what]
    apart = replace(other, mean_ms=9.5)
    shown = dict(facts(compare(one, apart)))
    assert shown["mean step, sum of the parts"] == "10.00 -> 9.50 ms"
    bare = replace(apart, captured=CapturedStep(8))
    assert not [what for what, _ in facts(compare(one, bare)) if "mean" in what]


def test_a_gate_has_no_answer_of_one_run_on_a_cpu():
    slower = compare(run([10.0] * 8), run([20.0] * 8))
    assert gate([slower], 5) == CANNOT_TELL


@pytest.mark.parametrize(
    "also",
    [
        {"tensorboard": True},
        {"always_save_checkpoint": True},
        {"exact_resume": False},
        {"weight_decay": 0.0},
        {"lr_decay": "linear"},
        {"eval_only": True},
        {"gpu_metrics": {"enabled": "false"}},
        {"init_from": "gpt2", "weights": "gpt2.safetensors"},  # as many sums, of other numbers
        {"init_from": "resume", "go_on": True, "wandb": {"mode": "offline"}},
        {"speed": "compiled"},  # its choices have keys of their own
    ],
)
def test_a_key_that_leaves_the_work_as_it_is_takes_no_name_from_another(also):
    one = replace(slow(), config=CPU_WORK | {"attention": "slow"})
    found = compare(one, replace(flash(), config=CPU_WORK | also))
    assert found.sentence.startswith(
        "flash is 1.42x faster than slow (10.80 -> 7.61 ms per step): "
    )


def test_a_run_from_before_there_were_levels_is_like_one_of_today():
    assert config_differences(CPU_WORK, CPU_WORK | {"speed": "fast"}) == {}
    levels = [
        CPU_WORK | {"speed": "reference", "compile": False, "cuda_graphs": "false"},
        CPU_WORK | {"speed": "compiled", "compile": True, "cuda_graphs": "true"},
    ]
    assert factor(config_differences(*levels)) == "compile"


@pytest.mark.parametrize("key, others", [("positions", "rotary"), ("optimizer", "muon")])
def test_other_positions_and_another_optimizer_are_other_work(key, others):
    """Older runs have neither key; they were trained with the defaults."""
    differences = config_differences(CPU_WORK, CPU_WORK | {key: others})
    (reason,) = work_reasons(differences)
    assert reason.endswith(f" against {others}")
    assert config_differences(CPU_WORK, CPU_WORK | {key: BEFORE[key]}) == {}


@pytest.mark.parametrize(
    ("key", "values", "same"),
    [
        ("seed", (1, 2), True),
        ("learning_rate", (1e-3, 3e-3), True),
        ("weight_decay", (0.1, 0.0), True),
        ("wandb.mode", ("offline", "disabled"), True),
        ("grad_clip", (1.0, 0.5), True),
        ("grad_clip", (1.0, 0.0), False),
        ("attention", ("slow", "flash"), False),
        ("optimizer", ("adamw", "muon"), False),
        ("batch_size", (32, 64), False),
    ],
)
def test_work_of_a_step(key, values, same):
    assert same_work(key, *values) == same


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("changed", [{"seed": 2}, {"learning_rate": 0.003}, {"grad_clip": 0.5}])
def test_a_key_that_leaves_the_work_as_it_is_names_no_difference(on_cpu, changed):
    one, other = run([10.0] * 20, on_cpu=on_cpu), run([17.3] * 20, on_cpu=on_cpu, file="out-b")
    found = compare(one, replace(other, config=CPU_WORK | changed))
    (key,) = changed
    assert (
        f"(10.00 -> 17.30 ms per step; equal work according to the keys, where only {key} differs)"
        in found.sentence
    )
    assert (found.baseline.name, found.candidate.name) == ("out-a", "out-b")
    if on_cpu:
        assert found.sentence.endswith("alternate several runs of each: give folders of such runs")


def test_equal_work_is_not_said_of_what_differs():
    assert "equal work" not in compare(slow(), flash()).sentence
    assert "equal work according to the keys)" in compare(slow(), slow()).sentence
    many = dict(seed=2, learning_rate=0.1, min_lr=0, max_iters=9)
    other = run([10.0] * 20, config=CPU_WORK | many)
    assert "; equal work according to the keys)" in compare(run([10.0] * 20), other).sentence


def test_other_cores_are_other_conditions_on_a_cpu():
    one = run([10.0] * 20, environment=Environment(usable_cores=2, compute_threads=2))
    other = run([10.0] * 20, environment=Environment(usable_cores=2, compute_threads=1))
    found = compare(one, other)
    assert found.verdict == "not_comparable"
    said = "cores 2 threads on 2 usable cores against 1 thread on 2 usable cores"
    assert found.comparability.reasons == [said]
    pinned = replace(one, environment=Environment(usable_cores=1, compute_threads=2))
    assert compare(one, pinned).verdict == "not_comparable"
    assert compare(one, other, force=True).verdict == "cannot_tell"
    assert compare(one, one).comparability.comparable
    older = replace(one, environment=Environment())
    assert compare(one, older).comparability.comparable, "what is not known is no reason"
    on_gpu = compare(*(replace(side, on_cpu=False) for side in (one, other)))
    assert on_gpu.verdict == "equal" and f"{said} of the host" in on_gpu.comparability.notes


def test_work_that_could_not_be_checked_is_said_beside_the_figures():
    found = compare(replace(slow(), config=None), flash())
    assert found.sentence.startswith(
        "flash is 1.42x faster than slow (10.80 -> 7.61 ms per step; could not check whether "
        "both did the same work): "
    )


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ((0.5, 3.5), "from 0.50 to 3.50 times as long"),
        ((1e-9, 1.7e8), "from less than 0.01 to over 1,000 times as long"),
        ((0.5, 1.5), "from 50 % less to 50 % more time"),
    ],
)
def test_an_interval_that_tells_nothing_has_no_digits_that_tell_something(interval, said):
    assert said in undecided_words(interval, 0.1, 0.02)
