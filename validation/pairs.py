"""Pairs of a program and the program with one plain change: timed in turns, captured, kept.

    python -m validation pairs out=out-pairs
    python -m validation pairs programs=built,foreign limit_s=480 slice=a
    python -m validation pairs pack=FOLDER
    python -m validation pairs read=true half=first

The record that predictions are made from and checked against. A program and its changes are in one
process, or, where a framework has the loop, in one each; they start together and take turns, round
by round, without a profiler. Then the program as it is is captured by its framework's profiler, and
in another process by nsys, with laps without a profiler before and behind the window. The programs
are in validation/pair_programs/series.py; `programs` takes their names, and built, foreign,
frameworks and trainer for all of a kind, or `nothing` for those with a change that `whatif`
predicts and that is expected to buy nothing.

What was measured is in OUT/GPU as soon as it is there: a command that was stopped goes on where it
is typed again, and what failed comes last. `limit_s` ends it between programs. `slice=NAME` puts
what no earlier slice has into files of at most 8 MB in OUT/slices; `pack=FOLDER` joins slices in
OUT, of several machines too, and checks each file. To go on on another machine, take along the
folders `measured`.

The programs are in two halves. Nobody looks at the second until the rules of a prediction are
frozen: `read=true` refuses it without `open_second_half=true`, which writes down when it was
opened. `small=true` tries the programs on the CPU, without nsys, in small sizes.

Needs CUDA, nsys, and the packages of the chosen programs.
"""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

import torch

from benchmarks.measuring import Keys, key, measure_in_turns, say
from cli.errors import suggestion
from cli.files import write_text
from profiling.launch.experiment.baselines import cpu_name
from profiling.shared.json_records import to_json
from profiling.tools import nsys_tool
from profiling.tools.nsys_tool import Nsys
from training.disk.run_folder import git_state
from validation.diagnoses import end_where_failed
from validation.framework_programs.program import OWN_PROFILERS
from validation.frameworks import is_installed
from validation.pair_captures import export, pack
from validation.pair_processes import Child, Lap, Window
from validation.pair_programs.series import BEFORE, HALF_NAMES, HALVES, PROGRAMS, Program
from validation.pair_records import (
    LARGEST_BYTES,
    Machine,
    Measured,
    Opened,
    Pair,
    folder_of,
    hash_of,
    join_slices,
    open_second,
    place_of,
    read_pairs,
    write_manifest,
    write_slice,
)
from validation.predicted_changes import PREDICTED_BY
from validation.started_programs import report_errors

# estimates: a block of a variant, a step before it, captures with their laps
ROUND_S, STEP_S, CAPTURES_S = 0.2, 0.02, 8.0
PACKAGES = ("torch", "triton", "torchvision", "timm", "transformers", "pytorch-lightning", "jax")
GPU = ("name", "driver_version")  # facts of nvidia-smi
CLOCKS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")


@dataclass
class PairsConfig(Keys):
    out: str = key("out-pairs", "folder of the record")
    rounds: int = key(10, "timed blocks of each variant, in turns", least=1)
    programs: str = key("all", "or names or kinds, by comma")
    half: str = key("all", "first, second or all")
    small: bool = key(False, "try the programs on the CPU")
    after: bool = key(False, "capture each change too, by its framework's profiler")
    limit_s: float = key(0, "start no program that would end later than this; 0: no limit", least=0)
    slice: str = key("", "name of files with what is new")
    nsys: str = key("", "this nsys; else the one that is found")
    pack: str = key("", "folder of slices to join in OUT; nothing is measured")
    read: bool = key(False, "print the pairs of a half; nothing is measured")
    open_second_half: bool = key(False, "open the second half, which is written down")


def main(config: PairsConfig) -> None:
    out = Path(config.out).resolve()
    check_half(config.half)
    if config.pack:
        tars = sorted(Path(config.pack).glob("*.tar"))
        if not tars:
            raise ValueError(f"pack={config.pack}: no .tar in it")
        for manifest in join_slices(tars, out):
            print(f"{manifest.pairs} pairs of {manifest.programs} programs")
        return
    if config.read:
        return print_pairs(config, out)
    programs = chosen(config.programs, config.half)
    nsys = None if config.small else find_nsys(config.nsys, programs)
    if config.small:
        left_out = [program.name for program in programs if missing_packages(program, small=True)]
        programs = [program for program in programs if program.name not in left_out]
        print(f"left out, not for this machine: {', '.join(left_out) or 'none'}", file=sys.stderr)
    machine = this_machine(nsys)
    recorder = Recorder(folder_of(out, machine.gpu), config, nsys, machine)
    failed = recorder.record(programs)
    manifest = write_manifest(recorder.folder)
    print(f"{manifest.pairs} pairs of {manifest.programs} programs in {recorder.folder}")
    if config.slice:
        for tar in write_slice(recorder.folder, config.slice):
            print(f"slice {tar} ({tar.stat().st_size / 1e6:.1f} MB)")
    end_where_failed("pairs", failed, out)


def chosen(names: str, half: str) -> list[Program]:
    """Programs by name or kind, those of a half, in the order in which they are named.

    Raises ValueError for a name that there is not.
    """
    wanted = names.split(",")
    known = {*PROGRAMS, *(program.source for program in PROGRAMS.values()), "all", "nothing"}
    for name in wanted:
        if name not in known:
            raise ValueError(f"programs={name}: no such name{suggestion(name, known)}")
    by_name = {
        program.name: program
        for name in wanted
        for program in PROGRAMS.values()
        if name in ("all", program.name, program.source)
        or (name == "nothing" and has_idle_change(program))
        if half in ("all", HALVES[program.name])
    }
    return list(by_name.values())


def has_idle_change(program: Program) -> bool:
    """Whether a change that `whatif` predicts is expected to buy nothing."""
    return any(change.buys_nothing and change.kind in PREDICTED_BY for change in program.changes)


def missing_packages(program: Program, small: bool = False) -> list[str]:
    """Packages that the program needs and this Python lacks; a GPU, in small sizes."""
    if small and (program.source == "foreign" or program.module == "with_cupy"):
        return ["a GPU"]
    return [name for name in program.packages.split() if not is_installed(name)]


def find_nsys(given: str, programs: Sequence[Program]) -> Nsys:
    """The nsys to capture with. Raises ValueError where a requirement is missing."""
    if missing := dict.fromkeys(name for program in programs for name in missing_packages(program)):
        raise ValueError(f"pairs: its programs need more packages: pip install {' '.join(missing)}")
    if not torch.cuda.is_available():
        raise ValueError("pairs: needs a CUDA GPU; PyTorch sees none here")
    return nsys_tool.find(given or None)


def ask_gpu(facts: Sequence[str]) -> str:
    """Facts of PyTorch's first GPU as nvidia-smi says them; empty where there is none."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    command = ["nvidia-smi", "-i", first, f"--query-gpu={','.join(facts)}", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.check_output(command, text=True, timeout=20).strip()
    return ""


def this_machine(nsys: Nsys | None) -> Machine:
    gpu, _, driver = ask_gpu(GPU).partition(", ") if nsys else ("cpu", "", "")
    versions = {"python": platform.python_version()} | ({"nsys": nsys.version} if nsys else {})
    versions |= {name: version(name) for name in PACKAGES if is_installed(name)}
    return Machine(gpu, driver, cpu_name() or "unknown", os.cpu_count() or 1, versions)


def estimated_s(program: Program, rounds: int) -> float:
    """Seconds that a program is expected to take, with its start and its captures."""
    settled = [program.settle, *(change.settle for change in program.changes)]
    blocks_s = sum(rounds * (ROUND_S + STEP_S * steps) for steps in settled)
    return program.starts_s * (1 + program.large) + blocks_s + CAPTURES_S


class Recorder:
    """Measures programs one after the other; captures of one are packed while the next starts."""

    def __init__(
        self, folder: Path, config: PairsConfig, nsys: Nsys | None, machine: Machine
    ) -> None:
        self.folder, self.config, self.nsys, self.machine = folder, config, nsys, machine
        self.packing: tuple[str, Future[None]] | None = None
        self.failed: list[str] = []
        inside = [f"{half}/{name}" for half in HALF_NAMES for name in ("measured", "captures")]
        for name in ("logs", "made", *inside):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def record(self, programs: Sequence[Program]) -> list[str]:
        """Measure what was not; returns the names of what failed."""
        left = [program for program in programs if not place_of(self.folder, program.name).exists()]
        left.sort(key=lambda program: self.log(program).exists())  # what failed comes last
        begins_s = [0.0]  # by the estimate
        for program in left:
            begins_s.append(begins_s[-1] + estimated_s(program, self.config.rounds))
        pairs = sum(len(program.changes) for program in left)
        say(f"{pairs} pairs of {len(left)} programs: about {begins_s[-1] / 60:.0f} minutes")
        start = time.perf_counter()
        with ThreadPoolExecutor(1) as pool:
            for number, program in enumerate(left):
                began_s = time.perf_counter() - start
                needs_s = begins_s[number + 1] - begins_s[number]
                if 0 < self.config.limit_s < began_s + needs_s:
                    say(f"{len(left) - number} programs are left; the same command goes on")
                    break
                with report_errors(program.name, self.failed):
                    self.measure(program, pool)
                took_s = time.perf_counter() - start - began_s
                say(f"{number + 1} of {len(left)}: {program.name}, {took_s:.0f} s")
            self.join()
        return self.failed

    def log(self, program: Program) -> Path:
        return self.folder / "logs" / f"{program.name}.log"

    def join(self) -> None:
        """Wait until the last program's captures are packed and its record is written."""
        if self.packing:
            (name, packing), self.packing = self.packing, None
            with report_errors(name, self.failed):
                packing.result()

    def measure(self, program: Program, pool: ThreadPoolExecutor) -> None:
        """Time the variants in turns, capture, and leave the packing to the pool.

        Raises ValueError where a process fails.
        """
        began, log = time.perf_counter(), self.log(program)
        names = [BEFORE, *(change.name for change in program.changes)]
        report = self.folder / "made" / f"{program.name}.nsys-rep"
        log.write_bytes(b"")
        with ExitStack() as stack:
            # after the processes have ended: nsys may write a report of a program that failed
            stack.callback(report.unlink, missing_ok=True)
            groups = [[name] for name in names] if program.apart else [names]
            children = [Child(program, group, log, self.nsys) for group in groups]
            if beside := self.nsys and not program.large:
                children.append(Child(program, [BEFORE], log, self.nsys, report))
            for child in children:
                stack.enter_context(child)
            by_nsys = children.pop() if beside else None
            held = {name: child for child in children for name in child.start()}
            if by_nsys:
                by_nsys.start()
            if BEFORE not in held:
                raise ValueError(f"{BEFORE}: cannot be made; see {log}")
            self.join()
            settle = {change.name: change.settle for change in program.changes}
            settle[BEFORE] = program.settle
            laps = {name: Lap(child, name, settle[name]) for name, child in held.items()}
            rounds_ms = measure_in_turns(laps, self.config.rounds)
            clocks = ask_gpu(CLOCKS) if self.nsys else ""
            windows = list(self.own_windows(program, laps))
            for child in children:
                child.process.kill()
            if self.nsys:
                if not by_nsys:
                    by_nsys = Child(program, [BEFORE], log, self.nsys, report)
                    stack.enter_context(by_nsys).start()
                lap = Lap(by_nsys, BEFORE, program.settle)
                windows.append(lap.window("nsys", program.steps, report))
                by_nsys.say("end")
            measured = Measured(
                program=program.name,
                source=program.source,
                series=program.series,
                machine=self.machine,
                clocks=clocks,
                commit=commit(),
                when=now(),
                settled={name: settle[name] for name in laps},
                block={name: lap.steps for name, lap in laps.items()},
                rounds_ms=rounds_ms,
                changes=list(program.changes),
                not_made=[name for name in names if name not in laps],
                captures=[],
                took_s=time.perf_counter() - began,
            )
            ending = stack.pop_all()
        self.packing = program.name, pool.submit(self.keep, measured, windows, by_nsys, ending)

    def own_windows(self, program: Program, laps: dict[str, Lap]) -> Iterator[Window]:
        """Windows by the framework's own profiler: of the program as it is, or of each variant."""
        profiler = OWN_PROFILERS.get(program.module, "torch.profiler")
        for variant in laps if self.config.after else [BEFORE]:
            made = self.folder / "made" / f"{program.name}.{variant}.json.gz"
            if profiler:
                yield laps[variant].window(profiler, program.steps, made)

    def keep(
        self,
        measured: Measured,
        windows: Sequence[Window],
        by_nsys: Child | None,
        ending: ExitStack,
    ) -> None:
        """Pack the captures, and write the record when they are all there."""
        place, captures = place_of(self.folder, measured.program), []
        with ending:
            if by_nsys:
                by_nsys.finish()
            for window in windows:
                made = window.made
                if self.nsys and window.capture.tool == "nsys":
                    made = export(self.nsys, made, self.folder / "logs" / "export.log")
                packed = pack(made, place.parents[1] / "captures")
                made.unlink()
                size, digest = packed.stat().st_size, hash_of(packed)
                if too_large := size > LARGEST_BYTES:
                    most = f"{LARGEST_BYTES / 1e6:.0f} MB at most"
                    say(f"{packed.name}: left out, {size / 1e6:.1f} MB, {most}")
                    packed.unlink()
                kept = None if too_large else packed.name
                captures.append(replace(window.capture, file=kept, bytes=size, sha256=digest))
        write_text(place, to_json(replace(measured, captures=captures)))


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}"


def commit() -> str | None:
    state = git_state()
    return str(state["commit"]) if state else None


def check_half(half: str) -> None:
    """Raise ValueError for a name of no half."""
    if half not in (*HALF_NAMES, "all"):
        raise ValueError(f"half={half}: first, second or all")


def read_halves(out: Path, half: str, opens: bool) -> list[Pair]:
    """Pairs of a half or of all; says when the second was opened, which `opens` it.

    Raises ValueError for the second while it is not open.
    """
    if half != "first":
        opened = open_second(out, opens, Opened(now(), commit()))
        print(f"the second half was opened {opened.when}, at commit {opened.commit}\n")
    return [pair for name in HALF_NAMES if half in (name, "all") for pair in read_pairs(out, name)]


def print_pairs(config: PairsConfig, out: Path) -> None:
    """Print a row for each pair, and how many changes do next to nothing."""
    pairs = read_halves(out, config.half, config.open_second_half)
    print("| program | change | GPU | before, ms | with it, ms | gain | expected |")
    print("|---|---|---|---|---|---:|---|")
    for pair in pairs:
        times = [
            f"{median(ms):.3f} ({min(ms):.3f}, {max(ms):.3f})"
            for ms in (pair.before_ms, pair.after_ms)
        ]
        expected = "nothing" if pair.change.buys_nothing else pair.change.kind
        cells = [pair.program, pair.change.name, pair.gpu, *times, f"{100 * pair.gain:.1f} %"]
        print(f"| {' | '.join([*cells, expected])} |")
    least, programs = sum(abs(pair.gain) < 0.01 for pair in pairs), {p.program for p in pairs}
    print(f"\n{len(pairs)} pairs of {len(programs)} programs; {least} change the step by under 1 %")
