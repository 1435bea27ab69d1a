"""Document of the results of `bench`: the answer, tables, charts. Called by its verb."""

from pathlib import Path

from profiling.analysis.bench.bench_records import Bench, Measure
from profiling.analysis.difference.comparison_records import Against
from profiling.report.bench import bench_charts, tables
from profiling.report.comparison.document import TONES
from profiling.report.comparison.tables import outcome
from profiling.report.document import Block, Chart, Document, Finding, Section, Table, Verdict
from profiling.shared.json_records import JsonObject

PACKAGES = ("torch", "triton", "numpy")


def bench_document(bench: Bench, equal_within_percent: float) -> Document:
    """The report of a series that has come to a `result`."""
    against = bench.asked.against
    other = Path(against).name if against else ""
    speed = tables.speed(bench, other, equal_within_percent)
    made = [tables.work(bench.work, other)] if bench.work else []
    made.append(tables.processes(bench))
    return Document(
        f"{other} and this project" if against else "The speed of this project",
        [" · ".join(filter(None, notes(bench))), command_words(bench)],
        [*verdict(bench, other, equal_within_percent), *findings(bench, other)],
        [section(*speed), *pictures(bench, other), *map(section, made)],
    )


def command_words(bench: Bench) -> str:
    words, ours = " ".join(bench.asked.words), " ".join(bench.asked.ours)
    return f"{words} · ours only: {ours}" if ours else words


def section(*made: Table) -> Section:
    return Section(made[0].name, made[0].title, made)


def notes(bench: Bench) -> list[str]:
    """The date, the device and the versions; '' for one that is unknown."""
    facts: JsonObject = bench.environment or {}
    packages = facts.get("packages")
    versions = packages if isinstance(packages, dict) else {}
    known = [f"{name} {versions[name]}" for name in PACKAGES if versions.get(name)]
    git, driver = facts.get("git"), facts.get("driver")
    commit = str(git.get("commit"))[:8] if isinstance(git, dict) else None
    return [
        bench.began[:16].replace("T", " ") + " UTC",
        bench.device or "",
        f"driver {driver}" if driver else "",
        f"Python {facts['python']}" if "python" in facts else "",
        *known,
        f"ours {commit}" if commit else "",
        f"theirs {bench.asked.commit[:8]}" if bench.asked.commit else "",
    ]


def verdict(bench: Bench, other: str, equal_within_percent: float) -> list[Block]:
    """The verdict of the first row that has an interval, a step's if it has one."""
    for row in bench.result:
        for pair in row.against:
            if pair.candidate == "ours":
                word = outcome(pair.verdict, equal_within_percent)
                return [Verdict(sentence(row, pair, other), TONES.get(pair.verdict, "plain"), word)]
    return []


def sentence(row: Measure, pair: Against, other: str) -> str:
    values = {values.side: tables.figure(values.median, row.unit) for values in row.sides}
    ratio, low, high = map(tables.ratio_text, (pair.ratio, *pair.ci95))
    return (
        f"{row.what}: {values['ours']} {row.unit} here, {values['theirs']} in {other}; ratio of "
        f"times {ratio}, 95 % interval {low} to {high}"
    )


def findings(bench: Bench, other: str) -> list[Block]:
    """Findings on differences in the work, and on what could not be measured or told."""
    blocks: list[Block] = []
    for work in bench.work:
        if work.equal is False:
            what = f"{work.what}: {work.ours} here, {work.theirs} in {other}"
            blocks.append(Finding("warning", what, word="not alike"))
    if bench.work and all(work.equal is not False for work in bench.work):
        what = f"the same work: {', '.join(work.what for work in bench.work if work.equal)}"
        blocks.append(Finding("note", what))
    if bench.work and any(work.what == "seed" for work in bench.work):
        blocks.append(
            Finding(
                "note", f"{other} uses the same seed in all rounds, because no key sets the seed"
            )
        )
    blocks += [Finding("note", f"{row.what}: {row.remark}") for row in bench.result if row.remark]
    return blocks


def pictures(bench: Bench, other: str) -> list[Section]:
    pairs = sum(len(row.against) for row in bench.result)
    ratios = Chart(
        "ratios", "our time divided by theirs", bench_charts.ratios(bench), 120 + 44 * max(1, pairs)
    )
    whole = Chart("whole", "parts of a whole run", bench_charts.whole_runs(bench, other), 220)
    losses = Chart("losses", "validation loss over time", bench_charts.losses(bench, other), 360)
    return [
        Section(
            "ratios",
            "Ratio, ours to theirs",
            [ratios],
            lead="A point is the ratio of times, and the bar is its 95 % interval. Left of 1, "
            "ours is faster.",
        ),
        Section(
            "whole",
            "Whole runs",
            [whole],
            lead="Median times in seconds. Evaluations are part of the iterations.",
        ),
        Section(
            "losses",
            "Validation loss over time",
            [losses],
            lead="Time counts from the start of the process, so imports and compiling are "
            "included. Each point is an evaluation.",
        ),
    ]
