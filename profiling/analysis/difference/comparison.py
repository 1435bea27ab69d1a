"""What changed between two captures or runs: two reports in, one comparison out.

Called by profiling.verbs.compare (`python -m profiling compare`) and by `ab`, which has
better step times and wants the explanation. docs/report-schema.md describes the dict.
"""

from typing import Any

from profiling.analysis.difference.comparability import (
    config_differences,
    device,
    factor,
    kind,
    notes_about,
    reasons_against,
)
from profiling.analysis.difference.statistics import Ratio, ratio_over_steps, spread, verdict

SCHEMA_VERSION = 1
# Two starts of one program differ too, by up to about this; the steps of two captures cannot tell.
BETWEEN_PROCESSES = 0.01
FEW_STEPS = 10
LAUNCH_SHARE = 0.1  # of the step, idle behind launches: then the profiler decides how long it is
PROFILER_SHIFT = 0.05  # of the ratio, between captured and uncaptured steps, that is worth a note
ROUNDING_MS = 1e-10


def compare(baseline: dict, candidate: dict, force: bool = False) -> dict[str, Any]:
    """The candidate against the baseline, both as `summarize` makes them.

    With `force` there is a verdict in spite of reasons against it, which stay in the dict.
    """
    differences = config_differences(baseline, candidate)
    reasons = reasons_against(baseline, candidate, differences)
    ratio = ratio_over_steps(step_values(baseline), step_values(candidate))
    if ratio is None or (reasons and not force):
        found = "not_comparable"
    else:
        found = verdict(ratio, BETWEEN_PROCESSES)
    names = names_of(baseline, candidate, differences)
    return {
        "schema_version": SCHEMA_VERSION,
        "baseline": side(baseline, names[0]),
        "candidate": side(candidate, names[1]),
        "step_ms": step_times(baseline, candidate, ratio),
        "free_step_ms": free_step_times(baseline, candidate),
        "verdict": found,
        "buckets": buckets(baseline, candidate),
        "families": families(baseline, candidate),
        "ranges": ranges(baseline, candidate),
        "kernels": {
            "added": kernels_only_in(candidate, baseline),
            "removed": kernels_only_in(baseline, candidate),
        },
        "differs": list(differences or {}),
        "differences": differences,
        "comparability": {
            "comparable": not reasons,
            "reasons": reasons,
            "forced": bool(reasons) and force,
            "notes": notes_about(baseline, candidate) + notes_on_steps(baseline, candidate, ratio),
        },
    }


def step_values(report: dict) -> list[float]:
    return report["window"]["step_ms"]["values"]


def names_of(baseline: dict, candidate: dict, differences: dict | None) -> tuple[str, str]:
    """What to call the two: by the value of the one key that differs, else by their files."""
    if key := factor(differences):
        values = differences[key]
        return spelled(key, values["baseline"]), spelled(key, values["candidate"])
    names = [stem(report["capture"]["file"]) for report in (baseline, candidate)]
    return ("the baseline", "the candidate") if names[0] == names[1] else (names[0], names[1])


def spelled(key: str, value: Any) -> str:
    """flash, for attention; compile=true, as one types it, for all else."""
    if isinstance(value, bool):
        value = str(value).lower()
    return str(value) if key == "attention" else f"{key}={'null' if value is None else value}"


def stem(file: str) -> str:
    """A file's name without its folder and its endings."""
    return file.replace("\\", "/").rstrip("/").split("/")[-1].split(".")[0]


def side(report: dict, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "file": report["capture"]["file"],
        "kind": kind(report),
        "device": device(report),
        "steps": report["window"]["steps"],
        "attention_backend": report.get("attention_backend"),
        "bottleneck": (report.get("bottleneck") or {}).get("verdict"),
    }


def step_times(baseline: dict, candidate: dict, ratio: Ratio | None) -> dict[str, Any]:
    """Medians, their ratio, and what the page draws. ci95 is null for fewer than two steps."""
    one, other = baseline["window"]["step_ms"], candidate["window"]["step_ms"]
    return {
        "baseline": one["median"],
        "candidate": other["median"],
        "ratio": ratio.value if ratio else other["median"] / one["median"],
        "ci95": [ratio.low, ratio.high] if ratio else None,
        "baseline_mean": one["mean"],
        "candidate_mean": other["mean"],
        "baseline_spread": spread(one["values"]),
        "candidate_spread": spread(other["values"]),
        "baseline_values": one["values"],
        "candidate_values": other["values"],
    }


def free_step_times(baseline: dict, candidate: dict) -> dict[str, float] | None:
    """Of the steps around the windows, which no profiler slowed; None unless both sides know."""
    medians = [(r.get("health") or {}).get("free_step_ms") for r in (baseline, candidate)]
    if None in medians:
        return None
    return {"baseline": medians[0], "candidate": medians[1], "ratio": medians[1] / medians[0]}


def paired(baseline: dict[str, float] | None, candidate: dict[str, float] | None) -> list | None:
    """(name, baseline ms, candidate ms) of all names; None where a side was not captured.

    A name that one side lacks took no time there.
    """
    if baseline is None or candidate is None:
        return None
    names = dict.fromkeys([*baseline, *candidate])
    return [(name, baseline.get(name, 0.0), candidate.get(name, 0.0)) for name in names]


def buckets(baseline: dict, candidate: dict) -> list[dict[str, Any]] | None:
    """Exclusive parts of the mean step; their delta_ms add up to the difference of the means.

    Of the GPU's time where both captured it, else of the host's phases. What the parts of a side
    leave of its mean step is a bucket of its own: in a run folder the parts come from a capture,
    the mean from steps without one. None where neither was captured.
    """
    pairs = paired(gpu_parts(baseline), gpu_parts(candidate))
    left_over = "unexplained"
    if pairs is None:
        pairs = paired(host_parts(baseline), host_parts(candidate))
        left_over = "host_other"
    if pairs is None:
        return None
    means = [report["window"]["step_ms"]["mean"] for report in (baseline, candidate)]
    rest = [means[0] - sum(b for _, b, _ in pairs), means[1] - sum(c for _, _, c in pairs)]
    if baseline.get("run_folder") or candidate.get("run_folder"):
        left_over = "capture_overhead"
    if max(map(abs, rest)) > ROUNDING_MS:
        pairs.append((left_over, *rest))
    return [
        {"bucket": name, "baseline_ms": one, "candidate_ms": other, "delta_ms": other - one}
        for name, one, other in pairs
    ]


def gpu_parts(report: dict) -> dict[str, float] | None:
    """compute, communication, copy and idle by cause, in ms a step."""
    breakdown, idle = report.get("breakdown"), report.get("idle")
    if breakdown is None:
        return None
    parts = {name: breakdown[f"{name}_ms"] for name in ("compute", "communication", "copy")}
    if idle is None:
        return parts | {"idle": breakdown["idle_ms"]}
    return parts | {f"idle_{cause}": ms for cause, ms in idle["by_cause"].items()}


def host_parts(report: dict) -> dict[str, float] | None:
    """The host's time in each phase, in ms a step."""
    steps = report["window"]["steps"]
    phases = [row for row in report.get("ranges") or [] if row.get("depth", 0) == 0]
    return {f"host_{row['name']}": row["host_ms"] / steps for row in phases} or None


def families(baseline: dict, candidate: dict) -> list[dict[str, Any]] | None:
    """Kernel families side by side, ms a step, the largest change first."""
    pairs = paired(family_parts(baseline), family_parts(candidate)) or []
    rows = [
        {"family": name, "baseline_ms": one, "candidate_ms": other, "delta_ms": other - one}
        for name, one, other in pairs
    ]
    return sorted(rows, key=lambda row: -abs(row["delta_ms"])) or None


def family_parts(report: dict) -> dict[str, float] | None:
    steps = report["window"]["steps"]
    rows = report.get("families")
    return {row["family"]: row["total_ns"] / steps / 1e6 for row in rows} if rows else None


def ranges(baseline: dict, candidate: dict) -> list[dict[str, Any]] | None:
    """Phases side by side, ms a step on the GPU and on the host; null where a side has none."""
    sides = [{row["name"]: row for row in r.get("ranges") or []} for r in (baseline, candidate)]
    if not all(sides):
        return None
    rows = []
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        row: dict[str, Any] = {"name": name}
        for which in ("gpu_ms", "host_ms"):
            found = [
                per_step(rows_of.get(name), which, report)
                for rows_of, report in zip(sides, (baseline, candidate), strict=True)
            ]
            delta = None if None in found else found[1] - found[0]
            unit = which.removesuffix("_ms")
            row |= {f"baseline_{unit}_ms": found[0], f"candidate_{unit}_ms": found[1]}
            row[f"delta_{unit}_ms"] = delta
        rows.append(row)
    return rows


def per_step(row: dict | None, which: str, report: dict) -> float | None:
    if row is None or row.get(which) is None:
        return None
    return row[which] / report["window"]["steps"]


def kernels_only_in(report: dict, other: dict) -> list[dict[str, Any]]:
    """Kernels that the other lacks, the longest first; count and ms are a step's."""
    there = {row["name"] for row in other.get("kernels") or []}
    steps = report["window"]["steps"]
    rows = [
        {
            "name": row["name"],
            "family": row["family"],
            "count": row["count"] / steps,
            "ms": row["total_ns"] / steps / 1e6,
        }
        for row in report.get("kernels") or []
        if row["name"] not in there
    ]
    return sorted(rows, key=lambda row: -row["ms"])


def launch_bound_ms(report: dict) -> float | None:
    """Idle time of a captured step behind launches, where it is a good part of the step."""
    if report.get("run_folder") or not report.get("idle"):
        return None
    idle_ms = report["idle"]["by_cause"]["launch"]
    return idle_ms if idle_ms > LAUNCH_SHARE * report["window"]["step_ms"]["mean"] else None


def notes_on_steps(baseline: dict, candidate: dict, ratio: Ratio | None) -> list[str]:
    notes = []
    counts = [len(step_values(report)) for report in (baseline, candidate)]
    if min(counts) < FEW_STEPS:
        notes.append(f"steps: {counts[0]} and {counts[1]} are few, the interval is rough")
    free = free_step_times(baseline, candidate)
    if free and ratio and abs(free["ratio"] / ratio.value - 1) > PROFILER_SHIFT:
        notes.append(
            f"profiler: uncaptured steps say {free['ratio']:.3f} ({free['baseline']:.2f} -> "
            f"{free['candidate']:.2f} ms), captured ones {ratio.value:.3f}; believe the uncaptured"
        )
    for which, report in (("baseline", baseline), ("candidate", candidate)):
        if free is None and (ms := launch_bound_ms(report)):
            notes.append(
                f"profiler: the {which} waits {ms:.2f} ms a step for launches, which a profiler "
                "lengthens, and its uncaptured steps are not known; compare run folders, or use ab"
            )
        if reason := report.get("no_capture"):
            notes.append(f"{which}: {reason}")
    return notes
