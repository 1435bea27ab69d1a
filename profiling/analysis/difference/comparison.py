"""Compare two captures or runs: two sides in, one Comparison out.

Called by the verb compare, and by `ab`, which has better step times and needs the explanation.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean, median

import msgspec
from msgspec.structs import replace

from cli.keys import spell
from profiling.analysis.difference.answer import (
    PROFILER_SHIFT,
    Steps,
    judge,
    own_steps,
    uncaptured_steps,
)
from profiling.analysis.difference.command_labels import command_labels
from profiling.analysis.difference.comparability import (
    commit,
    config_differences,
    core_differences,
    factor,
    reasons_against,
)
from profiling.analysis.difference.compared import TRAINING, Compared, PhaseTimes
from profiling.analysis.difference.comparison_records import (
    COMMAND,
    BucketChange,
    Comparability,
    Comparison,
    FamilyChange,
    FreeSteps,
    Pair,
    RangeChange,
    Side,
    StepComparison,
)
from profiling.analysis.difference.kernel_changes import kernel_changes
from profiling.analysis.difference.line_changes import line_changes
from profiling.analysis.difference.ranks import rank_reasons, ranks_change
from profiling.analysis.difference.sentence import sentence
from profiling.analysis.statistics import EQUAL_WITHIN_PERCENT, spread

FEW_STEPS = 10
CLOCK_SHIFT = 0.01  # relative difference of GPU clocks above which unchanged kernels differ, too
LAUNCH_SHARE = 0.1  # of the step, idle by launches: from here up the profiler decides its length
ROUNDING_MS = 1e-10
ENDINGS = (".gz", ".sqlite", ".nsys-rep", ".trace.json", ".json")  # of captures; .gz is the last


def compare(
    baseline: Compared,
    candidate: Compared,
    force: bool = False,
    equal_within_percent: float = EQUAL_WITHIN_PERCENT,
) -> Comparison:
    """Compare the candidate with the baseline.

    With `force` there is an answer in spite of reasons against it, which stay in the record.
    """
    differences = config_differences(baseline.config, candidate.config)
    reasons = [*reasons_against(baseline, candidate, differences)]
    reasons += rank_reasons(baseline, candidate)
    own, uncaptured = own_steps(baseline, candidate), uncaptured_steps(baseline, candidate)
    steps = uncaptured or own
    judgement = judge(baseline, candidate, steps, equal_within_percent / 100)
    refused = bool(reasons) and not force
    names = names_of(baseline, candidate, differences)
    free = free_steps(baseline, candidate)
    comparison = Comparison(
        baseline=side(baseline, names[0]),
        candidate=side(candidate, names[1]),
        step_ms=step_times(steps),
        captured_step_ms=step_times(own) if uncaptured else msgspec.UNSET,
        free_step_ms=free,
        verdict="not_comparable" if refused else judgement.outcome,
        equal_within_percent=equal_within_percent,
        cannot_tell=None if refused else judgement.cannot_tell,
        ratio_bound=None if refused else judgement.ratio_bound,
        size_unknown=None if refused else judgement.size_unknown,
        buckets=buckets(baseline, candidate),
        families=families(baseline, candidate),
        ranges=ranges(baseline, candidate),
        kernels=kernel_changes(baseline, candidate),
        lines=line_changes(baseline, candidate),
        differs=list(differences or {}),
        differences=differences,
        comparability=Comparability(
            comparable=not reasons,
            reasons=reasons,
            forced=bool(reasons) and force,
            notes=list(notes((baseline, candidate), names, (steps, own), free)),
        ),
    )
    if baseline.ranks and candidate.ranks:
        comparison = replace(comparison, ranks=ranks_change(baseline.ranks, candidate.ranks))
    return replace(comparison, sentence=sentence(comparison))


def names_of(
    baseline: Compared, candidate: Compared, differences: dict[str, Pair] | None
) -> tuple[str, str]:
    """Names for the two sides: the values of the one key that differs, else those of their files
    or folders."""
    if differences and (key := factor(differences)):
        values = differences[key]
        if key == COMMAND:
            if commands := values.commands:
                return command_labels(*commands)
        else:
            return spell_value(key, values.baseline), spell_value(key, values.candidate)
    one, other = (place_names(side.path or side.file) for side in (baseline, candidate))
    pairs = zip(one, other, strict=False)
    again = one[0], f"{one[0]} again"
    return next((pair for pair in pairs if pair[0] != pair[1]), again)


def spell_value(key: str, value: object) -> str:
    """The value alone for attention (flash), else key and value as typed (compile=true)."""
    return spell(value) if key == "attention" else f"{key}={spell(value)}"


def place_names(path: str) -> list[str]:
    """Names that a capture or a run may get, the best first: its own, without and with its ending,
    then those of its folders.

    The captures of a run are named after its folder.
    """
    *folders, name = Path(path.replace("\\", "/")).parts or (path,)
    if folders and folders[-1] == "profile":
        return [*folders[-2::-1], stem(name), name]
    return [stem(name), name, *folders[::-1]]


def stem(file: str) -> str:
    """A file's name without its folder and a capture's endings; out-lr0.1 is not changed."""
    name = file.replace("\\", "/").rstrip("/").split("/")[-1]
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    return name


def side(compared: Compared, name: str) -> Side:
    return Side(
        name=name,
        file=compared.file,
        kind=compared.kind,
        device=compared.device,
        steps=compared.captured.steps,
        attention_backend=compared.captured.attention_backend,
        bottleneck=compared.captured.bottleneck,
    )


def step_times(steps: Steps) -> StepComparison:
    """Middles of the step times, their ratio with its interval, and the values to draw.

    The middles are medians, or geometric means over processes.
    """
    middle = geometric_mean if steps.over_processes else median
    one, other = middle(steps.baseline_ms), middle(steps.candidate_ms)
    ratio = steps.ratio
    return StepComparison(
        baseline=one,
        candidate=other,
        ratio=ratio.value if ratio else other / one,
        ci95=(ratio.low, ratio.high) if ratio else None,
        baseline_mean=steps.means_ms[0],
        candidate_mean=steps.means_ms[1],
        baseline_spread=spread(steps.baseline_ms),
        candidate_spread=spread(steps.candidate_ms),
        baseline_values=steps.baseline_ms,
        candidate_values=steps.candidate_ms,
        noise_percent=steps.noise * 100 if steps.over_processes else None,
    )


def free_steps(baseline: Compared, candidate: Compared) -> FreeSteps | None:
    """Medians of the steps around the windows, which no profiler slowed.

    None unless both sides know theirs.
    """
    one, other = baseline.free_step_ms, candidate.free_step_ms
    if one is None or other is None:
        return None
    return FreeSteps(one, other, other / one)


def changes(
    baseline: dict[str, float], candidate: dict[str, float]
) -> list[tuple[str, float, float, float]]:
    """(name, baseline ms, candidate ms, their difference) for each name of either side.

    A name that one side lacks took no time there. Empty where a side was not captured.
    """
    names = baseline | candidate if baseline and candidate else {}
    pairs = ((name, baseline.get(name, 0.0), candidate.get(name, 0.0)) for name in names)
    return [(name, one, other, other - one) for name, one, other in pairs]


def buckets(baseline: Compared, candidate: Compared) -> list[BucketChange] | None:
    """Exclusive parts of the mean step; their delta_ms add up to the difference of the means.

    They are parts of the GPU's time where both sides captured it, else the host's phases. The rest
    of the mean step becomes a bucket of its own, or two: in a run folder the parts come from a
    capture, the mean from steps without one. None where neither was captured.
    """
    one, other = baseline.captured, candidate.captured
    rows = changes(one.gpu_parts, other.gpu_parts)
    left_over = "unexplained"
    if not rows:
        rows = changes(one.host_parts, other.host_parts)
        left_over = "host_other"
    if not rows:
        return None
    if TRAINING in (baseline.kind, candidate.kind):
        if left_over == "host_other" and one.mean_ms and other.mean_ms:
            rows += rest(left_over, rows, one.mean_ms, other.mean_ms)
        left_over = "capture_overhead"
    rows += rest(left_over, rows, baseline.mean_ms, candidate.mean_ms)
    return [BucketChange(*row) for row in rows]


def rest(
    name: str, rows: list[tuple[str, float, float, float]], baseline_ms: float, candidate_ms: float
) -> list[tuple[str, float, float, float]]:
    """A row of what the rows leave of both times; none where that is only rounding."""
    one_ms = baseline_ms - sum(one for _, one, _, _ in rows)
    other_ms = candidate_ms - sum(other for _, _, other, _ in rows)
    if max(abs(one_ms), abs(other_ms)) <= ROUNDING_MS:
        return []
    return [(name, one_ms, other_ms, other_ms - one_ms)]


def families(baseline: Compared, candidate: Compared) -> list[FamilyChange] | None:
    """Kernel families side by side, ms per step, the largest change first."""
    rows = changes(baseline.captured.families, candidate.captured.families)
    changed = [FamilyChange(*row) for row in rows]
    return sorted(changed, key=lambda row: -abs(row.delta_ms)) or None


def ranges(baseline: Compared, candidate: Compared) -> list[RangeChange] | None:
    """Phases side by side, ms per step on the GPU and on the host; None where a side has none."""
    one, other = baseline.captured.phases, candidate.captured.phases
    if not one or not other:
        return None
    absent = PhaseTimes()
    pairs = ((name, one.get(name, absent), other.get(name, absent)) for name in one | other)
    return [
        RangeChange(name, *change(was.gpu_ms, now.gpu_ms), *change(was.host_ms, now.host_ms))
        for name, was, now in pairs
    ]


def change(
    one: float | None, other: float | None
) -> tuple[float | None, float | None, float | None]:
    return one, other, None if one is None or other is None else other - one


def clock_notes(baseline: Compared, candidate: Compared) -> Iterator[str]:
    """A note where the GPU clocks differ, whether by the change itself or by the machine."""
    one, other = baseline.gpu_clock, candidate.gpu_clock
    if one and other and abs(other.sm_mhz / one.sm_mhz - 1) > CLOCK_SHIFT:
        yield (
            f"GPU clock: {one.text}, against {other.text}; at the lower clock unchanged kernels "
            "take longer too"
        )


def notes(
    both_sides: tuple[Compared, Compared],
    names: tuple[str, str],
    steps_of: tuple[Steps, Steps],
    free: FreeSteps | None,
) -> Iterator[str]:
    """Notes that a reader should know and that are no reasons against the comparison.

    `steps_of` are the steps that were judged, and those of the captures or runs themselves.
    """
    baseline, candidate = both_sides
    judged, own = steps_of
    both = [note for note in baseline.notes if note in candidate.notes]
    yield from (f"both sides: {note}" for note in both)
    sides = [*zip(names, both_sides, strict=True)]
    for name, side in sides:
        yield from (f"{name}: {note}" for note in side.notes if note not in both)
    one, other = commit(baseline.environment), commit(candidate.environment)
    if one and other and one != other:
        yield f"code: commit {one} against {other}"
    yield from clock_notes(baseline, candidate)
    if not (baseline.on_cpu or candidate.on_cpu) and (
        cores := core_differences(baseline, candidate)
    ):
        yield f"{cores} of the host"
    if own.ratio and not own.over_processes and own.fewest < FEW_STEPS:
        counts = len(baseline.step_ms), len(candidate.step_ms)
        yield f"steps: {counts[0]} and {counts[1]} are few, so the interval is rough"
    if judged is not own:  # no profiler was in the way
        return
    captured = median(own.candidate_ms) / median(own.baseline_ms)
    if free and abs(free.ratio / captured - 1) > PROFILER_SHIFT:
        yield (
            f"profiler: the ratio of uncaptured steps is {free.ratio:.3f} ({free.baseline:.2f} "
            f"-> {free.candidate:.2f} ms), of captured steps {captured:.3f}; trust the "
            "uncaptured steps"
        )
    for name, compared in () if free else sides:
        launch_ms = compared.captured.gpu_parts.get("idle_launch", 0.0)
        if compared.kind != TRAINING and launch_ms > LAUNCH_SHARE * compared.mean_ms:
            yield (
                f"profiler: {name} waits {launch_ms:.2f} ms per step for launches, which a "
                "profiler lengthens, and its uncaptured steps are not known"
            )
