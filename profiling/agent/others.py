"""Answers about captures and runs as a whole, comparisons, predictions and lists of runs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from profiling.agent.answer import Answer, Name, Number, Row
from profiling.agent.rows import ids, numbered, tables
from profiling.analysis.difference.comparison_records import Comparison
from profiling.analysis.memory.memory_records import MemoryReport
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.records import Report
from profiling.analysis.runs.folder import RunFolder
from profiling.analysis.runs.listing import Entry
from profiling.analysis.scale.scale_records import Scale
from profiling.analysis.whatif.whatif_records import WhatIf
from profiling.report import scale as scale_report
from profiling.report import whatif as whatif_report

UNCAPTURED = (
    "where the time goes: the run's folder has no capture; train with profile=nsys or "
    "profile=torch, or start the program with `run`"
)


def opened(record: Report | RanksReport | MemoryReport | RunFolder, key: str) -> Answer:
    """Answer with what was opened, and its id."""
    evidence = [key, *ids(key, tables(record))]
    match record:
        case RunFolder():
            return of_run(record, key)
        case RanksReport():
            numbers = {"ranks": Number(len(record.ranks), "captures")}
            return Answer(f"{key}: captures of several ranks.", numbers, evidence=evidence)
        case MemoryReport():
            numbers = {"events": Number(record.events, "events of the history")}
            said = f"{key}: a memory snapshot of GPU {record.device}."
            file: Row = {"file": Name(record.file)}
            return Answer(said, numbers, rows=[file], evidence=evidence)
    facts, window = record.capture, record.window
    numbers = {"steps": Number(window.steps, "captured steps")}
    row: Row = {
        "kind": facts.kind,
        "file": Name(facts.file),
        "tool_version": facts.tool_version and Name(facts.tool_version),
        "gpu": Name(facts.gpu.name) if facts.gpu else None,
        "step_range": window.step_name and Name(window.step_name),
        "manifest": facts.manifest and Name(facts.manifest),
        "attention": record.attention_backend,
        "framework": record.program.framework,
        "personal": facts.personal,
    }
    unknown = [] if facts.gpu or facts.no_gpu else ["the GPU: the capture does not name one"]
    said = f"{key}: a capture by {facts.kind} of {window.steps} steps."
    return Answer(said, numbers, rows=[row], cannot_tell=unknown, evidence=evidence)


def of_run(run: RunFolder, key: str) -> Answer:
    """Answer with a run's own figures; it has no capture."""
    numbers = {"iterations": Number(run.iterations, "iterations")}
    if len(run.step_ms):
        numbers["median_step"] = Number(float(np.median(run.step_ms)), "ms, of logged rows")
    loss = (run.summary or {}).get("best_val_loss")
    numbers |= {"best_val_loss": Number(loss, "nats")} if loss is not None else {}
    return Answer(f"{key}: a run without a capture.", numbers, cannot_tell=[UNCAPTURED])


def compared(record: Comparison, key: str) -> Answer:
    """Answer with the difference of two sides, its interval, and the parts that changed."""
    times, unknown = record.step_ms, record.cannot_tell
    told = record.verdict not in ("cannot_tell", "not_comparable")
    numbers = {
        "before": Number(times.baseline, times.unit),
        "after": Number(times.candidate, times.unit),
        "ratio": Number(times.ratio, "after / before", times.ci95),
    }
    reasons = [f"{why}; force=true compares them anyway" for why in record.comparability.reasons]
    reasons = [] if record.comparability.comparable or record.comparability.forced else reasons
    reasons += [f"{unknown.why}; {unknown.cure}"] if unknown else []
    fields = "bucket baseline_ms candidate_ms delta_ms"
    rows = numbered(key, "bucket", record.buckets or [], fields)
    rows.sort(key=lambda row: -abs(float(str(row["delta_ms"]))))
    return Answer(
        f"{record.sentence}." if record.sentence else f"{record.verdict}.",
        numbers if record.verdict != "not_comparable" else {},
        [*record.comparability.notes, *filter(None, [record.size_unknown])],
        rows if record.verdict != "not_comparable" else [],
        cannot_tell=reasons or ([] if told else [record.sentence]),
        evidence=ids(key, tables(record)),
    )


def predicted(record: WhatIf, key: str) -> Answer:
    """Answer with the step behind each change."""
    fields = "change answer step_ms low_ms high_ms limited_by"
    rows = numbered(key, "prediction", record.predictions, fields)
    for row, prediction in zip(rows, record.predictions, strict=True):
        if not prediction.has_size:
            del row["step_ms"]
        if prediction.answer == "cannot tell":
            del row["low_ms"], row["high_ms"], row["limited_by"]
    untold = [f"{row.change}: {row.reason}" for row in record.predictions if row.reason]
    unit = f"ms without a profiler, {record.free.source}"
    numbers = {"step": Number(record.free.ms, unit), "captured": Number(record.captured_ms, "ms")}
    said = f"{whatif_report.headline(record)}."
    return Answer(
        said,
        numbers,
        rows=rows,
        advice=[row.try_it for row in record.predictions if row.try_it],
        cannot_tell=untold,
    )


def scaled(record: Scale, key: str) -> Answer:
    """Answer with the step on more GPUs."""
    fields = "gpus mode step_ms fastest_ms slowest_ms efficiency_percent limited_by fits"
    rows = numbered(key, "prediction", record.predictions, fields)
    numbers = {"one_gpu": Number(record.measured.step_ms, "ms per step")}
    chosen = [f"{each.gpus} GPUs: {each.mode}, {each.why}" for each in record.choices]
    chosen += [f"assumed: {each}" for each in record.assumed]
    return Answer(f"{scale_report.headline(record)}.", numbers, chosen, rows)


def of_entries(entries: Sequence[Entry], root: Path) -> Answer:
    """Answer with the runs, captures, snapshots and experiments under the root."""
    rows: list[Row] = []
    for entry in entries:
        row: Row = {
            "kind": entry.kind,
            "path": Name(entry.path.relative_to(root).as_posix()),
            "verdict": entry.verdict and Name(entry.verdict),
            "step_ms": entry.step_ms,
            "loss": entry.loss,
            "captures": len(entry.captures),
        }
        rows.append(row | ({"problem": Name(entry.problem)} if entry.problem else {}))
    return Answer(f"{len(entries)} runs, captures, snapshots and pages.", rows=rows)


def refused(why: str, key: str = "") -> Answer:
    """Answer for a question that the capture cannot answer."""
    return Answer("That cannot be told.", cannot_tell=[why], evidence=[key] if key else [])


def started(code: int, last: Sequence[str]) -> Answer:
    """Answer for a command that ended without a result, with the last lines that it printed."""
    untold = "the answer: the measurement did not end; the last lines may say why"
    rows: list[Row] = [{"line": Name(line)} for line in last]
    return Answer(f"It ended with exit code {code}.", rows=rows, cannot_tell=[untold])
