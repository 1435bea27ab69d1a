"""A capture in, the report's dict out (docs/report-schema.md). Called by the verbs that read one.

Asks each module for its part; computes nothing itself but the window's own figures.
"""

from dataclasses import asdict
from typing import Any

import numpy as np

from profiling.analysis.gpu_time import breakdown, idle
from profiling.analysis.gpu_time.attribution import (
    Owned,
    attribute,
    boundaries,
    coverage,
    range_totals,
)
from profiling.analysis.kernels import counters as gpu_metrics
from profiling.analysis.kernels import sums
from profiling.analysis.kernels.families import FAMILIES, attention_backend, families_of
from profiling.analysis.kernels.roofline import roofline
from profiling.analysis.steps.find import find_window
from profiling.analysis.steps.steps import Window
from profiling.analysis.verdict.diagnosis import SMALL_US, Launches, diagnose
from profiling.analysis.verdict.health import health
from profiling.timeline.trace import COPY, KERNEL, Device, Trace

SCHEMA_VERSION = 1


def summarize(
    trace: Trace,
    manifest: dict[str, Any] | None = None,
    manifest_name: str | None = None,
    *,
    step: str | None = None,
    phases: list[str] | None = None,
    device: int | None = None,
) -> dict[str, Any]:
    """The report about one process and device of a capture: plain dicts of JSON types.

    `step`, `phases`, `device` choose what is otherwise found out (steps.find). Raises
    ValueError for one that the capture does not hold.
    """
    window = find_window(trace, step, phases, device)
    owned = attribute(trace, window)
    bounds_ns = boundaries(window, owned)
    family = families_of(trace.names, used_names(trace))
    activity = device_activity(trace, window, family)
    report = {
        "schema_version": SCHEMA_VERSION,
        "capture": capture_facts(trace, window, manifest_name),
        "run": run_facts(manifest),
        "window": window_facts(window, bounds_ns),
        **gpu_facts(activity, bounds_ns),
        "ranges": range_totals(trace.names, window, owned, int(bounds_ns[-1])),
        "attribution": coverage(owned),
        "idle": idle_facts(trace, window, owned, activity, bounds_ns),
        "family_ms": family_ms(owned, family, len(bounds_ns) - 1),
        **sums_of(trace, window, family, activity, bounds_ns),
    }
    gpu = device_of(trace, window.device)
    report["roofline"] = roofline(
        manifest,
        gpu.name if gpu else None,
        report["attention_backend"],
        report["family_ms"],
        report["window"]["step_ms"]["mean"],
    )
    report["health"] = health(trace, manifest, window, report)
    steps = len(bounds_ns) - 1
    copy_ms = data_copy_ms(trace, window, owned, activity) / steps
    report["bottleneck"] = diagnose(report, launches(trace, owned, gpu, steps), copy_ms)
    return report


def sums_of(
    trace: Trace,
    window: Window,
    family: np.ndarray,
    activity: breakdown.Activity | None,
    bounds_ns: np.ndarray,
) -> dict[str, Any]:
    """The tables of the report, by name."""
    kernels = sums.kernels(trace, family)
    process, device = window.process, window.device
    begin, end = int(bounds_ns[0]), int(bounds_ns[-1])
    busy = activity.busy if activity else None
    return {
        "kernels": kernels,
        "families": sums.by_family(kernels),
        "api": sums.api(trace),
        "memops": sums.memops(trace),
        "allocations": sums.allocations(trace, process, device, begin, end),
        "gpu_metrics": gpu_metrics.means(trace.counters, device, busy, bounds_ns),
        "operators": sums.operators(trace.operators, trace.names, process, begin, end),
        "attention_backend": attention_backend([row["name"] for row in kernels]),
    }


def used_names(trace: Trace) -> np.ndarray:
    """Names of what ran on GPUs."""
    return np.empty(0, np.int32) if trace.operations is None else trace.operations.name


def device_of(trace: Trace, device: int | None) -> Device | None:
    return next((each for each in trace.devices if each.id == device), None)


def capture_facts(trace: Trace, window: Window, manifest_name: str | None) -> dict[str, Any]:
    return {
        "kind": trace.kind,
        "file": trace.file.name,
        "tool_version": trace.tool_version,
        "schema_version": trace.schema_version,
        "devices": [asdict(device) for device in trace.devices],
        "manifest": manifest_name,
        "personal": trace.personal,
        "process": window.process,
        "device": window.device,
    }


def run_facts(manifest: dict[str, Any] | None) -> dict[str, Any] | None:
    if manifest is None:
        return None
    return {key: manifest.get(key) for key in ("config", "environment", "attention", "compile")}


def window_facts(window: Window, bounds_ns: np.ndarray) -> dict[str, Any]:
    step_ms = np.diff(bounds_ns) / 1e6
    return {
        "steps": len(step_ms),
        "wall_ms": int(bounds_ns[-1] - bounds_ns[0]) / 1e6,
        "first_iteration": window.first_iteration,
        "step_name": window.step_name,
        "phases_from": window.phases_from,
        "step_ms": {
            "median": float(np.median(step_ms)),
            "mean": float(step_ms.mean()),
            "min": float(step_ms.min()),
            "max": float(step_ms.max()),
            "p95": float(np.percentile(step_ms, 95)),
            "values": step_ms.tolist(),
        },
    }


def device_activity(trace: Trace, window: Window, family: np.ndarray) -> breakdown.Activity | None:
    operations = trace.operations
    if operations is None:
        return None
    rows = sums.operations_of(operations, window.process, window.device)
    return breakdown.activity_of(operations, rows, family)


def gpu_facts(activity: breakdown.Activity | None, bounds_ns: np.ndarray) -> dict[str, Any]:
    if activity is None:
        return {"gpu": None, "breakdown": None}
    parts = breakdown.split(activity, bounds_ns)
    steps = len(bounds_ns) - 1
    wall, idle_ns = int(bounds_ns[-1] - bounds_ns[0]), int(parts["idle"].sum())
    return {
        "gpu": {
            "busy_ms": (wall - idle_ns) / 1e6,
            "idle_ms": idle_ns / 1e6,
            "busy_percent": 100 * (wall - idle_ns) / wall if wall else 0.0,
        },
        "breakdown": {f"{name}_ms": int(ns.sum()) / 1e6 / steps for name, ns in parts.items()},
    }


def idle_facts(
    trace: Trace,
    window: Window,
    owned: Owned | None,
    activity: breakdown.Activity | None,
    bounds_ns: np.ndarray,
) -> dict[str, Any] | None:
    if owned is None or activity is None:
        return None
    gaps = idle.find_gaps(trace, window, owned, activity.busy, bounds_ns)
    if gaps is None:
        return None
    steps = len(bounds_ns) - 1
    return {
        "by_cause": idle.by_cause(gaps, steps),
        "by_phase": idle.by_phase(trace, window, owned, gaps, steps),
        "gaps": idle.longest(trace, window, owned, gaps, bounds_ns),
    }


def family_ms(owned: Owned | None, family: np.ndarray, steps: int) -> dict[str, float]:
    """Kernel time of each family a step, of the window's steps alone."""
    if owned is None:
        return {}
    kernel = owned.kind == KERNEL
    of = family[owned.name[kernel]]
    total = np.zeros(len(FAMILIES), np.int64)
    np.add.at(total, of, (owned.end_ns - owned.start_ns)[kernel])
    return {FAMILIES[i]: int(total[i]) / 1e6 / steps for i in np.flatnonzero(total).tolist()}


def data_copy_ms(
    trace: Trace, window: Window, owned: Owned | None, activity: breakdown.Activity | None
) -> float:
    """Milliseconds in which copies that the data phase launched ran alone."""
    if owned is None or activity is None:
        return 0.0
    is_data = window.phases_called(trace, idle.DATA_PHASES)
    chosen = (owned.kind == COPY) & (owned.phase >= 0)
    chosen[chosen] = is_data[owned.phase[chosen]]
    start_ns, end_ns = owned.start_ns[chosen], owned.end_ns[chosen]
    return int(breakdown.exclusive_copies(activity, start_ns, end_ns).sum()) / 1e6


def launches(trace: Trace, owned: Owned | None, gpu: Device | None, steps: int) -> Launches:
    """How many there are, how long kernels are, and how much time is in those too small."""
    if owned is None or not (kernel := owned.kind == KERNEL).any():
        return Launches(None, None, None)
    is_launch = np.zeros(int(owned.call.max()) + 2, bool)
    is_launch[owned.call] = True  # the last is that of an unknown call, -1
    per_step = int(is_launch[:-1].sum()) / steps
    duration_ns = (owned.end_ns - owned.start_ns)[kernel]
    small = duration_ns < SMALL_US * 1000
    if gpu is not None and gpu.sm_count:
        blocks = trace.operations.blocks[owned.row[kernel]]
        small |= (blocks >= 0) & (2 * blocks < gpu.sm_count)
    share = float(duration_ns[small].sum() / max(1, duration_ns.sum()))
    return Launches(per_step, float(duration_ns.mean()) / 1e3, share)
