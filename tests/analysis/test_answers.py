"""The four answers: conditions of each, what it would take to decide, exit codes of the gate."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.difference.answer import judge, own_steps
from profiling.analysis.difference.compared import (
    TRAINING,
    Compared,
    PhaseTimes,
    compared_capture,
)
from profiling.analysis.difference.comparison import compare
from profiling.analysis.difference.sentence import headline, under_headline
from profiling.analysis.statistics import (
    Ratio,
    answer,
    noise_of_processes,
    processes_to_tell,
    ratio_over_processes,
    steps_to_tell,
)
from profiling.shared.manifest import CapturedWindow as Window
from profiling.shared.manifest import Laps, Manifest, WindowSteps
from profiling.verbs import compare as comparison_command
from tests.helpers.reports import STEPS, flash, flash_report, side, slow


def without_manifest(side: Compared) -> Compared:
    return replace(side, free_step_ms=None)


def eager(file: str, kernels_ms: float, launch_ms: float) -> Compared:
    """A capture that knows no steps without a profiler."""
    return without_manifest(side(file, {"gemm": kernels_ms}, {"launch": launch_ms}))


def noisy(file: str, ms: float, seed: int, steps: int = STEPS) -> Compared:
    values = (ms * np.exp(np.random.default_rng(seed).normal(0, 0.05, steps))).tolist()
    return replace(side(file, {"gemm": ms}), step_ms=values, mean_ms=float(np.mean(values)))


def with_laps(side: Compared, before: list[float], after: list[float]) -> Compared:
    laps = WindowSteps(before=Laps(1.0, before), after=Laps(1.0, after))
    manifest = Manifest(1, "nsys", Window(), step_ms=laps)
    return replace(compared_capture(flash_report(), manifest), file=side.file)


@pytest.mark.parametrize(
    ("ratio", "told"),
    [
        (Ratio(0.9, 0.88, 0.92), "faster"),
        (Ratio(1.015, 1.012, 1.018), "slower"),  # beyond the noise, though within the band
        (Ratio(1.0, 0.985, 1.015), "equal"),
        (Ratio(1.0, 0.985, 1.025), "cannot_tell"),
        (Ratio(1.02, 0.99, 1.05), "cannot_tell"),
    ],
)
def test_the_interval_decides_between_the_four(ratio, told):
    assert answer(ratio, noise=0.01, band=0.02) == told


@pytest.mark.parametrize(("middle", "half"), [(1.0, 0.04), (1.03, 0.06), (0.96, 0.05)])
def test_so_many_steps_narrow_the_interval_to_an_answer(middle, half):
    """Intervals narrow by the square root: as many steps tell, three quarters of them do not."""

    def interval(count: float) -> Ratio:
        width = half * math.sqrt(20 / count)
        return Ratio(middle, middle * math.exp(-width), middle * math.exp(width))

    assert answer(interval(20), 0.01, 0.02) == "cannot_tell"
    needed = steps_to_tell(interval(20), 20, 0.01, 0.02)
    assert answer(interval(needed), 0.01, 0.02) != "cannot_tell"
    assert answer(interval(0.75 * needed), 0.01, 0.02) == "cannot_tell"


def test_no_number_of_steps_tells_what_two_starts_differ_by():
    assert steps_to_tell(Ratio(1.008, 1.0, 1.016), 20, noise=0.01, band=0.005) is None


@pytest.mark.parametrize("difference", [0.0, 0.02])
def test_so_many_processes_do_tell(difference):
    """Most of the experiments that are that large tell, where three a side seldom do."""
    random = np.random.default_rng(3)

    def can_tell(count: int) -> bool:
        groups = [np.exp(random.normal(level, 0.01, count)) for level in (0, difference)]
        found = ratio_over_processes(*groups)
        return answer(found, noise_of_processes(*groups), 0.02) != "cannot_tell"

    typical = [np.exp(np.array([-0.01, 0, 0.01]) + level) for level in (0, difference)]
    needed = processes_to_tell(*typical, band=0.02)
    assert 4 <= needed <= 40
    assert sum(can_tell(3) for _ in range(100)) < 35
    assert sum(can_tell(2 * needed) for _ in range(100)) > 70


def test_more_processes_than_anyone_starts_are_no_number():
    assert processes_to_tell([1.0, 2.0], [1.0, 2.0], band=0.001) is None


def test_noise_says_what_it_would_take():
    found = compare(noisy("a.sqlite", 10.0, 1), noisy("b.sqlite", 10.2, 2))
    assert found.verdict == "cannot_tell" and found.cannot_tell.reason == "noise"
    assert found.cannot_tell.needed > STEPS and found.step_ms.ci95 is not None
    assert f"about {found.cannot_tell.needed:,} steps of each are needed" in found.sentence
    assert found.sentence.startswith("cannot tell whether ")
    run = replace(noisy("out", 10.0, 1), kind=TRAINING)
    assert ("logged rows of each are needed, and there are 20") in compare(
        run, run, True, 0.1
    ).sentence


def test_the_band_is_the_users_and_recorded():
    one = side("a.sqlite", {"gemm": 10.0}, jitter=0.03)
    assert compare(one, one, equal_within_percent=1).verdict == "cannot_tell"
    found = compare(one, one, equal_within_percent=10)
    assert found.verdict == "equal" and found.equal_within_percent == 10
    assert "equal within 10 %" in found.sentence


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (slow(), flash(), r"flash\S* is 1.\d\dx faster than slow\S* \(95 %: 1.* times as fast\)"),
        (flash(), slow(), r"slow\S* is 1.\d\dx slower than flash\S* \(95 %: 1.* times as long\)"),
        (noisy("a", 10.0, 1), noisy("b", 10.2, 2), "Cannot tell whether b is slower than a"),
        (flash(), flash(), r".* are equal within 2 %: [\d.]+ to [\d.]+"),
    ],
)
def test_the_headline_says_which_is_faster_by_how_much_and_how_sure_that_is(one, other, told):
    found = compare(one, other)
    assert re.fullmatch(told, headline(found))
    times, claim = under_headline(found).partition(":")[0], headline(found).partition(" (95 %")[0]
    assert found.sentence.lower().startswith(f"{claim.lower()} ({times.partition(';')[0]}")


@pytest.mark.parametrize("force", [False, True])
def test_one_step_is_described_and_not_judged(force):
    few = replace(flash(), step_ms=flash().step_ms[:1])
    found = compare(slow(), few, force)
    assert found.verdict == "cannot_tell" and found.cannot_tell.reason == "few_steps"
    assert found.step_ms.ci95 is None and found.step_ms.ratio == pytest.approx(0.7, abs=0.02)
    assert found.comparability.comparable and found.kernels.added
    assert "no verdict, because 20 and 1 steps" in found.sentence
    assert found.sentence.endswith("attention 4.10 -> 0.900 ms, everything else within noise")


def test_few_steps_of_other_work_are_refused_and_forced():
    other = replace(flash(), step_ms=[7.5], config=flash().config | {"batch_size": 1})
    assert compare(slow(), other).verdict == "not_comparable"
    found = compare(slow(), other, force=True)
    assert found.verdict == "cannot_tell" and found.comparability.forced


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_few_steps_have_an_interval(count):
    few = replace(flash(), step_ms=flash().step_ms[:count])
    assert compare(slow(), few).verdict == "faster"


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 1.2, 1.4])
def test_few_steps_tell_what_noise_does_not_hide(factor):
    """Pairs of 2 to 4 steps of 1 % noise, one side of them longer by the factor."""
    random, told = np.random.default_rng(7), []
    for count in [2, 3, 4] * 20:
        one = replace(slow(), step_ms=(10 * np.exp(random.normal(0, 0.01, count))).tolist())
        other_ms = (factor * 10 * np.exp(random.normal(0, 0.01, count))).tolist()
        told.append(compare(one, replace(slow(), step_ms=other_ms)).verdict)
    assert "faster" not in told
    assert told.count("slower") == 0 if factor == 1 else told.count("slower") > 55


def test_two_steps_that_are_equal_by_chance_have_no_narrow_interval():
    one, other = (replace(slow(), step_ms=[ms, ms]) for ms in (10.0, 10.25))
    found = compare(one, other)
    assert found.verdict == "cannot_tell" and found.cannot_tell.reason == "noise"
    loose = replace(one.captured, kernel_noise=0.05)
    low, high = compare(replace(one, captured=loose), other).step_ms.ci95
    assert high / low > (found.step_ms.ci95[1] / found.step_ms.ci95[0]) ** 2


def host_bound(file: str, phases: dict[str, float], launch_ms: float) -> Compared:
    """A capture of 20 steps; `phases` are their ms on the host."""
    made = eager(file, 10.0, launch_ms)
    times = {name: PhaseTimes(ms) for name, ms in phases.items()}
    return replace(made, captured=replace(made.captured, phases=times))


def test_the_direction_of_a_change_of_one_phase_is_told_and_its_size_is_not():
    phases = {"data": 1.0, "forward": 4.0, "backward": 6.0, "optimizer": 2.0}
    one = host_bound("a.sqlite", phases, 3.0)
    other = host_bound("b.sqlite", phases | {"forward": 7.0}, 6.0)
    found = compare(one, other)
    assert found.verdict == "slower" and found.cannot_tell is None
    assert found.size_unknown and found.ratio_bound is None
    assert "b is slower than a (captured 13.00 -> 16.00 ms per step" in found.sentence
    assert "by how much cannot be told: most of the change is host time" in found.sentence
    assert compare(other, one).verdict == "faster"


def test_a_host_that_is_slower_in_all_phases_alike_tells_nothing():
    phases = {"data": 1.0, "forward": 4.0, "backward": 6.0, "optimizer": 2.0}
    longer = {name: 1.23 * ms for name, ms in phases.items()}
    one, other = host_bound("a.sqlite", phases, 3.0), host_bound("b.sqlite", longer, 6.0)
    found = compare(one, other)
    assert found.cannot_tell.reason == "profiler" and found.size_unknown is None


def test_what_the_profiler_may_have_added_to_one_side_is_no_direction():
    one, other = eager("a.sqlite", 10.0, 3.0), eager("b.sqlite", 10.0, 9.0)
    assert compare(one, other).verdict == "slower"
    costly = replace(other, captured=replace(other.captured, added_ms=3.5))
    assert compare(one, costly).cannot_tell.reason == "profiler"
    assert compare(one, replace(other, kind="kineto"), force=True).verdict == "cannot_tell"


def test_what_a_profiler_lengthens_is_no_answer():
    one, other = eager("a.sqlite", 12.0, 2.0), eager("b.sqlite", 7.0, 14.0)
    found = compare(one, other)
    assert found.verdict == "cannot_tell" and found.cannot_tell.reason == "profiler"
    assert "idle: kernel launches 2.00 -> 14.00 ms" in found.sentence
    assert (
        "its kernels take 5.00 ms less; time both without a profiler: python -m profiling ab"
        in found.sentence
    )
    assert found.step_ms.ci95 is not None and found.ratio_bound is None


def test_parts_of_the_host_count_together():
    """Neither is beyond the band."""
    one = eager("a.sqlite", 10.0, 0.0)
    other = without_manifest(side("b.sqlite", {"gemm": 10.0}, {"launch": 0.15, "cpu": 0.16}))
    found = compare(one, other)
    assert found.cannot_tell.reason == "profiler"
    assert ("idle: CPU work 0 -> 0.160 ms, idle: kernel launches 0 -> 0.150") in found.sentence


def test_host_time_that_hides_what_the_kernels_lost_is_not_equality():
    one, other = eager("a.sqlite", 4.0, 8.0), eager("b.sqlite", 6.0, 6.0)
    found = compare(one, other)
    assert found.verdict == "cannot_tell" and found.cannot_tell.reason == "profiler"


def test_uncaptured_steps_that_are_as_long_make_captured_ones_credible():
    one = side("a.sqlite", {"gemm": 12.0}, {"launch": 2.0})
    other = side("b.sqlite", {"gemm": 7.0}, {"launch": 14.0})
    assert compare(one, other).verdict == "slower"
    lengthened = replace(other, free_step_ms=0.85 * other.mean_ms)
    assert compare(one, lengthened).verdict == "cannot_tell"
    assert compare(one, without_manifest(other)).verdict == "cannot_tell"


def test_a_runs_own_steps_are_no_profilers():
    one, other = eager("a", 12.0, 2.0), eager("b", 7.0, 14.0)
    found = compare(replace(one, kind=TRAINING), replace(other, kind=TRAINING))
    assert found.verdict == "slower"


def test_kernels_that_outlast_the_other_step_are_an_answer():
    one, other = eager("a.sqlite", 8.0, 12.0), eager("b.sqlite", 6.0, 0.0)
    found = compare(one, other)
    assert found.verdict == "faster"
    assert found.ratio_bound == pytest.approx(6.0 / 8.0, rel=0.01)
    assert "b is at least 1.33x faster than a (captured 20.00 -> 6.00 ms per step" in found.sentence
    mirrored = compare(other, one)
    assert mirrored.verdict == "slower"
    assert mirrored.ratio_bound == pytest.approx(8.0 / 6.0, rel=0.01)


def test_no_profiler_makes_a_step_four_times_as_long():
    one, other = eager("a.sqlite", 1.0, 1.5), eager("b.sqlite", 1.0, 19.0)
    found = compare(one, other)
    assert found.verdict == "slower" and found.ratio_bound == pytest.approx(5.0 / 2.5, rel=0.01)
    assert compare(one, eager("b.sqlite", 1.0, 8.0)).ratio_bound is None


def test_what_is_sure_of_the_median_step_is_not_of_steps_that_vary():
    steps_ms = [2.0, 2.1, 2.0, 2.1, 2.0, 21.0, 20.0, 19.0, 21.0, 20.0]
    one = replace(eager("a.sqlite", 1.9, 7.0), step_ms=steps_ms[::-1] + steps_ms)
    found = compare(one, eager("b.sqlite", 6.0, 0.0))
    assert found.verdict == "cannot_tell" and found.ratio_bound is None


def test_a_collective_waits_for_others_and_proves_nothing():
    one = without_manifest(side("a.sqlite", {"communication": 8.0}, {"launch": 12.0}))
    found = compare(one, eager("b.sqlite", 6.0, 0.0))
    assert judge(one, one, own_steps(one, one), 0.02).outcome == "equal"
    assert found.ratio_bound is None


def test_steps_around_both_windows_are_judged_in_place_of_captured_ones():
    near = [1.0, 1.01, 0.99]
    one = with_laps(slow(), [10 * x for x in near], [10 * x for x in near])
    other = with_laps(flash(), [11 * x for x in near], [11 * x for x in near])
    found = compare(one, other)
    assert found.verdict == "slower" and found.step_ms.ratio == pytest.approx(1.1)
    assert found.captured_step_ms.ratio == 1.0 and len(found.step_ms.baseline_values) == 6
    alone = replace(other, free_laps_ms=other.free_laps_ms[:4])
    assert compare(one, alone).step_ms.ratio == 1.0


def test_host_time_of_captures_that_contradict_the_judged_steps_explains_nothing():
    one, other = (replace(x, kind=TRAINING) for x in (eager("a", 12, 2), eager("b", 7, 14)))
    quick = replace(other, step_ms=[ms / 3 for ms in other.step_ms], mean_ms=other.mean_ms / 3)
    found = compare(one, quick)
    assert found.verdict == "faster" and "launch" not in found.sentence
    assert "gemm 12.00 -> 7.00 ms" in found.sentence


def test_steps_of_no_time_are_named():
    report = flash_report()
    steps = replace(report.window.step_ms, values=[1.0] * 19 + [0.0])
    with pytest.raises(ValueError, match=r"flash.sqlite: one of its steps took 0 ms.* --step"):
        compared_capture(replace(report, window=replace(report.window, step_ms=steps)))


@pytest.fixture
def gate(monkeypatch):
    """gate(baseline, candidate, *flags): the exit code."""

    def run(one: Compared, other: Compared, *flags: str) -> int:
        sides = iter((one, other))
        monkeypatch.setattr(comparison_command, "both_sides", lambda _: tuple(sides))
        return comparison_command.main(["a", "b", *flags])

    return run


def test_the_gate_has_an_exit_code_for_what_cannot_be_told(gate, capsys):
    few = replace(flash(), step_ms=[7.0])
    assert gate(slow(), few) == 0
    assert gate(slow(), few, "--fail-on-regression", "5") == 3
    assert "no answer: whether it is slower by more than 5 %" in capsys.readouterr().out
    pair = eager("a.sqlite", 12.0, 2.0), eager("b.sqlite", 7.0, 14.0)
    assert gate(*pair, "--fail-on-regression", "5") == 3
    of_unknown_size = eager("a.sqlite", 10.0, 3.0), eager("b.sqlite", 10.0, 9.0)
    assert gate(*of_unknown_size, "--fail-on-regression", "5") == 3


def test_noise_below_the_limit_is_no_regression(gate):
    pair = noisy("a.sqlite", 10.0, 1), noisy("b.sqlite", 10.2, 2)
    high = compare(*pair).step_ms.ci95[1]
    assert 1.02 < high < 1.3
    assert gate(*pair, "--fail-on-regression", "5") == (3 if high > 1.05 else 0)
    assert gate(*pair, "--fail-on-regression", "30") == 0


def test_a_regression_is_one_by_what_is_sure(gate):
    pair = eager("b.sqlite", 6.0, 0.0), eager("a.sqlite", 8.0, 12.0)  # at least 1.33, captured 3.33
    codes = [gate(*pair, "--fail-on-regression", limit) for limit in ("20", "100", "400")]
    assert codes == [1, 3, 0]


def test_the_band_is_a_flag(gate, tmp_path, capsys):
    one = side("a.sqlite", {"gemm": 10.0}, jitter=0.03)
    assert gate(one, one, "--equal-within", "10", "--fail-on-regression", "0") == 0
    assert "equal within 10 %" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--equal-within: -1: must be 0 to 100"):
        gate(one, one, "--equal-within", "-1")


def test_a_name_of_31_letters_does_not_run_into_its_figure(gate, capsys):
    name = "a_control_trace_control_control"
    assert len(name) == 31
    gate(replace(slow(), file=f"{name}.sqlite", config=None), flash())
    assert f"{name}  10.80 ms" in capsys.readouterr().out
