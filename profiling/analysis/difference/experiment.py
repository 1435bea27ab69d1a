"""Analyse an experiment: recorded step times of many processes in, verdicts out.

Called by profiling.verbs.ab.
"""

import statistics

from msgspec.structs import replace

from profiling.analysis.difference.answer import undecided_words
from profiling.analysis.difference.comparability import config_differences, work_reasons
from profiling.analysis.difference.compared import text_of
from profiling.analysis.difference.comparison_records import (
    MS_PER_STEP,
    Against,
    CannotTell,
    Comparability,
    Comparison,
    Experiment,
    ExperimentResult,
    Side,
    StepComparison,
    ValueTimes,
)
from profiling.analysis.difference.seen_work import seen_differences
from profiling.analysis.difference.sentence import sentence
from profiling.analysis.statistics import (
    EQUAL_WITHIN_PERCENT,
    MOST_PROCESSES,
    answer,
    noise_of_processes,
    processes_to_tell,
    ratio_over_processes,
    spread,
)

NS_PER_TOKEN = "ns per token"
FEWEST_PROCESSES = 2
DISTURBED = 0.2  # relative distance from the median above which a process did not run alone


def analyse(
    experiment: Experiment, equal_within_percent: float = EQUAL_WITHIN_PERCENT
) -> ExperimentResult:
    """The step times of each value, and its comparison with the first value.

    Where the values make iterations of different size (batch_size=32,64) the times are those of a
    token. Raises ValueError when a value has fewer than two processes.
    """
    labels = experiment.factor.labels
    unit, times = process_times(experiment)
    for label in labels:
        if len(times[label]) < FEWEST_PROCESSES:
            raise ValueError(
                f"{label}: {len(times[label])} finished processes, but an interval needs at "
                f"least {FEWEST_PROCESSES}; run the same command with --out to continue"
            )
    return ExperimentResult(
        unit=unit,
        values=[value_times(experiment, label, times[label]) for label in labels],
        comparisons=[
            compare_with_first(labels[0], label, times, equal_within_percent / 100)
            for label in labels[1:]
        ],
        warnings=[
            line for label in labels for line in disturbed_processes(label, times[label], unit)
        ],
        equal_within_percent=equal_within_percent,
    )


def process_times(experiment: Experiment) -> tuple[str, dict[str, list[float]]]:
    """(unit, label -> median step times of its processes)."""
    per_token = len({run.tokens_per_iteration for run in experiment.runs}) > 1  # never of commands
    times: dict[str, list[float]] = {label: [] for label in experiment.factor.labels}
    for run in experiment.runs:
        ms = statistics.median(run.step_ms)
        tokens = run.tokens_per_iteration if per_token else None
        times[run.label].append(ms * 1e6 / tokens if tokens else ms)
    return NS_PER_TOKEN if per_token else MS_PER_STEP, times


def disturbed_processes(label: str, times: list[float], unit: str) -> list[str]:
    """A line on the processes of a value that are far from its others, if there are any."""
    middle = statistics.median(times)
    far = [f"{time:.3f}" for time in times if abs(time / middle - 1) > DISTURBED]
    if len(times) <= 2 or not far:
        return []
    which = "a process" if len(far) == 1 else f"{len(far)} of {len(times)} processes"
    return [
        f"{which} of {label} took {', '.join(far)} {unit}, the middle one {middle:.3f}: another "
        "program was running, or the clock was different; this widens the interval"
    ]


def value_times(experiment: Experiment, label: str, times: list[float]) -> ValueTimes:
    """Middles and spread of one value over its processes, and its spread within a process.

    `times` are in the result's unit.
    """
    within = [
        spread(run.step_ms) / statistics.median(run.step_ms)
        for run in experiment.runs
        if run.label == label
    ]
    return ValueTimes(
        label=label,
        processes=times,
        median=statistics.median(times),
        spread=spread(times),
        spread_within_percent=statistics.median(within) * 100,
        geometric_mean=statistics.geometric_mean(times),
    )


def compare_with_first(
    first: str, label: str, times: dict[str, list[float]], band: float
) -> Against:
    """The ratio of `label` to the first value, and whether it is more than noise or equal.

    noise_percent is how much groups of equal processes differ, measured on the repeats of both. The
    interval has to exclude that noise and not just 1, so that an A/A experiment finds a difference
    in about one case of a hundred, not in one of twenty.
    """
    ratio = ratio_over_processes(times[first], times[label])
    noise = noise_of_processes(times[first], times[label])
    outcome = answer(ratio, noise, band)
    needed = processes_to_tell(times[first], times[label], band)
    return Against(
        baseline=first,
        candidate=label,
        ratio=ratio.value,
        ci95=(ratio.low, ratio.high),
        noise_percent=noise * 100,
        verdict=outcome,
        processes_to_tell=needed if outcome == "cannot_tell" else None,
    )


def conclude(
    experiment: Experiment,
    captured: list[Comparison | None],
    equal_within_percent: float = EQUAL_WITHIN_PERCENT,
) -> Experiment:
    """The experiment with its result and its full comparisons, see `with_result`."""
    return with_result(experiment, analyse(experiment, equal_within_percent), captured)


def with_result(
    experiment: Experiment, result: ExperimentResult, captured: list[Comparison | None]
) -> Experiment:
    """The experiment with this result and a full comparison for each of its pairs.

    `captured` are the comparisons of the captures, one for each pair, or None without captures.
    """
    comparisons = [
        comparison_of(experiment, result, pair, of_captures)
        for pair, of_captures in zip(result.comparisons, captured, strict=True)
    ]
    return replace(experiment, result=result, comparisons=comparisons)


def comparison_of(
    experiment: Experiment, result: ExperimentResult, pair: Against, captured: Comparison | None
) -> Comparison:
    """A pair of the result in the form of `compare`.

    Step times are the experiment's. Buckets, families and phases are those of the two captures,
    which are slower than unprofiled steps; without captures they are absent.
    """
    times = {row.label: row for row in result.values}
    one, other = times[pair.baseline], times[pair.candidate]
    step = StepComparison(
        baseline=one.middle,
        candidate=other.middle,
        ratio=pair.ratio,
        ci95=pair.ci95,
        baseline_spread=one.spread,
        candidate_spread=other.spread,
        baseline_values=one.processes,
        candidate_values=other.processes,
        noise_percent=pair.noise_percent,
        experiment_unit=result.unit,
    )
    base = captured or uncaptured_comparison(experiment, pair, step)
    if base.differences is None:  # the captures do not say, the processes do
        of_runs = uncaptured_comparison(experiment, pair, step)
        base = replace(base, differs=of_runs.differs, differences=of_runs.differences)
    comparison = replace(
        base,
        baseline=replace(base.baseline, name=pair.baseline),
        candidate=replace(base.candidate, name=pair.candidate),
        step_ms=step,
        captured_step_ms=captured and (captured.captured_step_ms or captured.step_ms),
        free_step_ms=None,
        verdict=pair.verdict,
        equal_within_percent=result.equal_within_percent,
        cannot_tell=cannot_tell(pair, result) if pair.verdict == "cannot_tell" else None,
        ratio_bound=None,
        size_unknown=None,
    )
    if experiment.of_commands:
        comparison = with_seen_work(comparison, experiment, pair)
    return replace(comparison, sentence=sentence(comparison))


def with_seen_work(comparison: Comparison, experiment: Experiment, pair: Against) -> Comparison:
    """The comparison with what differs between the work of two commands, seen from outside."""
    work = experiment.seen_work
    seen = seen_differences(work[pair.baseline], work[pair.candidate])
    known = comparison.comparability
    reasons = [*known.reasons, *seen.work]
    comparability = Comparability(not reasons, reasons, bool(reasons), known.notes)
    return replace(comparison, seen=seen, comparability=comparability)


def cannot_tell(pair: Against, result: ExperimentResult) -> CannotTell:
    """Why a pair has no answer, and how many processes of each value would give one."""
    band = (result.equal_within_percent or 0) / 100
    cure = f"even {MOST_PROCESSES:,} processes of each would not decide it"
    if needed := pair.processes_to_tell:
        cure = f"about {needed} processes of each are needed: --repeats {needed}"
    why = undecided_words(pair.ci95, pair.noise_percent / 100, band)
    return CannotTell("noise", why, cure, pair.processes_to_tell)


def uncaptured_comparison(
    experiment: Experiment, pair: Against, step: StepComparison
) -> Comparison:
    """A comparison of the two configurations alone, without anything that explains it."""
    configs, in_force = experiment.configs, experiment.in_force
    differences = config_differences(configs[pair.baseline], configs[pair.candidate])
    reasons = list(work_reasons(differences))
    side = Side(
        name="",
        file="unprofiled processes",
        device=text_of(in_force[pair.baseline], "device"),
        attention_backend=None,
        bottleneck=None,
    )
    return Comparison(
        baseline=side,
        candidate=side,
        step_ms=step,
        verdict=pair.verdict,
        differs=list(differences or {}),
        differences=differences,
        comparability=Comparability(
            comparable=not reasons,
            reasons=reasons,
            forced=bool(reasons),  # whoever makes it the factor wants it compared
            notes=["there are no captures to explain the difference"],
        ),
    )
