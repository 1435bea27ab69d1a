"""Scores of predictions that were held against pairs, and their tables as Markdown.

The rules are those of docs/whatif.md, written before any pair was measured.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Literal

import numpy as np

from profiling.analysis.whatif.checked import CheckedPrediction, Interval, Measured, class_of
from validation.pair_records import Pair

CONFIDENCE = 0.95  # at least, of the interval over rounds
LEAST_SIGN = 0.03  # from this measured gain on a prediction must say shorter
NOTHING = 0.01  # a smaller measured gain is none
Bought = Literal["gain", "nothing", "undecided"]
OURS = "whatif"
LIMITS = {"gpu": "GPU", "host": "host", None: "not told"}
KNOWN, UNKNOWN = "free step known", "capture only"
IN_TURNS = "step in turns known"  # in the process that also timed the change
STEADY = (5, 15)  # per cent by which the ends of a measured step's interval differ
COLUMNS = (
    "pairs", "programs", "GPUs", "predictions", "median", "90th percentile", "worst", "sign right",
    "inside", "high / low", "abstained", "false shorter", "undecided",
)  # fmt: skip


def median_over_rounds(values: Sequence[float]) -> Interval:
    """Median of the rounds with its interval of order statistics.

    Of ten rounds that is the second smallest to the second largest, 98 %; of five all.
    """
    ordered, count = sorted(values), len(values)
    tails = [sum(comb(count, k) for k in range(cut + 1)) / 2**count for cut in range(count // 2)]
    cut = max((n for n, tail in enumerate(tails) if 2 * tail <= 1 - CONFIDENCE), default=-1)
    cut = max(cut, 0)
    return Interval(median(ordered), ordered[cut], ordered[-1 - cut])


def measured_of(pair: Pair) -> Measured:
    """The pair's steps; the ratio is taken round by round."""
    ratios = [after / before for before, after in zip(pair.before_ms, pair.after_ms, strict=True)]
    step_ms = median_over_rounds(pair.after_ms)
    return Measured(median(pair.before_ms), step_ms, median_over_rounds(ratios))


def bought(measured: Measured) -> Bought:
    """Class of the change; undecided where the rounds leave room for 3 % and for nothing."""
    ratio = measured.ratio
    if ratio.high < 1 and 1 - ratio.middle >= NOTHING:
        return "gain"
    return "nothing" if ratio.low > 1 - LEAST_SIGN else "undecided"


def is_answered(checked: CheckedPrediction) -> bool:
    return checked.predicted is not None and checked.reason is None


def error_percent(checked: CheckedPrediction) -> float:
    """Error of the predicted step with the change, in per cent of the measured one."""
    assert checked.predicted
    return 100 * abs(checked.predicted.step_ms.middle / checked.measured.step_ms.middle - 1)


@dataclass(frozen=True)
class Score:
    """The counts and errors of some predictions; errors are of those with an answer."""

    pairs: int
    programs: int
    gpus: int
    answered: int
    abstained: int
    median_percent: float | None = None  # these three of the error; None: no answer
    p90_percent: float | None = None
    worst_percent: float | None = None
    gains: int = 0  # measured for certain, of 3 % and more,
    said_shorter: int = 0  # of which so many were predicted as shorter
    with_interval: int = 0
    inside: int = 0
    width: float | None = None  # median of high over low
    nothing: int = 0  # measured to buy nothing,
    false_shorter: int = 0  # of which so many were predicted as shorter
    undecided: int = 0  # by the measurement, whether a gain or nothing


def score(checks: Sequence[CheckedPrediction]) -> Score:
    answered = [each for each in checks if is_answered(each)]
    counts = Score(
        pairs=len({(each.program, each.variant, each.gpu) for each in checks}),
        programs=len({each.program for each in checks}),
        gpus=len({each.gpu for each in checks}),
        answered=len(answered),
        abstained=len(checks) - len(answered),
    )
    if not answered:
        return counts
    errors = [error_percent(each) for each in answered]
    by_class = defaultdict[Bought, list[CheckedPrediction]](list)
    for each in answered:
        by_class[bought(each.measured)].append(each)
    gains = [each for each in by_class["gain"] if 1 - each.measured.ratio.middle >= LEAST_SIGN]
    nothing = by_class["nothing"]
    spans = [each.predicted for each in answered if each.predicted and each.inside is not None]
    return Score(
        **vars(counts)
        | {
            "median_percent": median(errors),
            "p90_percent": float(np.quantile(errors, 0.9)),
            "worst_percent": max(errors),
            "gains": len(gains),
            "said_shorter": count_shorter(gains),
            "with_interval": len(spans),
            "inside": sum(each.inside is True for each in answered),
            "width": median(p.step_ms.high / p.step_ms.low for p in spans) if spans else None,
            "nothing": len(nothing),
            "false_shorter": count_shorter(nothing),
            "undecided": len(by_class["undecided"]),
        }
    )


def count_shorter(checks: Iterable[CheckedPrediction]) -> int:
    return sum(each.predicted is not None and each.predicted.answer == "shorter" for each in checks)


def latest(checks: Iterable[CheckedPrediction]) -> list[CheckedPrediction]:
    """The last prediction of each rule for a pair, a tool and what it knew of the free step."""
    return list({(each.by, *place_of(each)): each for each in checks}.values())


def place_of(checked: CheckedPrediction) -> tuple[object, ...]:
    """Place of a prediction, whichever rule made it: the pair, the tool, what was known."""
    return checked.program, checked.variant, checked.gpu, checked.tool, knowing(checked)


def knowing(checked: CheckedPrediction) -> str:
    if checked.free_source != "given":
        return UNKNOWN
    return IN_TURNS if checked.free_ms == checked.measured.before_ms else KNOWN


def document(checks: Sequence[CheckedPrediction], heading: str) -> str:
    """Tables of these predictions as Markdown. Rivals count where whatif has an answer."""
    ours = [each for each in checks if each.by == OURS and each.change]
    places = {place_of(each) for each in ours if is_answered(each)}
    rivals = [each for each in checks if each.by != OURS and place_of(each) in places]
    parts = [heading, *without_prediction(checks)]
    parts += table("Rules, on the same predictions", [*ours, *rivals], rule_of)
    for known in (KNOWN, UNKNOWN, IN_TURNS):
        of_these = [each for each in ours if knowing(each) == known]
        title = f"By change and what limits the step behind it, {known}"
        parts += table(title, of_these, change_and_limit)
    parts += table("By how steady the measured step is", ours, steadiness)
    parts += table("By what was done", ours, lambda each: f"{each.kind}: `{each.change}`")
    return "\n".join([*parts, *false_ones(ours)]) + "\n"


def rule_of(checked: CheckedPrediction) -> str:
    return f"{checked.by}, {checked.tool}, {knowing(checked)}"


def steadiness(checked: CheckedPrediction) -> str:
    step_ms = checked.measured.step_ms
    ratio = step_ms.high / step_ms.low
    within = next(
        (f"within {percent} %" for percent in STEADY if ratio <= 1 + percent / 100), "wider"
    )
    return f"{within}, {checked.tool}, {knowing(checked)}"


def change_and_limit(checked: CheckedPrediction) -> str:
    limit = LIMITS[checked.predicted.limited_by] if checked.predicted else "refused"
    return f"{class_of(checked.change or '')}, {limit}"


def table(
    title: str,
    checks: Sequence[CheckedPrediction],
    label_of: Callable[[CheckedPrediction], str],
) -> list[str]:
    """Lines of a table with a row for each label; none without predictions."""
    groups = defaultdict[str, list[CheckedPrediction]](list)
    for each in checks:
        groups[label_of(each)].append(each)
    if not groups:
        return []
    lines = ["", f"## {title}", "", f"| | {' | '.join(COLUMNS)} |"]
    lines.append("|---|" + "---:|" * len(COLUMNS))
    return lines + [row(label, score(groups[label])) for label in sorted(groups)]


def row(label: str, found: Score) -> str:
    asked = found.answered + found.abstained
    cells = [str(n) for n in (found.pairs, found.programs, found.gpus, found.answered)]
    for percent in (found.median_percent, found.p90_percent, found.worst_percent):
        cells.append("–" if percent is None else f"{percent:.1f} %")
    cells.append(share(found.said_shorter, found.gains))
    cells.append(share(found.inside, found.with_interval))
    cells.append(f"{found.width:.2f}" if found.width else "–")
    cells.append(share(found.abstained, asked))
    cells.append(f"{found.false_shorter} of {found.nothing}" if found.nothing else "–")
    cells.append(str(found.undecided))
    return f"| {label} | {' | '.join(cells)} |"


def share(count: int, of: int) -> str:
    return f"{100 * count / of:.0f} % of {of}" if of else "–"


def without_prediction(checks: Iterable[CheckedPrediction]) -> list[str]:
    """A line on the pairs that whatif has no change for."""
    kinds = Counter(each.kind for each in checks if each.change is None)
    if not kinds:
        return []
    listed = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    return ["", f"No prediction, as `whatif` has no such change: {kinds.total()} pairs ({listed})."]


def false_ones(checks: Iterable[CheckedPrediction]) -> list[str]:
    """Lines on each prediction of a shorter step where the change surely buys nothing."""
    lines = ["", "## False: predicted as shorter, and buys nothing", ""]
    for each in checks:
        if is_answered(each) and bought(each.measured) == "nothing" and count_shorter([each]):
            assert each.predicted
            said, was = each.predicted.ratio, each.measured.ratio
            ratios = (f"{r.middle:.3f} ({r.low:.3f} to {r.high:.3f})" for r in (said, was))
            from_what = f"{each.gpu}, {each.tool}, {knowing(each)}"
            who = f"{each.program}, {each.variant}, `{each.change}`, {from_what}"
            lines.append(f"- {who}: ratio {' predicted, '.join(ratios)} measured")
    return lines if lines[3:] else [*lines, "None."]
