"""What the words of a report's dict mean, in sentences. Called by console, markdown and page."""

from typing import Any

from profiling.report import text

# verdict -> (what holds the step back, why one says so)
VERDICTS = {
    "gpu_compute": ("GPU compute", "the GPU is busy, mostly with matrix products and attention"),
    "gpu_memory": ("GPU memory bandwidth", "the GPU is busy moving bytes, not multiplying"),
    "gpu_latency": ("GPU latency", "the GPU is busy with kernels too small to fill it"),
    "launch": ("kernel launches", "the GPU waits for the CPU to launch its next kernel"),
    "synchronization": ("synchronisation", "the GPU runs dry while the CPU waits for it"),
    "cpu": ("CPU work", "the GPU waits while Python or the CPU does something else"),
    "data": ("data loading", "the GPU waits for the next batch"),
    "communication": ("communication", "the GPU waits for, or is busy with, other GPUs"),
    "unknown": ("unknown", "the capture does not hold what would tell"),
}

# part of a step -> what it is; in the order in which every bar shows them
PARTS = {
    "compute": "kernels that compute",
    "communication": "collectives, alone on the GPU",
    "copy": "copies and memsets, alone on the GPU",
    "launch": "idle: the CPU was launching",
    "synchronization": "idle: the CPU was waiting for the GPU",
    "data": "idle: the CPU was making the batch",
    "cpu": "idle: the CPU did something else",
    "queue": "idle: launched already, not yet started",
    "idle": "idle",
}


def headline(report: dict[str, Any]) -> str:
    """'Bound by kernel launches: the GPU waits for ...'."""
    verdict = report["bottleneck"]["verdict"]
    name, why = VERDICTS[verdict]
    if verdict == "unknown":
        return f"No bottleneck named: {why}"
    return f"Bound by {name}: {why}"


def step_parts(report: dict[str, Any]) -> list[tuple[str, float]] | None:
    """(part, ms a step), adding up to the mean step; idle by cause where causes are known."""
    breakdown = report["breakdown"]
    if breakdown is None:
        return None
    parts = [(name, breakdown[f"{name}_ms"]) for name in ("compute", "communication", "copy")]
    if report["idle"] is None:
        return [*parts, ("idle", breakdown["idle_ms"])]
    by_cause = report["idle"]["by_cause"]
    return [*parts, *((cause, by_cause[cause]) for cause in PARTS if cause in by_cause)]


def share(part: float, whole: float) -> str:
    return text.percent(100 * part / whole if whole else None)


def recoverable(entry: dict[str, Any]) -> str:
    """'kernel launches 3.21 ms', of an entry of bottleneck.ranked."""
    name = VERDICTS.get(entry["class"], (entry["class"],))[0]
    return f"{name} {text.milliseconds(entry['recoverable_ms_per_step'])} ms"


def title(report: dict[str, Any]) -> str:
    """The capture's file, its GPU, and the run's name where it is known."""
    capture = report["capture"]
    devices = [d["name"] for d in capture["devices"] if d["id"] == capture["device"]]
    return " · ".join([capture["file"], *(devices or ["no GPU activity"])])


def facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    """(what, figure): those that everyone asks for first."""
    step, gpu = report["window"]["step_ms"], report["gpu"]
    attribution, roofline = report["attribution"], report["roofline"]
    free = report["health"]["free_step_ms"]
    return [
        ("median step, captured", f"{text.milliseconds(step['median'])} ms"),
        (
            "median step, uncaptured",
            text.ABSENT if free is None else f"{text.milliseconds(free)} ms",
        ),
        ("GPU busy", text.percent(gpu and gpu["busy_percent"])),
        ("MFU", text.percent(100 * roofline["mfu"] if roofline and roofline["mfu"] else None)),
        ("attention kernels", report["attention_backend"] or text.ABSENT),
        ("kernel time owned by a phase", text.percent(coverage_percent(attribution))),
    ]


def coverage_percent(attribution: dict[str, Any] | None) -> float | None:
    if attribution is None or attribution["coverage"] is None:
        return None
    return 100 * attribution["coverage"]


def coverage(report: dict[str, Any]) -> str:
    """The sentence that every report prints: how much of the kernel time has an owner."""
    attribution = report["attribution"]
    if attribution is None:
        return "Attribution: not known, the capture has no kernels or no ranges."
    percent = text.percent(coverage_percent(attribution))
    by_time = text.duration_ns(attribution["by_time_ns"])
    return (
        f"Attribution: {percent} of the kernel time belongs to a phase "
        f"({text.duration_ns(attribution['attributed_ns'])} of "
        f"{text.duration_ns(attribution['kernel_ns'])}; {by_time} by time, launched by a thread "
        "without ranges)."
    )


def subtitle(report: dict[str, Any]) -> str:
    """Which steps, by which tool."""
    capture, window = report["capture"], report["window"]
    tool = {"nsys": "nsys", "kineto": "torch.profiler"}[capture["kind"]]
    first = window["first_iteration"]
    steps = f"{window['steps']} step{'s' if window['steps'] != 1 else ''}"
    if first is not None:
        steps += f" ({window['step_name']} {first} to {first + window['steps'] - 1})"
    elif window["step_name"] is None:
        steps = "no steps found: the whole capture counts as one"
    version = f" {capture['tool_version']}" if capture["tool_version"] else ""
    return f"{steps}, {text.milliseconds(window['wall_ms'])} ms in all, by {tool}{version}"
