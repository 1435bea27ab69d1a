"""Put a comparison into one sentence. Called by comparison and experiment.

flash is 1.42x faster (13.40 -> 9.43 ms per step): softmax 2.10 -> 0 ms, the rest within noise
"""

from dataclasses import dataclass

import msgspec

from profiling.analysis.difference.answer import (
    MOSTLY,
    PROFILER_SHIFT,
    WITHOUT_A_PROFILER,
    is_host,
)
from profiling.analysis.difference.comparability import timed_keys
from profiling.analysis.difference.compared import TRAINING
from profiling.analysis.difference.comparison_records import (
    MS_PER_STEP,
    BucketChange,
    Comparison,
    StepComparison,
)
from profiling.shared.causes import PART
from profiling.shared.units import milliseconds

MOST_PARTS = 4
MOST_KEYS = 3  # keys that are named
LEAST_SHARE = 0.01  # of the step: a smaller change of a part is not worth a word
TIMES_FROM = 1.1  # from here up "1.42x faster", below "3.1 % faster"
BARE = ("copy", "other")  # families whose name alone does not say that they are kernels
REMAINDERS = ("unexplained", "capture_overhead")  # buckets that are no part of the step


def sentence(comparison: Comparison) -> str:
    """The answer in one sentence, with the parts of the step that made the difference."""
    if comparison.verdict == "not_comparable":
        return f"{unlike_words(comparison)} ({both_times(comparison)})"
    said = f"{claim_words(comparison)} ({basis_words(comparison)}){reason_words(comparison)}"
    return f"{unlike_words(comparison)}; {said}" if is_unlike(comparison) else said


def headline(comparison: Comparison) -> str:
    """The claim of the sentence with its interval, or why the sides do not compare."""
    if comparison.verdict == "not_comparable" or is_unlike(comparison):
        return begun(unlike_words(comparison))
    claim, ratios = claim_words(comparison), comparison.step_ms.ci95
    if comparison.verdict == "cannot_tell":
        return begun(claim)
    if not ratios or comparison.size_unknown or comparison.ratio_bound:
        return claim
    low, high = ratios
    if comparison.verdict == "faster":
        return f"{claim} (95 %: {1 / high:.3f} to {1 / low:.3f} times as fast)"
    slower = comparison.verdict == "slower"
    return claim + f" (95 %: {low:.3f} to {high:.3f} times as long)" * slower


def under_headline(comparison: Comparison) -> str:
    """The rest of the sentence: the step times, the work and the parts that made the difference."""
    if comparison.verdict == "not_comparable":
        return both_times(comparison)
    why = reason_words(comparison)
    if is_unlike(comparison):
        return f"{claim_words(comparison)} ({basis_words(comparison)}){why}"
    return f"{judged_times(comparison)}{why}{work_words(comparison)}"


def begun(words: str) -> str:
    """The words as the beginning of a sentence."""
    return words[:1].upper() + words[1:]


def is_unlike(comparison: Comparison) -> bool:
    """Whether the two sides do not compare; in an experiment they differ on purpose."""
    of_experiment = comparison.step_ms.experiment_unit is not None
    return bool(comparison.comparability.reasons) and not of_experiment


def unlike_words(comparison: Comparison) -> str:
    return f"not comparable: {', '.join(comparison.comparability.reasons)}"


def times_words(comparison: Comparison) -> str:
    step = comparison.step_ms
    return f"{milliseconds(step.baseline)} -> {milliseconds(step.candidate)} {step.unit}"


def both_times(comparison: Comparison) -> str:
    names = f"{comparison.baseline.name} -> {comparison.candidate.name}"
    return f"{names}: {times_words(comparison)}"


def claim_words(comparison: Comparison) -> str:
    """The answer in spite of what makes the sides differ."""
    one, other, step = comparison.baseline.name, comparison.candidate.name, comparison.step_ms
    if comparison.verdict == "equal" and step.ci95:
        band, (low, high) = comparison.equal_within_percent, step.ci95
        return f"{other} and {one} are equal within {band:g} %: {low:.3f} to {high:.3f}"
    if comparison.verdict == "cannot_tell":
        word = "faster" if step.ratio < 1 else "slower"
        return f"cannot tell whether {other} is {word} than {one}"
    if comparison.size_unknown:
        return f"{other} is {comparison.verdict} than {one}"
    if comparison.ratio_bound:
        return f"{other} is at least {speed(comparison.ratio_bound)} than {one}"
    return f"{other} is {speed(step.ratio)} than {one}"


def basis_words(comparison: Comparison) -> str:
    """The step times of both, and whether they did the same work."""
    return judged_times(comparison) + ("" if is_unlike(comparison) else work_words(comparison))


def judged_times(comparison: Comparison) -> str:
    captured = comparison.verdict not in ("equal", "cannot_tell") and (
        comparison.size_unknown or comparison.ratio_bound
    )
    return f"{'captured ' if captured else ''}{times_words(comparison)}"


def reason_words(comparison: Comparison) -> str:
    """The end of the sentence: why the claim is so, or why nothing can be told."""
    if comparison.verdict == "equal" and comparison.step_ms.ci95:
        return ""
    if comparison.verdict == "cannot_tell":
        return f": {why_not(comparison)}"
    if unknown := comparison.size_unknown:
        clauses = [
            f", but by how much cannot be told: {unknown}",
            kernel_words(comparison),
            WITHOUT_A_PROFILER,
        ]
        return "; ".join(filter(None, clauses))
    if not (parts := explanation(comparison)):
        return ""
    against = "less" if comparison.verdict == "slower" else "more"
    although = against in (kernels := kernel_words(comparison)).split()
    return f": {parts}" + (f", although {kernels}" if although else "")


def work_words(comparison: Comparison) -> str:
    """A clause on whether both did the same work in a step.

    Empty where a key differs that changes a step. Of two commands it names what is seen to differ,
    and never says that the work is the same.
    """
    if not isinstance(seen := comparison.seen, msgspec.UnsetType):
        what = "not the same work" if seen.work else "seen from outside"
        differ = "; ".join([*seen.work, *seen.other])
        return f"; {what}: {differ}" if differ else "; nothing seen from outside differs"
    differences = comparison.differences
    if differences is None:
        return "; could not check whether both did the same work"
    if timed_keys(differences):
        return ""
    names = list(differences)
    only = (
        (f", where only {', '.join(names[:MOST_KEYS])} differ{'s' * (len(names) == 1)}")
        if names
        else ""
    )
    return "; equal work according to the keys" + (only if len(names) <= MOST_KEYS else "")


def why_not(comparison: Comparison) -> str:
    """The reason for no answer and what would give one; few steps are described all the same."""
    assert (unknown := comparison.cannot_tell) is not None
    clauses = [unknown.why, unknown.cure]
    if unknown.reason == "profiler":
        clauses.insert(1, kernel_words(comparison))
    if unknown.reason == "few_steps":
        clauses.append(explanation(comparison))
    return "; ".join(filter(None, clauses))


def speed(ratio: float) -> str:
    """The ratio candidate / baseline in words: 1.42x faster, 3.1 % slower."""
    word = "faster" if ratio < 1 else "slower"
    factor = 1 / ratio if ratio < 1 else ratio
    if factor >= TIMES_FROM:
        return f"{factor:.{2 if factor < 10 else 1}f}x {word}"
    return f"{(factor - 1) * 100:.1f} % {word}"


@dataclass(frozen=True)
class PartChange:
    """A part of the step on both sides; a change of at most `noise_ms` does not count."""

    name: str
    baseline_ms: float
    candidate_ms: float
    noise_ms: float

    @property
    def delta_ms(self) -> float:
        return self.candidate_ms - self.baseline_ms

    @property
    def changed(self) -> bool:
        return abs(self.delta_ms) > self.noise_ms


def explanation(comparison: Comparison) -> str:
    """The parts of the step that changed, the largest first, and the rest; empty if no capture."""
    parts = parts_of(comparison)
    if not parts or comparison.step_ms.unit != MS_PER_STEP:
        return ""  # steps of different size have no parts to set against each other
    named = telling_parts(parts, step_noise_ms(comparison))
    rest = [part for part in parts if part not in named]
    words = [
        f"{part.name} {milliseconds(part.baseline_ms)} -> {milliseconds(part.candidate_ms)} ms"
        for part in named
    ]
    left_ms = sum(part.delta_ms for part in rest)
    if any(part.changed for part in rest) or abs(left_ms) > step_noise_ms(comparison):
        words.append(f"everything else {left_ms:+.2f} ms together")
    else:
        words.append("everything else within noise" if named else "no part stands out")
    return ", ".join(words) + (" (captured steps)" if explains_other_steps(comparison) else "")


def telling_parts(parts: list[PartChange], noise_ms: float) -> list[PartChange]:
    """The parts that changed, and further ones, the largest first, while most of the change is
    left over.

    `noise_ms` is that of the step.
    """
    named = [part for part in parts if part.changed][:MOST_PARTS]
    enough_ms = max(noise_ms, MOSTLY * abs(sum(part.delta_ms for part in parts)))
    for part in parts:
        left_ms = sum(other.delta_ms for other in parts if other not in named)
        if part not in named and len(named) < MOST_PARTS and abs(left_ms) > enough_ms:
            named.append(part)
    return named


def explains_other_steps(comparison: Comparison) -> bool:
    """Whether the parts are those of captured steps, and the steps that were judged are not."""
    return bool(comparison.captured_step_ms) or comparison.baseline.kind == TRAINING


def kernel_words(comparison: Comparison) -> str:
    """A clause that kernels take less or more time; empty where that is next to nothing."""
    compute_ms = sum(row.delta_ms for row in comparison.buckets or [] if row.bucket == "compute")
    if abs(compute_ms) <= LEAST_SHARE * captured_step(comparison).baseline:
        return ""
    word = "less" if compute_ms < 0 else "more"
    return f"its kernels take {milliseconds(abs(compute_ms))} ms {word}"


def parts_of(comparison: Comparison) -> list[PartChange]:
    """Kernel families and idle time, else all parts that are known; the largest change first.

    Kernels take the same time in every step, whatever the host does, so their noise is smaller.
    """
    noise_ms = step_noise_ms(comparison)
    steady_ms = LEAST_SHARE * captured_step(comparison).baseline
    parts = []
    for family in comparison.families or []:
        name = f"{family.family} kernels" if family.family in BARE else family.family
        parts.append(PartChange(name, family.baseline_ms, family.candidate_ms, steady_ms))
    for row in explaining_buckets(comparison):
        whole = not comparison.families and row.bucket not in REMAINDERS
        if whole or row.bucket.startswith("idle"):
            name = part_name(row.bucket)
            parts.append(PartChange(name, row.baseline_ms, row.candidate_ms, noise_ms))
    return sorted(parts, key=lambda part: -abs(part.delta_ms))


def explaining_buckets(comparison: Comparison) -> list[BucketChange]:
    """The buckets that explain the steps that were judged.

    Where these steps ran without a profiler and their ratio differs from that of the captures, the
    host's time in the captures only explains the profiler, and its buckets are left out.
    """
    buckets = comparison.buckets or []
    parts = [row for row in buckets if row.bucket not in REMAINDERS]
    one_ms, other_ms = sum(p.baseline_ms for p in parts), sum(p.candidate_ms for p in parts)
    if (
        not explains_other_steps(comparison)
        or abs(other_ms - comparison.step_ms.ratio * one_ms) <= PROFILER_SHIFT * other_ms
    ):
        return buckets
    return [row for row in buckets if not is_host(row.bucket)]


def part_name(bucket: str) -> str:
    kind, _, name = bucket.partition("_")
    if kind == "host":
        return f"{name} on the host"
    part = PART.get(name or kind)
    return part.title if part else f"idle: {name}"


def step_noise_ms(comparison: Comparison) -> float:
    """Half the width of the captured step's interval, else its spread; at least 1 % of the step."""
    step = captured_step(comparison)
    least_ms = LEAST_SHARE * step.baseline
    if step.ci95 is None:
        return max((step.baseline_spread + step.candidate_spread) / 2, least_ms)
    low, high = step.ci95
    return max(step.baseline * (high - low) / 2, least_ms)


def captured_step(comparison: Comparison) -> StepComparison:
    """Step times of the captures from which the parts come; `ab` has its own besides."""
    return comparison.captured_step_ms or comparison.step_ms
