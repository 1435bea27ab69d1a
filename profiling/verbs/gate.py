"""The flags --equal-within and --fail-on-regression, and the exit code of a gate in CI."""

from cli.parser import Flags, flag, within
from profiling.analysis.difference.comparison_records import Comparison
from profiling.analysis.statistics import EQUAL_WITHIN_PERCENT

REGRESSION, CANNOT_TELL = 1, 3  # exit codes


def equal_within_flag(parser: Flags) -> None:
    band = "a ratio within this of 1 counts as equal (default %(default)g)"
    flag(parser, "--equal-within PERCENT", band, within(float, 0, 100), EQUAL_WITHIN_PERCENT)


def gate_flag(parser: Flags) -> None:
    limit = "exit code 1 if the candidate is slower by more than PERCENT, 3 if that is not known"
    flag(parser, "--fail-on-regression PERCENT", limit, within(float, 0))


def gate(comparisons: list[Comparison], limit_percent: float | None) -> int:
    """The exit code of several comparisons; candidates that are not 0 are printed.

    It is 1 if one candidate is slower by more than the limit, else 3 if that is unknown for one,
    else 0. Without a limit it is 0.
    """
    if limit_percent is None:
        return 0
    codes = [gate_one(comparison, limit_percent) for comparison in comparisons]
    for code in (REGRESSION, CANNOT_TELL):
        for comparison, exit_code in zip(comparisons, codes, strict=True):
            if exit_code == code:
                name = f"{comparison.candidate.name}: " if len(codes) > 1 else ""
                print(f"\n{name}{gate_message(code, limit_percent)}")
    return min((code for code in codes if code), default=0)


def gate_one(comparison: Comparison, limit_percent: float) -> int:
    """The exit code for one candidate."""
    limit, step = 1 + limit_percent / 100, comparison.step_ms
    sure = 1.0 if comparison.size_unknown else comparison.ratio_bound or step.ratio
    if comparison.verdict == "slower" and sure > limit:
        return REGRESSION
    unknown = comparison.cannot_tell
    if unknown and unknown.reason == "noise" and step.ci95 and step.ci95[1] <= limit:
        unknown = None  # even the interval's upper end is no such regression
    if unknown or (comparison.verdict == "slower" and sure <= limit < step.ratio):
        return CANNOT_TELL
    return 0


def gate_message(code: int, limit_percent: float) -> str:
    if code == REGRESSION:
        return f"regression: slower by more than {limit_percent:g} %"
    return f"no answer: whether it is slower by more than {limit_percent:g} % is not known"
