"""Sentences about the runs in plain words. Called by profiling.report.dashboard.document."""

import numpy as np

from cli.keys import spell
from profiling.analysis.difference.sentence import TIMES_FROM, speed
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
    tokens_per_s,
    typical_ms,
)
from profiling.analysis.runs.run_waits import rank_waits
from profiling.analysis.statistics import EQUAL_WITHIN_PERCENT
from profiling.shared.units import milliseconds, number

MOST_KEYS = 6
MOST_GROUPS = 5  # groups that get a sentence each; the tables have all
MOST_NAMED = 3  # groups that are named in one sentence
BAND = f"{EQUAL_WITHIN_PERCENT:g} %"
ONE_RUN = "From the steps of one run each. Run each again with other seeds to know more."
BY_CHANCE = "From one run of each, and on a CPU the speed of a program varies from start to start."


def headline(section: Section) -> str:
    """A sentence that says which configuration is fastest, by how much, and how certain that is."""
    ranked = by_speed(section)
    if not ranked:
        return "No step times yet: train longer or log more often (log_interval)"
    fastest, *others = ranked
    if len(section.groups) == 1:
        runs = len(section.runs)
        count = f"{runs} seeds" if runs > 1 else "one run"
        return (
            f"{fastest.label}: {speed_words(section, fastest)}, {count}, no other "
            "configuration to compare with"
        )
    if not others:
        time = speed_words(section, fastest)
        return f"{fastest.label}: {time}; the others have no step times yet"
    if len(others) == 1:
        return pair_sentence(section, fastest, others[0])
    if all(equal_work(fastest, other) for other in others):
        both = speed_words(section, fastest, "to", others[-1])
        return f"All {len(ranked)} do the same work per step: {both}"
    return ranking_sentence(section, fastest, others)


def pair_sentence(section: Section, fastest: Group, other: Group) -> str:
    """The answer for two configurations, with their speeds and the 95 % interval."""
    comparison = compare_speed(section, other, fastest)
    both = speed_words(section, fastest, "against", other)
    if comparison is None:
        return f"{fastest.label} and {other.label} have too few steps for a comparison: {both}"
    if comparison.equal_work:
        return f"{fastest.label} and {other.label} do the same work per step: {both}"
    if comparison.answer == "equal":
        answer = f"{fastest.label} and {other.label} are equally fast within {BAND}"
        return f"{answer}: {both}{interval(comparison)}"
    if comparison.answer == "cannot_tell":
        needed = comparison.runs_to_tell()
        cure = f"about {needed} runs" if needed else "more runs"
        return (
            f"Cannot tell whether {fastest.label} is faster than {other.label}: {both}"
            f"{interval(comparison)}; {cure} of each would show it"
        )
    faster = speed(comparison.ratio.value)
    return f"{fastest.label} is {faster} than {other.label}: {both}{interval(comparison)}"


def interval(comparison: Speed) -> str:
    """The 95 % interval of how many times as fast the candidate is; empty where it is not known."""
    if comparison.by_chance:
        return ""
    low, high = 1 / comparison.ratio.high, 1 / comparison.ratio.low
    return f" (95 %: {low:.3f} to {high:.3f} times as fast)"


def ranking_sentence(section: Section, fastest: Group, others: list[Group]) -> str:
    """The answer for three configurations and more: which may be fastest, how slow the rest is.

    The `others` come in the order of their speed.
    """
    answers = {other.label: compare_speed(section, other, fastest) for other in others}
    slower = [o for o in others if (found := answers[o.label]) and found.answer == "faster"]
    leading = [fastest, *(other for other in others if other not in slower)]
    if len(leading) == 1:
        return f"{pair_sentence(section, fastest, slower[0])}{rest_words(answers, slower[1:])}"
    both = speed_words(section, fastest, "to", leading[-1])
    rest = rest_words(answers, slower)
    equal = [found for o in leading[1:] if (found := answers[o.label]) and found.answer == "equal"]
    names = leading_names(section, leading, slower)
    if len(equal) == len(leading) - 1:
        return f"Equally fast within {BAND}: {names}, at {both}{rest}"
    return f"Cannot tell which of {names} is fastest: {both}{rest}"


def leading_names(section: Section, leading: list[Group], slower: list[Group]) -> str:
    """Names of the leading configurations: all, those with a value that no slower one has, or one
    by one where they are few."""
    if not slower:
        return f"all {len(leading)}"
    for key in section.differs:
        values = {spell(group.settings.get(key)) for group in leading}
        if len(values) == 1 and not values & {spell(g.settings.get(key)) for g in slower}:
            return f"the {len(leading)} with {key}={values.pop()}"
    if len(leading) <= MOST_NAMED:
        return "; ".join(group.label for group in leading)
    return f"{len(leading)} of {len(leading) + len(slower)}"


def rest_words(answers: dict[str, Speed | None], slower: list[Group]) -> str:
    """A clause that says how much slower these configurations are; empty for none."""
    factors = [1 / found.ratio.value for group in slower if (found := answers[group.label])]
    if not factors:
        return ""
    words = list(dict.fromkeys(map(factor_words, (min(factors), max(factors)))))
    who = f"{slower[0].label} is" if len(slower) == 1 else f"the other {len(slower)} are"
    return f"; {who} {' to '.join(words)} slower"


def factor_words(factor: float) -> str:
    """A factor of 1 and more: 25x, 1.22x, 3.1 %."""
    if factor < TIMES_FROM:
        return f"{(factor - 1) * 100:.1f} %"
    return f"{factor:.2f}x" if factor < 10 else f"{factor:,.0f}x"


def by_speed(section: Section) -> list[Group]:
    """Groups with step times, the fastest first."""
    known = [
        (ms * time_scale(group.runs[0], section), place, group)
        for place, group in enumerate(section.groups)
        if (ms := typical_ms(group)) is not None
    ]
    return [group for *_, group in sorted(known)]


def speed_words(section: Section, group: Group, word: str = "", other: Group | None = None) -> str:
    """The speeds of one or two groups with their unit, as the table has them."""
    figures = [figure_of(section, group)]
    if other and not (word == "to" and figures == [figure_of(section, other)]):
        figures += [word, figure_of(section, other)]
    return f"{' '.join(figures)} {'tokens/s' if section.per_token else 'ms per step'}"


def figure_of(section: Section, group: Group) -> str:
    return number(tokens_per_s(group)) if section.per_token else milliseconds(typical_ms(group))


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
    """Sentences on the groups that the headline does not compare, and on what intervals are of."""
    ranked = by_speed(section)
    if not ranked:
        return []
    fastest, *others = ranked
    answers = [(other, compare_speed(section, other, fastest)) for other in others]
    known = [(other, found) for other, found in answers if found]
    if len(others) > MOST_GROUPS:
        lines = ranking_lines(section, fastest, known)
    else:
        pairs = [pair_sentence(section, fastest, other) for other, _ in known]
        lines = [f"{pair}." for pair in pairs if not headline(section).startswith(pair)]
    return lines + bases([found for _, found in known], fastest, [other for other, _ in known])


def bases(answers: list[Speed], fastest: Group, others: list[Group]) -> list[str]:
    """Sentences on whether the intervals are over runs or over the steps of one run each."""
    lines = []
    if noises := [found.noise for found in answers if found.over_runs]:
        counts = sorted(len(group.runs) for group in [fastest, *others])
        runs = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
        lines.append(
            f"From {runs} runs of each; two runs of the same configuration differ by about "
            f"{max(noises) * 100:.1f} %."
        )
    if any(found.by_chance for found in answers):
        lines.append(BY_CHANCE)
    elif len(noises) < len(answers):
        lines.append(ONE_RUN)
    return lines


def ranking_lines(
    section: Section, fastest: Group, answers: list[tuple[Group, Speed]]
) -> list[str]:
    """Sentences on the groups that are as fast as the fastest, come next, and come last."""
    equal = [other.label for other, found in answers if found.answer == "equal"]
    unknown = [other.label for other, found in answers if found.answer == "cannot_tell"]
    slower = [other for other, found in answers if found.answer in ("faster", "slower")]
    lines = []
    if equal and unknown:  # else the headline says it
        names = list_names([fastest.label, *equal], MOST_NAMED, "; ")
        lines.append(f"Equally fast within {BAND}: {names}.")
    if unknown:
        names = list_names(unknown, MOST_NAMED, "; ")
        lines.append(f"Whether these are slower than {fastest.label} is not clear: {names}.")
    ends = dict.fromkeys([slower[0].label, slower[-1].label]) if slower else {}
    return lines + [
        f"{pair_sentence(section, fastest, other)}." for other in slower if other.label in ends
    ]


def best_losses(section: Section) -> str | None:
    """A sentence with each group's best losses, and whether the ranges of their seeds overlap."""
    ranges = [(group, losses) for group in section.groups if (losses := losses_of(group))]
    if not ranges:
        return None
    ranges.sort(key=lambda entry: float(np.mean(entry[1])))
    shown = [f"{group.label} {span(losses)}" for group, losses in ranges]
    most = MOST_GROUPS if len(ranges) <= MOST_GROUPS else MOST_NAMED
    begin = f"Best validation loss: {list_names(shown, most, '; ')}"
    begin += " above" if len(ranges) > most else ""
    if len(ranges) == 1:
        return begin + "."
    (first, lowest), (_, second) = ranges[:2]
    if min(len(lowest), len(second)) == 1:
        single = [group.label for group, losses in ranges[:2] if len(losses) == 1]
        of = "each" if len(single) > 1 else f"of {single[0]}"
        return f"{begin}; with one seed {of} this may be chance."
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
