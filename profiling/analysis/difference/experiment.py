"""What an A/B experiment found: recorded step times of many processes in, verdicts out.

Called by profiling.verbs.ab, and by benchmarks.aa_trials on recorded experiments. `record` is
what results.json of an experiment holds; docs/report-schema.md describes it.
"""

import statistics
from typing import Any

from profiling.analysis.difference.comparability import config_differences, work_reasons
from profiling.analysis.difference.statistics import (
    noise_of_processes,
    ratio_over_processes,
    spread,
    verdict,
)

FEWEST_PROCESSES = 2
DISTURBED = 0.2  # of the median: a process that is further off did not run alone


def analyse(record: dict[str, Any]) -> dict[str, Any]:
    """Each value's step time and each comparison with the first value.

    Where the values make iterations of different size (batch_size=32,64) the times are those of a
    token. Raises ValueError when a value has fewer than two processes.
    """
    labels = record["factor"]["labels"]
    unit, times = process_times(record)
    for label in labels:
        if len(times[label]) < FEWEST_PROCESSES:
            raise ValueError(
                f"{label}: {len(times[label])} finished processes, an interval needs at least "
                f"{FEWEST_PROCESSES}; the same command with --out goes on"
            )
    return {
        "unit": unit,
        "values": [value_row(record, label, times[label]) for label in labels],
        "comparisons": [against(labels[0], label, times) for label in labels[1:]],
        "warnings": [line for label in labels for line in disturbed(label, times[label], unit)],
    }


def process_times(record: dict[str, Any]) -> tuple[str, dict[str, list[float]]]:
    """(unit, label -> the median step time of each of its processes)."""
    labels = record["factor"]["labels"]
    per_token = len({run["tokens_per_iteration"] for run in record["runs"]}) > 1
    times: dict[str, list[float]] = {label: [] for label in labels}
    for run in record["runs"]:
        ms = statistics.median(run["step_ms"])
        times[run["label"]].append(ms * 1e6 / run["tokens_per_iteration"] if per_token else ms)
    return "ns a token" if per_token else "ms a step", times


def disturbed(label: str, times: list[float], unit: str) -> list[str]:
    """A line for each process that is far from the others of its value."""
    middle = statistics.median(times)
    return [
        f"a process of {label} took {time:.3f} {unit}, the middle one {middle:.3f}: something else "
        "ran beside it, or it found another clock; the interval is wide for it"
        for time in times
        if len(times) > 2 and abs(time / middle - 1) > DISTURBED
    ]


def value_row(record: dict[str, Any], label: str, times: list[float]) -> dict[str, Any]:
    """Median and spread over processes and within one; `times` in the result's unit."""
    within = [
        spread(run["step_ms"]) / statistics.median(run["step_ms"])
        for run in record["runs"]
        if run["label"] == label
    ]
    return {
        "label": label,
        "processes": times,
        "median": statistics.median(times),
        "spread": spread(times),
        "spread_within_percent": statistics.median(within) * 100,
    }


def against(first: str, label: str, times: dict[str, list[float]]) -> dict[str, Any]:
    """The ratio of `label` to the first value, and whether it is more than the noise.

    noise_percent is what groups of equal processes differ by, measured on the repeats of both. The
    interval has to clear it, not just 1: so an A/A experiment calls a difference in about one case
    of a hundred, not in one of twenty.
    """
    ratio = ratio_over_processes(times[first], times[label])
    noise = noise_of_processes(times[first], times[label])
    return {
        "baseline": first,
        "candidate": label,
        "ratio": ratio.value,
        "ci95": [ratio.low, ratio.high],
        "noise_percent": noise * 100,
        "verdict": verdict(ratio, noise),
    }


def comparison_of(
    record: dict[str, Any], result: dict[str, Any], number: int, captured: dict[str, Any] | None
) -> dict[str, Any]:
    """Comparison `number` of the result in the form of `compare`.

    Its step times are the experiment's; buckets, families and phases are those of the two captures,
    which are slower than unprofiled steps, and absent without captures.
    """
    found = result["comparisons"][number]
    rows = {row["label"]: row for row in result["values"]}
    base = captured or bare(record, found)
    step = {
        "ratio": found["ratio"],
        "ci95": found["ci95"],
        "noise_percent": found["noise_percent"],
        "unit": result["unit"],
    }
    for side in ("baseline", "candidate"):
        row = rows[found[side]]
        step |= {side: row["median"], f"{side}_values": row["processes"]}
        step[f"{side}_spread"] = row["spread"]
    named = {side: base[side] | {"name": found[side]} for side in ("baseline", "candidate")}
    return (
        base
        | named
        | {
            "captured_step_ms": captured and captured["step_ms"],
            "free_step_ms": None,
            "step_ms": step,
            "verdict": found["verdict"],
        }
    )


def bare(record: dict[str, Any], pair: dict[str, Any]) -> dict[str, Any]:
    """A comparison without captures, of the two configurations alone."""
    sides = [{"run": {"config": record["configs"][pair[s]]}} for s in ("baseline", "candidate")]
    differences = config_differences(*sides)
    reasons = work_reasons(differences)
    side = {"file": "unprofiled processes", "attention_backend": None, "bottleneck": None}
    side["device"] = next(iter(record["in_force"].values())).get("device")
    return {
        "schema_version": 1,
        "baseline": side,
        "candidate": side,
        "buckets": None,
        "families": None,
        "ranges": None,
        "kernels": {"added": [], "removed": []},
        "differs": list(differences or {}),
        "differences": differences,
        "comparability": {
            "comparable": not reasons,
            "reasons": reasons,
            "forced": bool(reasons),  # whoever makes it the factor wants it compared
            "notes": ["no captures, so nothing explains the difference"],
        },
    }
