"""Sentences about the runs in plain words. Called by profiling.report.dashboard.document."""

import numpy as np

from profiling.analysis.difference.sentence import speed
from profiling.analysis.runs.groups import (
    Group,
    Section,
    Speed,
    compare_speed,
    energy_per_token,
    equal_work,
    losses_of,
    seconds_to_loss,
    time_scale,
    typical_ms,
)
from profiling.analysis.runs.run_waits import rank_waits
from profiling.analysis.statistics import EQUAL_WITHIN_PERCENT
from profiling.shared.units import milliseconds, number

MOST_KEYS = 6
MOST_GROUPS = 5  # groups that are named one by one; the tables have all
BY_CHANCE = (
    "there is one run of each, and on a CPU the speed of a program varies from start to start"
)


def headline(section: Section) -> str:
    """A sentence that says which configuration is fastest, and by how much."""
    ranked = by_speed(section)
    if not ranked:
        return "No step times yet: train longer or log more often (log_interval)"
    fastest, *others = ranked
    if len(section.groups) == 1:
        runs = len(section.runs)
        count = f"{runs} seeds" if runs > 1 else "one run"
        return (
            f"{fastest.label}: {time_with_unit(section, fastest)}, {count}, no other "
            "configuration to compare with"
        )
    if not others:
        time = time_with_unit(section, fastest)
        return f"{fastest.label}: {time}; the others have no step times yet"
    if len(others) > 1 and all(equal_work(fastest, other) for other in others):
        both = f"{time_of(section, fastest)} to {time_with_unit(section, others[-1])}"
        return f"All {len(ranked)} do the same work per step: {both}"
    if len(others) > 1:
        return (
            f"{fastest.label} is the fastest of {len(ranked)}: {time_with_unit(section, fastest)}"
        )
    return pair_sentence(section, fastest, others[0])


def pair_sentence(section: Section, fastest: Group, other: Group) -> str:
    comparison = compare_speed(section, other, fastest)
    both = f"{time_of(section, fastest)} against {time_with_unit(section, other)}"
    if comparison is None:
        return f"{fastest.label} and {other.label} have too few steps for a comparison: {both}"
    if comparison.equal_work:
        return f"{fastest.label} and {other.label} do the same work per step: {both}"
    if comparison.answer == "equal":
        band = f"{EQUAL_WITHIN_PERCENT:g} %"
        return f"{fastest.label} and {other.label} are equally fast within {band}: {both}"
    if comparison.answer == "cannot_tell":
        needed = comparison.runs_to_tell()
        cure = f"about {needed} runs" if needed else "more runs"
        return (
            f"Cannot tell whether {fastest.label} is faster than {other.label}: {both}; {cure} "
            "of each would show it"
        )
    return f"{fastest.label} is {speed(comparison.ratio.value)} than {other.label}: {both}"


def by_speed(section: Section) -> list[Group]:
    """Groups with step times, the fastest first."""
    known = [
        (ms * time_scale(group.runs[0], section), place, group)
        for place, group in enumerate(section.groups)
        if (ms := typical_ms(group)) is not None
    ]
    return [group for *_, group in sorted(known)]


def time_with_unit(section: Section, group: Group) -> str:
    return f"{time_of(section, group)} {'ns per token' if section.per_token else 'ms per step'}"


def time_of(section: Section, group: Group) -> str:
    ms = typical_ms(group)
    assert ms is not None, "only for groups with step times"
    scale = time_scale(group.runs[0], section)
    return milliseconds(ms * 1e6 * scale if section.per_token else ms)


def findings(section: Section, loss: float | None) -> list[str]:
    """The sentences below the headline."""
    lines = [differing_keys(section)] if len(section.groups) > 1 else []
    lines += certainty(section)
    lines += [line for line in (best_losses(section), times_to_loss(section, loss)) if line]
    return lines + waits_of_ranks(section) + gpu_findings(section)


def differing_keys(section: Section) -> str:
    if len(section.differs) == 1:
        return f"The configurations differ only in {section.differs[0]}."
    return f"The configurations differ in {list_names(section.differs, MOST_KEYS)}."


def list_names(names: list[str], most: int, separator: str = ", ") -> str:
    """The first `most` names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def certainty(section: Section) -> list[str]:
    """Sentences with the interval of each ratio, and the runs or steps that it comes from."""
    ranked = by_speed(section)
    if not ranked:
        return []
    fastest, *others = ranked
    if len(others) > MOST_GROUPS:
        return ranking_sentences(section, fastest, others)
    lines = []
    for other in others:
        comparison = compare_speed(section, other, fastest)
        if comparison is not None:
            begin = "" if len(others) == 1 else f"{pair_sentence(section, fastest, other)}; "
            if comparison.by_chance:
                lines.append(f"{begin}{BY_CHANCE}.")
                continue
            lines.append(
                f"{begin}{interval(comparison)}, {interval_basis(comparison, fastest, other)}."
            )
    return lines


def interval(comparison: Speed) -> str:
    low, high = 1 / comparison.ratio.high, 1 / comparison.ratio.low
    if f"{low:.3f}" == f"{high:.3f}":
        return f"95 % interval within 0.001 of {low:.3f} times as fast"
    return f"95 % interval {low:.3f} to {high:.3f} times as fast"


def interval_basis(comparison: Speed, fastest: Group, other: Group) -> str:
    """Says whether an interval is over runs or over the steps of one run each."""
    if comparison.over_runs:
        return (
            f"over {len(fastest.runs)} against {len(other.runs)} runs; "
            f"equal ones differ by about {comparison.noise * 100:.1f} %"
        )
    return "over the steps of one run each, so it is valid only for these runs"


def ranking_sentences(section: Section, fastest: Group, others: list[Group]) -> list[str]:
    """Sentences on the groups that are as fast as the fastest, come next, and come last."""
    compared = [(other, compare_speed(section, other, fastest)) for other in others]
    known = [(other, ratio) for other, ratio in compared if ratio is not None]
    equal = [other.label for other, ratio in known if ratio.answer == "equal"]
    unknown = [other.label for other, ratio in known if ratio.answer == "cannot_tell"]
    slower = [(other, ratio) for other, ratio in known if ratio.answer in ("faster", "slower")]
    lines = []
    if equal:
        band = f"{EQUAL_WITHIN_PERCENT:g} %"
        lines.append(f"Equally fast within {band}: {list_names(equal, MOST_GROUPS, '; ')}.")
    if unknown:
        lines.append(
            f"Whether these are slower is not clear: {list_names(unknown, MOST_GROUPS, '; ')}."
        )
    if slower:
        (following, least), (last, most) = slower[0], slower[-1]
        time, basis = time_with_unit(section, following), interval_basis(least, fastest, following)
        lines.append(f"Next is {following.label} ({time}); {interval(least)}, {basis}.")
        lines.append(
            f"{last.label} is the slowest ({time_with_unit(section, last)}); {interval(most)}."
        )
    return lines


def best_losses(section: Section) -> str | None:
    """A sentence with each group's best losses, and whether the ranges of their seeds overlap."""
    ranges = [(group, losses) for group in section.groups if (losses := losses_of(group))]
    if not ranges:
        return None
    ranges.sort(key=lambda entry: float(np.mean(entry[1])))
    shown = [f"{group.label} {span(losses)}" for group, losses in ranges]
    begin = f"Best validation loss: {list_names(shown, MOST_GROUPS)}"
    begin += " above" if len(ranges) > MOST_GROUPS else ""
    if len(ranges) == 1:
        return begin + "."
    (first, lowest), (_, second) = ranges[:2]
    if min(len(losses) for _, losses in ranges) == 1:
        return f"{begin}; with one seed per configuration this may be chance."
    if max(lowest) < min(second):
        return f"{begin}; every seed of {first.label} is below all seeds of the others."
    return f"{begin}; the seeds' ranges overlap."


def times_to_loss(section: Section, loss: float | None) -> str | None:
    if loss is None or len(section.groups) > MOST_GROUPS:
        return None
    seconds = {group.label: seconds_to_loss(group, loss) for group in section.groups}
    parts = [f"{of} never" if s is None else f"{of} {s:.1f} s" for of, s in seconds.items()]
    return f"{section.time_axis.capitalize()} to a validation loss of {loss:g}: {', '.join(parts)}."


def waits_of_ranks(section: Section) -> list[str]:
    """A sentence with the waits between ranks, for groups whose runs logged them."""
    parts = []
    for group in section.groups:
        known = [waits for run in group.runs if (waits := rank_waits(run))]
        if not known:
            continue
        wait_ms = float(np.mean([waits.wait_ms for waits in known]))
        slowest = {waits.slowest_words for waits in known}
        who = f" (slowest: rank {slowest.pop()})" if len(slowest) == 1 else ""
        parts.append(f"{group.label} {milliseconds(wait_ms)}{who}")
    if not parts or len(parts) > MOST_GROUPS:
        return []
    return [f"Wait for the last rank, ms per step: {', '.join(parts)}."]


def gpu_findings(section: Section) -> list[str]:
    energy = {g.label: energy_per_token(g) for g in section.groups}
    known = {label: value for label, value in energy.items() if value is not None}
    if not known or len(section.groups) > MOST_GROUPS:
        return []
    parts = [f"{label} {number(value * 1e6)}" for label, value in known.items()]
    return [f"Energy, µJ per token: {', '.join(parts)}."]


def span(values: list[float]) -> str:
    low, high = f"{min(values):.4f}", f"{max(values):.4f}"
    return low if low == high else f"{low} to {high}"
