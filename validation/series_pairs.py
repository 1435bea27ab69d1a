"""Pairs that a series of `validation foreign` measured: each program with its fault and without."""

from collections.abc import Sequence
from pathlib import Path

from validation.framework_programs.program import Program
from validation.frameworks import Measured, read_measured
from validation.pair_programs.series import BEFORE, WITHOUT, Change
from validation.pair_records import Capture, Pair


def pairs_of_series(programs: Sequence[Program], out: Path, gpu: str) -> list[Pair]:
    """The programs that have a fault and do the same work without it, with their captures.

    The step without a profiler is known from the rounds, which other processes ran.
    """
    known = read_measured(programs, out)
    return [
        Pair(
            program.name,
            Change(WITHOUT, program.planted),
            gpu,
            "first",
            known[program.name].with_ms,
            known[program.name].without_ms,
            captures_of(program, known[program.name], out),
            out,
        )
        for program in programs
        if program.name in known and not program.control and program.work_without == 1
    ]


def captures_of(program: Program, measured: Measured, out: Path) -> list[Capture]:
    files = [(program.own_profiler, f"own/{program.name}-1.json.gz", measured.own_ms)]
    files.append(("nsys", f"nsys/{program.name}-1.sqlite", measured.nsys_ms))
    return [
        Capture(tool, BEFORE, program.steps, ms, measured.with_ms, [], file, 0, "")
        for tool, file, ms in files
        if tool and ms and (out / file).exists()
    ]
