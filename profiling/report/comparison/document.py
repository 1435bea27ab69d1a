"""Documents of a comparison and of an experiment. Called by the verbs compare and ab."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from profiling.analysis.difference.comparison_records import (
    Comparison,
    Experiment,
    FreeSteps,
    StepComparison,
)
from profiling.analysis.difference.sentence import headline, is_unlike, under_headline
from profiling.analysis.whatif.checked import CheckedPrediction, spelled
from profiling.report.comparison import comparison_charts, iterations, tables
from profiling.report.document import (
    EVERYWHERE,
    PAGE,
    Block,
    Bullets,
    Chart,
    Document,
    Facts,
    Finding,
    Paragraph,
    Section,
    Tone,
    Verdict,
)
from profiling.shared.causes import VERDICT
from profiling.shared.units import ABSENT, milliseconds
from profiling.timeline.personal import without_folders

TONES: dict[str, Tone] = {"faster": "good", "slower": "bad", "cannot_tell": "warning"}
SHORT = {"changed": "Changed", "removed": "Removed", "added": "Added"}  # titles in the navigation
MEAN_APART = 0.05  # difference to the median, relative; parts then do not add up to the headline
IN_TEXT = ("buckets", "families")  # an experiment's explaining tables in text; a page has all


def comparison_document(comparison: Comparison) -> Document:
    baseline, candidate = comparison.baseline, comparison.candidate
    # without their folders: a page is passed on
    files = " against ".join(dict.fromkeys(Path(side.file).name for side in (candidate, baseline)))
    known = filter(None, ["" if files == title(comparison) else files, candidate.device])
    return Document(
        title(comparison),
        [" · ".join(known)],
        [*verdict(comparison), Facts(facts(comparison), cards=True), *notes(comparison)],
        [
            waterfall_section(comparison, "waterfall", "Where the difference is"),
            step_section(comparison),
            family_section(comparison, comparison_charts.side_colours(comparison)),
            *(
                Section(t.name, t.title, [t], SHORT.get(t.name))
                for t in tables.comparison_tables(comparison)
            ),
        ],
    )


def title(comparison: Comparison) -> str:
    return f"{comparison.candidate.name} against {comparison.baseline.name}"


def verdict(comparison: Comparison) -> list[Block]:
    tone = TONES.get(comparison.verdict, "plain")
    said = [] if isinstance(comparison.seen, msgspec.UnsetType) else comparison.seen.work
    if is_unlike(comparison):
        said = comparison.comparability.reasons
        tone = "warning"
    reasons = [why for why in comparison.comparability.reasons if why not in said]
    return [
        Verdict(comparison.sentence, tone, headline(comparison), under_headline(comparison)),
        Bullets("Late ranks", late_ranks(comparison)),
        *(Finding("warning", why, word="not alike") for why in reasons),
    ]


def late_ranks(comparison: Comparison) -> list[str]:
    if isinstance(comparison.ranks, msgspec.UnsetType):
        return []
    who, costs_ms = comparison.ranks.stragglers, comparison.ranks.late_ms
    return [
        f"{comparison.baseline.name}: {who.baseline or no_late_rank(costs_ms.baseline)}",
        f"{comparison.candidate.name}: {who.candidate or no_late_rank(costs_ms.candidate)}",
    ]


def no_late_rank(costs_ms: float | None) -> str:
    if costs_ms is None:
        return "the captures do not show whether a rank delays the others."
    return "no rank delays the others all the time."


def notes(comparison: Comparison) -> list[Block]:
    return [Finding("note", note) for note in comparison.comparability.notes]


def facts(comparison: Comparison) -> list[tuple[str, str]]:
    """The figures under the verdict, as (name, figure)."""
    step, sides = comparison.step_ms, (comparison.baseline, comparison.candidate)
    unit = step.unit.removesuffix(" per step")
    pairs = [
        (sides[0].name, f"{milliseconds(step.baseline)} {unit}"),
        (sides[1].name, f"{milliseconds(step.candidate)} {unit}"),
        (
            "spread (interquartile)",
            f"{milliseconds(step.baseline_spread)} -> {milliseconds(step.candidate_spread)} {unit}",
        ),
        ("ratio", f"{step.ratio:.3f}"),
        ("95 % interval", interval(comparison)),
    ]
    if step.noise_percent is not None:
        pairs.append(("difference between equal runs", f"{step.noise_percent:.2g} %"))
    if comparison.buckets:
        pairs += mean_steps(step)
    if sure := comparison.ratio_bound:
        pairs.append(
            ("ratio without a profiler", f"{sure:.3f} or {'less' if sure < 1 else 'more'}")
        )
    if comparison.size_unknown:
        pairs.append(("ratio without a profiler", "not known"))
    if (band := comparison.equal_within_percent) is not None:
        pairs.append(("counts as equal", f"within {band:g} %"))
    if captured := comparison.captured_step_ms or None:
        pairs.append(("captured steps", both_ms(captured)))
    elif free := comparison.free_step_ms:
        pairs.append(("uncaptured steps", f"{both_ms(free)} ({free.ratio:.3f})"))
    ran = [side.attention_backend or ABSENT for side in sides]
    bound = [VERDICT[side.bottleneck].title if side.bottleneck else ABSENT for side in sides]
    for what, both_sides in (("attention kernels", ran), ("bound by", bound)):
        if both_sides != [ABSENT, ABSENT]:
            pairs.append((what, " -> ".join(dict.fromkeys(both_sides))))
    return pairs


def mean_steps(step: StepComparison) -> list[tuple[str, str]]:
    """The mean steps, to which the parts add up, where they are far from the medians.

    Empty where they are close or unknown.
    """
    one, other = step.baseline_mean, step.candidate_mean
    if one is None or other is None:
        return []
    if max(abs(one / step.baseline - 1), abs(other / step.candidate - 1)) <= MEAN_APART:
        return []
    both = f"{milliseconds(one)} -> {milliseconds(other)} ms"
    return [("mean step, sum of the parts", both)]


def interval(comparison: Comparison) -> str:
    if bounds := comparison.step_ms.ci95:
        return f"{bounds[0]:.3f} to {bounds[1]:.3f}"
    unknown = comparison.cannot_tell
    one = unknown is not None and unknown.reason == "one_process"
    return "none: one run of each, on a CPU" if one else "none: too few steps"


def both_ms(step: StepComparison | FreeSteps) -> str:
    return f"{milliseconds(step.baseline)} -> {milliseconds(step.candidate)} ms"


def step_section(comparison: Comparison) -> Section:
    point = "one step"
    if comparison.step_ms.noise_percent is not None:
        point = "one run: the median of its logged rows"
    elif comparison.baseline.kind == "training":
        point = "one logged row: the median of its iterations"
    elif comparison.captured_step_ms:
        point = "one step before or after the captured ones"
    lead = f"Each point is {point}. The box contains the middle half of the points."
    chart = Chart("steps", "step times of both sides", comparison_charts.steps(comparison), 220)
    return Section("steps", "Step times", [chart], lead=lead)


def waterfall_section(comparison: Comparison, name: str, title: str) -> Section:
    """The section that leads from one side's step to the other's; it needs captures of both."""
    waterfall = comparison_charts.waterfall(comparison)
    lead = (
        "From one mean step to the other; green is time saved. The parts do not overlap and add up "
        "to the total."
    )
    label = "the difference of the mean step, part by part"
    return Section(name, title, [Chart(name, label, waterfall, 380)], "Difference", lead)


def family_section(comparison: Comparison, shades: Sequence[str]) -> Section:
    """The section of the kernel families of both sides, whose colours are `shades`."""
    lead = (
        "Matched by what they compute, because another attention backend or a compiler renames "
        "every kernel."
    )
    families = comparison_charts.families(comparison, shades)
    label = "time of each kernel family on both sides"
    chart = Chart("families", label, families, 460)
    return Section("family-chart", "Kernel families side by side", [chart], "Families", lead)


def experiment_document(experiment: Experiment) -> Document:
    """The whole report of an experiment. Raises AssertionError if it has no result yet."""
    assert (result := experiment.result) is not None
    labels = experiment.factor.labels
    shades = comparison_charts.value_colours(experiment)
    figure, height = comparison_charts.processes(result, shades), 120 + 70 * len(labels)
    chart = Chart("processes", "step time of every process", figure, height)
    measured = (tables.values(experiment.factor.key, result), tables.ratios(result))
    lead = (
        "Each point is the median step of one process. Only the spread between processes shows "
        "how much another start would differ."
    )
    return Document(
        f"{experiment.factor.key}: {' against '.join(labels)}",
        ran(experiment),
        [
            *(block for each in experiment.comparisons for block in verdict(each)),
            *prediction(experiment.prediction),
            *(Finding("warning", warning) for warning in result.warnings),
        ],
        [
            Section("processes", "Processes", [chart], lead=lead),
            *(
                waterfall_section(each, f"waterfall-{number}", f"Difference: {title(each)}")
                for number, each in enumerate(experiment.comparisons)
            ),
            *(Section(t.name, t.title, [t]) for t in measured),
            *iterations.sections(experiment),
            *(
                why_section(number, comparison, (shades[0], shades[number + 1]))
                for number, comparison in enumerate(experiment.comparisons)
            ),
        ],
    )


def prediction(checked: CheckedPrediction | None) -> list[Block]:
    """The line on the prediction that the experiment tests, or none."""
    if checked is None:
        return []
    tone: Tone = "plain" if checked.inside is None else "good" if checked.inside else "warning"
    return [Paragraph(spelled(checked), tone)]


def ran(experiment: Experiment) -> list[str]:
    """Lines on what ran: processes, steps, and the words of the trainer or both commands."""
    processes, steps = len(experiment.runs), experiment.steps
    if not experiment.of_commands:
        line = f"{processes} processes, {steps} timed steps each after {experiment.warm_up + 1} "
        words = " ".join(map(without_folders, experiment.words))
        return [line + f"warm-up iterations · {words}"]
    timed = f"{steps} timed steps each" if steps else "each to its end, timed"
    lines = zip("AB", experiment.factor.values, strict=True)
    commands = [f"{side}: {without_folders(line)}" for side, line in lines]
    return [f"{processes} processes, {timed} after {experiment.warm_up} warm-up steps", *commands]


def why_section(number: int, comparison: Comparison, shades: Sequence[str]) -> Section:
    """The section that explains a difference by the captures of both sides."""
    (families,) = family_section(comparison, shades).blocks
    assert isinstance(families, Chart)
    blocks = [*notes(comparison), replace(families, name=f"{families.name}-{number}")]
    for table in tables.comparison_tables(comparison):
        places = EVERYWHERE if table.name in IN_TEXT else PAGE
        ids = () if number else table.ids  # a page has each anchor once
        blocks.append(replace(table, name=f"{table.name}-{number}", places=places, ids=ids))
    lead = "From one capture of each. Captured steps are slower than the timed steps."
    return Section(
        f"why-{number}",
        f"Why: {title(comparison)}",
        blocks,
        f"Why: {comparison.candidate.name}",
        lead if comparison.buckets else "",
    )
