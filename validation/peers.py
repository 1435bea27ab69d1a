"""Other tools on the captures of series 6 and later, graded as our verdicts are.

    python -m validation foreign series=7 out=OUT reread=true
    python -m validation peers series=7 out=OUT nsys_ai=PROGRAM hta=PYTHON tracelens=PROGRAM

Runs those that are named: nsys-ai on reports of nsys, HolisticTraceAnalysis and TraceLens on traces
of torch.profiler and JAX's profiler. They need environments of their own: for HTA name the Python
that has it, for TraceLens its TraceLens_generate_perf_report_pytorch. None of them gives one
verdict: validation/peer_words.py says which of their words is the first answer, and what it covers.
Prints what each said and its grade, beside our verdicts as the first command left them in
OUT/results.json, and the counts. What a tool wrote stays in OUT/peers and is not asked for again.
"""

import csv
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.measuring import PROJECT, Keys, key, print_markdown_table
from profiling.shared.json_records import read_json
from validation.framework_programs.program import Program
from validation.framework_programs.series import SERIES
from validation.judged import GRADES, Judged, print_grades
from validation.peer_words import (
    Answer,
    Finding,
    Shares,
    all_answers,
    critical_path,
    first_finding,
    grade_answer,
    largest_share,
    worst_pattern,
)

T = TypeVar("T")
LONGEST_S = 300.0
SAID = 44  # characters of an answer in the table


@dataclass
class PeersConfig(Keys):
    series: int = key(6, f"from 6 to {max(SERIES)}")
    out: str = key("out-frameworks", "folder of the captures and of results.json")
    nsys_ai: str = key("", "program nsys-ai", file=True)
    hta: str = key("", "Python that has HolisticTraceAnalysis", file=True)
    tracelens: str = key("", "program TraceLens_generate_perf_report_pytorch", file=True)


@dataclass(frozen=True)
class Diagnosed:
    """The report that `nsys-ai diagnose` prints, as far as it is read."""

    findings: list[Finding]


@dataclass(frozen=True)
class CriticalPath:
    """The row that `nsys-ai skill run critical_path` prints, as far as it is read."""

    bound_class: str


@dataclass(frozen=True)
class Read:
    """One capture as one tool reads it."""

    tool: str
    said: str | None  # None: it has no answer, or more than one
    grade: str


@dataclass(frozen=True)
class Row:
    program: Program
    reads: list[Read]  # ours first


def main(config: PeersConfig) -> None:
    out = Path(config.out).resolve()
    if not (out / "results.json").exists():
        raise ValueError(f"out={config.out}: has no results.json, which foreign reread=true writes")
    ours = read_json(out / "results.json", list[Judged])
    programs = {program.name: program for program in SERIES.get(config.series, ())}
    if not {judged.program for judged in ours} <= programs.keys():
        raise ValueError(f"series={config.series}: out={config.out} has programs of another")
    (out / "peers").mkdir(exist_ok=True)
    by_nsys, by_others = [], []
    for judged in ours:
        program = programs[judged.program]
        print(f"{program.name}, {judged.tool}", file=sys.stderr, flush=True)
        own = Read(f"ours, {judged.tool}", judged.verdict, judged.grade)
        if judged.tool == "nsys":
            by_nsys.append(Row(program, [own, *ask_nsys_ai(config.nsys_ai, program, out)]))
        else:
            by_others.append(Row(program, [own, *ask_readers_of_traces(config, program, out)]))
    for rows in (by_nsys, by_others):
        print_rows(rows)
    counted = {judged.program for judged in ours if judged.counted}
    rows = [row for row in (*by_nsys, *by_others) if row.program.name in counted]
    print_grades(
        [(read.tool, read.grade, row.program.control) for row in rows for read in row.reads]
    )


def ask_nsys_ai(nsys_ai: str, program: Program, out: Path) -> list[Read]:
    """Ask for its three first answers, and find the best of all that it lists."""
    if not nsys_ai:
        return []
    kept, capture = out / "peers" / program.name, out / "nsys" / f"{program.name}-1.sqlite"
    words = [str(capture), "--format", "json"]
    skill = [nsys_ai, "skill", "run"]
    diagnose = [nsys_ai, "diagnose", *words, "--session", f"{kept}.session"]
    diagnosed = output_of(diagnose, Path(f"{kept}.diagnose.json"), Diagnosed)
    matched = output_of(
        [*skill, "root_cause_matcher", *words], Path(f"{kept}.matcher.json"), list[Finding]
    )
    paths = output_of(
        [*skill, "critical_path", *words], Path(f"{kept}.path.json"), list[CriticalPath]
    )
    findings, patterns = diagnosed.findings if diagnosed else [], matched or []
    answers = {
        "nsys-ai diagnose": first_finding(findings),
        "nsys-ai root_cause_matcher": worst_pattern(patterns),
        "nsys-ai critical_path": critical_path(paths[0].bound_class) if paths else None,
    }
    reads = [graded(tool, answer, program) for tool, answer in answers.items()]
    whole = [graded("", answer, program) for answer in all_answers(findings, patterns)]
    best = min([*reads, *whole], key=lambda each: GRADES.index(each.grade))
    return [*reads, Read("nsys-ai, the best of all it lists", None, best.grade)]


def ask_readers_of_traces(config: PeersConfig, program: Program, out: Path) -> list[Read]:
    kept, trace = out / "peers" / program.name, out / "own" / f"{program.name}-1.json.gz"
    reads = []
    if config.hta:
        command = [config.hta, str(PROJECT / "validation" / "hta_shares.py"), str(trace)]
        shares = output_of(command, Path(f"{kept}.hta.json"), Shares)
        reads.append(graded("HTA", largest_share(shares), program))
    if config.tracelens:
        tables = Path(f"{kept}.tracelens")
        command = [config.tracelens, "--profile_json_path", str(trace)]
        output_of([*command, "--output_csvs_dir", str(tables)], Path(f"{kept}.tracelens.txt"), str)
        shares = read_tracelens(tables)
        reads.append(graded("TraceLens", largest_share(shares), program))
    return reads


def graded(tool: str, answer: Answer | None, program: Program) -> Read:
    return Read(tool, answer.said if answer else None, grade_answer(answer, program))


def output_of(command: Sequence[str], kept: Path, kind: type[T]) -> T | None:
    """The record that the command printed, kept in a file. None: it printed none of this type."""
    if not kept.exists():
        with open(kept, "wb") as file, open(f"{kept}.log", "wb") as log:
            try:
                subprocess.run(command, stdout=file, stderr=log, timeout=LONGEST_S)
            except subprocess.TimeoutExpired:
                log.write(b"ended after too long\n")
    text = kept.read_text(encoding="utf-8", errors="replace")
    starts = [at for at in (text.find("{"), text.find("[\n")) if at >= 0]  # behind its words
    try:
        return msgspec.json.decode(text[min(starts, default=0) :], type=kind)
    except msgspec.DecodeError:
        return None


def read_tracelens(tables: Path) -> Shares | None:
    """Read its timeline, and its category of operators that computed longest."""
    timeline, operators = tables / "gpu_timeline.csv", tables / "ops_summary_by_category.csv"
    if not timeline.exists():
        return None
    ms = {row["type"]: float(row["time ms"]) for row in read_rows(timeline)}
    rows = read_rows(operators) if operators.exists() else []
    longest = max(rows, key=lambda row: float(row["total_direct_kernel_time_ms"]), default=None)
    return Shares(
        compute=ms["computation_time"],
        copies=ms["exposed_memcpy_time"],
        idle=ms["idle_time"],
        kernel=longest["op category"] if longest else None,
    )


def read_rows(file: Path) -> list[dict[str, str]]:
    with open(file, encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def print_rows(rows: Sequence[Row]) -> None:
    """One row for each program: what is planted, and what each tool said of it."""
    if not rows:
        return
    tools = [read.tool for read in rows[0].reads]
    print_markdown_table(["program", "planted", *tools], map(cells, rows))


def cells(row: Row) -> list[str]:
    planted = ("none; " if row.program.control else "") + row.program.planted
    answers = [
        f"{read.said[:SAID]}: {read.grade}" if read.said else read.grade for read in row.reads
    ]
    return [row.program.name, planted, *answers]
