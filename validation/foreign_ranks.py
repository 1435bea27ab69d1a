"""A fault in one rank of programs that are not ours: is that rank named, with its cause and cost?

    python -m validation foreign_ranks out=out-foreign-ranks nanogpt=../nanoGPT
    python -m validation foreign_ranks out=OUT programs=fsdp,fsdp_compiled tools=torch limit_s=400
    python -m validation foreign_ranks out=OUT nanogpt=../nanoGPT small=true

nanoGPT's train.py in DDP, a GPT-2 of transformers by accelerate, and a model that FSDP2 shards,
eager and compiled: validation/rank_programs.py. Each without a fault, and with one of four: rank 1
multiplies more matrices, reads its batches from a slow disk, or does Python work before each
update, each for about as long as a step takes; or NCCL goes by sockets, and no rank is late.

The ranks of a program start once, and once more with NCCL's slow settings. All faults take turns
with none, without a profiler. Then the same processes capture windows of each fault by
torch.profiler, five of no fault among them, and others, started at the same time, under nsys. What
was captured is packed in OUT: a command that was stopped goes on where it is typed again, and
`limit_s` ends it between programs.

The captures are judged anew by each command, which needs no GPU, unless `judge=false`: a row for
each program, fault and tool, and counts. `small=true` tries the programs on the CPU with gloo,
without nsys and a slow link; ranks without GPU work are not compared, which is then said.

Needs nsys, GPUs, accelerate and transformers. Programs that lack something are left out.
"""

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch

from benchmarks.measuring import Keys, key, measure_in_turns, say
from cli.files import write_text
from profiling.shared.json_records import read_json, to_json
from profiling.tools import nsight, nsys_tool
from profiling.tools.nsys_tool import Nsys
from validation.diagnoses import end_where_failed
from validation.framework_programs.parts import SMALL
from validation.frameworks import export_reports, install_command
from validation.judged_ranks import LINK, NONE, PLANTED, Judged, Measured, print_table
from validation.made_nanogpt import make_nanogpt
from validation.pair_captures import pack, trim, unpack
from validation.pairs import GPU, ask_gpu
from validation.planted_ranks import TOOLS, RanksDiagnosis, diagnosis_of
from validation.plants.ranks import OF_RANKS
from validation.rank_groups import Group
from validation.rank_programs import LATE, NANOGPT, PROGRAMS
from validation.started_programs import chosen_names, report_errors, run_each, runnable

# the ranks that start together, and their windows
WINDOWS = {NONE: (NONE, "products", NONE, "loader", NONE, "host", NONE, NONE), LINK: (LINK,)}
PRODUCT_MS = 0.2  # of 4096 x 4096 matrices, on an H100
BLOCK_MS, FEWEST, MOST, SETTLE = 400.0, 3, 40, 2  # a timed block, in steps, and those before it
STEPS = 8  # of a capture
EACH_S = 170.0  # a program is expected to take
PACKED_AT_ONCE = 4
Groups = dict[tuple[str, str], Group]  # by the first of their windows, and the tool


@dataclass
class ForeignRanksConfig(Keys):
    out: str = key("out-foreign-ranks", "folder of captures and results.json")
    programs: str = key("all", "or names, by comma")
    tools: str = key("nsys,torch", "that capture, by comma")
    gpus: int = key(2, "ranks of each program, one a GPU", least=2)
    rounds: int = key(5, "timed blocks of each fault, in turns", least=1)
    nanogpt: str = key("", "a checkout of nanoGPT")
    limit_s: float = key(0, "start no program that would end later than this; 0: no limit", least=0)
    judge: bool = key(True, "read the captures; else they are only made")
    small: bool = key(False, "try the programs on the CPU")


def main(config: ForeignRanksConfig) -> None:
    out = Path(config.out).resolve() / ("small" if config.small else "")
    tools = [each for each in chosen(config.tools) if not (config.small and each == "nsys")]
    names = chosen_names(config.programs, PROGRAMS)
    left = [n for n in names if not all(is_captured(out, n, tool, config.gpus) for tool in tools)]
    files = [out / "measured" / f"{name}.json" for name in names]
    if gpus_lacking(config):  # what is measured is judged, the others are left out
        left = [name for name in left if not (out / "measured" / f"{name}.json").exists()]
    left = runnable(left, lambda name: missing_requirement(name, config))
    failed = Recorder(out, config, tools).record(left) if left else []
    known = [read_json(file, Measured) for file in files if file.exists()]
    rows = [row for each in known for row in judge(out, each, config.gpus)] if config.judge else []
    if rows:
        write_text(out / "results.json", to_json(rows))
        print_table(known, rows)
        if lost := [n for each in known for n in incomplete(out, each.program, tools, config.gpus)]:
            print(f"left out: {len(lost)} windows lack a rank's file")
    if not config.small:
        lacking = [(each.program, tool) for each in known for tool in tools]
        lacking = [each for each in lacking if not is_captured(out, *each, config.gpus)]
        lacking += [(d.plant, d.tool) for row in rows for d in row.diagnoses if d.verdict is None]
        failed += [f"{name} by {tool}" for name, tool in lacking]
    end_where_failed("foreign_ranks", failed, out)


def chosen(tools: str) -> list[str]:
    """Tools by comma. Raises ValueError for another."""
    if unknown := [tool for tool in tools.split(",") if tool not in TOOLS]:
        raise ValueError(f"tools={unknown[0]}: not one of {', '.join(TOOLS)}")
    return tools.split(",")


def gpus_lacking(config: ForeignRanksConfig) -> str:
    """Words for GPUs that are not there; no text where there are enough."""
    there = torch.cuda.device_count()
    lacking = not config.small and there < config.gpus
    return f"PyTorch sees {there} of {config.gpus} GPUs" if lacking else ""


def missing_requirement(name: str, config: ForeignRanksConfig) -> str:
    """Words for what the program needs and there is not; no text where there is all."""
    if lacking := gpus_lacking(config):
        return lacking
    if name == "nanogpt" and not config.nanogpt:
        return "give nanogpt=FOLDER"
    return install_command("accelerate transformers" if name == "accelerate" else "")


def sides_of(out: Path) -> list[str]:
    """Groups of ranks that a program has; a try in small sizes has no slow link."""
    return [NONE] if out.name == "small" else list(WINDOWS)


def captures(program: str, side: str) -> list[str]:
    """Names of a group's captures, in the order in which they are made: nanogpt-none-1."""
    faults = WINDOWS[side]
    return [f"{program}-{fault}-{faults[: n + 1].count(fault)}" for n, fault in enumerate(faults)]


def packed_files(out: Path, capture: str, tool: str) -> list[Path]:
    """Packed captures of all ranks."""
    return sorted((out / "captures").glob(f"{capture}.{tool}-rank*.xz"))


def is_captured(out: Path, program: str, tool: str, ranks: int) -> bool:
    return not incomplete(out, program, [tool], ranks)


def incomplete(out: Path, program: str, tools: Sequence[str], ranks: int) -> list[str]:
    """Windows without a capture of each rank: nanogpt-none-1.nsys."""
    names = [name for side in sides_of(out) for name in captures(program, side)]
    each = [(name, tool) for tool in tools for name in names]
    return [f"{n}.{tool}" for n, tool in each if len(packed_files(out, n, tool)) != ranks]


class Recorder:
    """Measures programs one after the other; captures of one are packed while the next starts."""

    def __init__(self, out: Path, config: ForeignRanksConfig, tools: Sequence[str]) -> None:
        self.out, self.config, self.tools = out, config, tools
        self.nsys: Nsys | None = nsys_tool.find() if "nsys" in tools else None
        self.packing: tuple[str, Future[None]] | None = None
        self.failed: list[str] = []
        for name in ("measured", "captures", "logs", "made"):
            (out / name).mkdir(parents=True, exist_ok=True)
        environ, _ = nsight.without_secrets()  # which nsys would keep
        self.environ = environ | {NANOGPT: str(out / "nanogpt")}
        self.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "4"  # in each of many processes
        self.environ |= {SMALL: "1", "CUDA_VISIBLE_DEVICES": ""} if config.small else {}
        if config.nanogpt:
            make_nanogpt(Path(config.nanogpt), out / "nanogpt", "made")

    def record(self, programs: Sequence[str]) -> list[str]:
        """Measure the programs; returns the names of what failed."""
        with ThreadPoolExecutor(1) as pool:
            each = [(name, partial(self.measure, name, pool)) for name in programs]
            failed = run_each(each, self.config.limit_s, EACH_S)
            self.join()
        return [*failed, *self.failed]

    def join(self) -> None:
        """Wait until the last program's captures are packed."""
        if self.packing:
            (name, packing), self.packing = self.packing, None
            with report_errors(name, self.failed):
                packing.result()

    def measure(self, program: str, pool: ThreadPoolExecutor) -> str:
        """Time the faults in turns, capture, and leave the packing to the pool.

        Raises ValueError where the program's ranks fail.
        """
        ranks = self.config.gpus
        tools = [tool for tool in self.tools if not is_captured(self.out, program, tool, ranks)]
        with ExitStack() as stack:
            groups = {
                (side, tool): stack.enter_context(self.group(program, side, tool))
                for tool in dict.fromkeys(("torch", *tools))  # the first are timed, too
                for side in sides_of(self.out)
            }
            start_all(groups)
            self.join()
            measured = self.time(program, groups)
            write_text(self.out / "measured" / f"{program}.json", to_json(measured))
            for (side, tool), group in groups.items():
                if tool in tools:
                    self.capture(side, tool, group, measured)
            ending = stack.pop_all()
        self.packing = program, pool.submit(self.keep, program, groups, ending)
        return "measured"

    def group(self, program: str, side: str, tool: str) -> Group:
        environ = self.environ | (OF_RANKS["ranks_link"].environ if side == LINK else {})
        name = f"{program}-{side}-{tool}"
        log, reports = self.out / "logs" / f"{name}.log", self.out / "made" / name
        shutil.rmtree(reports, ignore_errors=True)  # of an earlier try
        nsys = self.nsys if tool == "nsys" else None
        return Group(program, self.config.gpus, log, environ, nsys, reports, len(WINDOWS[side]))

    def time(self, program: str, groups: Groups) -> Measured:
        """Time all faults in turns."""
        asked = dict.fromkeys(WINDOWS[NONE], groups[NONE, "torch"])
        if (LINK, "torch") in groups:
            asked[LINK] = groups[LINK, "torch"]
        delay_ms = asked[NONE].ask(f"{NONE} 0 time {FEWEST} {SETTLE}")
        measures = {}
        for fault, group in asked.items():
            line = f"{with_amount(fault, delay_ms)} time"
            ms = group.ask(f"{line} {FEWEST} {SETTLE}")
            steps = round(min(max(BLOCK_MS / ms, FEWEST), MOST))
            measures[fault] = partial(group.ask, f"{line} {steps} {SETTLE}")
        rounds_ms = measure_in_turns(measures, self.config.rounds)
        device = "cpu" if self.config.small else ask_gpu(GPU)
        machine = f"{self.config.gpus} x {device}, torch {torch.__version__}"
        return Measured(program, machine, delay_ms, rounds_ms)

    def capture(self, side: str, tool: str, group: Group, measured: Measured) -> None:
        """Capture the windows of a group, each behind steps with its fault."""
        names = captures(measured.program, side)
        for fault, name in zip(WINDOWS[side], names, strict=True):
            file = self.out / "made" / f"{name}.torch-rank{{rank}}.json.gz"
            line = with_amount(fault, measured.delay_ms)
            group.ask(f"{line} time {FEWEST} {SETTLE}")
            group.ask(f"{line} {tool} {STEPS}" + ("" if tool == "nsys" else f" {file}"))

    def keep(self, program: str, groups: Groups, ending: ExitStack) -> None:
        """Let the ranks end, and pack what the profilers wrote.

        Raises ValueError where nsys did not write a report for each window.
        """
        made, reports = self.out / "made", list[Path]()
        with ending:
            for group in groups.values():
                group.finish()
        self.pack(sorted(made.glob(f"{program}-*.json.gz")))
        for (side, tool), group in groups.items():
            if tool == "nsys":
                reports += take_reports(group, captures(program, side), made)
        if self.nsys:
            export_reports(self.nsys, reports, self.out / "logs" / f"{program}-export.log")
            self.pack(report.with_suffix(".sqlite") for report in reports)
        for report in reports:
            report.unlink()

    def pack(self, files: Iterable[Path]) -> None:
        with ThreadPoolExecutor(PACKED_AT_ONCE) as pool:
            list(pool.map(partial(keep_capture, place=self.out / "captures"), files))


def start_all(groups: Groups) -> None:
    """Wait for all groups, and drop those with a slow link that did not start.

    Raises ValueError where another did not.
    """
    for (side, tool), group in list(groups.items()):
        try:
            group.start()
        except ValueError as error:
            if side != LINK:
                raise
            say(f"left out: {error}")
            del groups[side, tool]


def with_amount(fault: str, delay_ms: float) -> str:
    """The fault and how much of it: a number of products, or milliseconds."""
    amounts = {"products": delay_ms / PRODUCT_MS, "loader": delay_ms, "host": delay_ms}
    return f"{fault} {amounts.get(fault, 0):.1f}"


def take_reports(group: Group, names: Sequence[str], place: Path) -> list[Path]:
    """Name nsys's numbered reports after the captures that they are: nanogpt-none-1.nsys-rank0.

    A single report of a rank has no number. Raises ValueError where one is missing: which, is not
    known.
    """
    made = sorted(group.reports.glob("nsys-rank*.nsys-rep"))
    if len(made) != len(names) * group.ranks:
        raise ValueError(
            f"{len(made)} reports of {len(names)} windows of {group.ranks} ranks; see {group.log}"
        )
    taken = []
    for report in made:
        rank, _, number = report.stem.removeprefix("nsys-").partition(".")
        name = names[int(number or 1) - 1]
        taken.append(report.rename(place / f"{name}.nsys-{rank}.nsys-rep"))
    return taken


def keep_capture(capture: Path, place: Path) -> None:
    if capture.suffix == ".sqlite":
        trim(capture)
    pack(capture, place)
    capture.unlink()


def judge(out: Path, measured: Measured, ranks: int) -> list[Judged]:
    """Diagnose all windows of a program that have a capture of each rank."""
    rows = []
    names = [name for side in WINDOWS for name in captures(measured.program, side)]
    for fault in PLANTED:
        costs_ms = measured.costs_ms(fault)
        of_fault = [name for name in names if name.split("-")[1] == fault]
        for tool in TOOLS:
            there = {name: packed_files(out, name, tool) for name in of_fault}
            if found := [
                diagnose(name, fault, tool, packed, costs_ms)
                for name, packed in there.items()
                if len(packed) == ranks
            ]:
                rows.append(Judged(measured.program, fault, TOOLS[tool], costs_ms, found))
    return rows


def diagnose(
    name: str, fault: str, tool: str, packed: Sequence[Path], costs_ms: Sequence[float]
) -> RanksDiagnosis:
    with tempfile.TemporaryDirectory() as folder:
        return diagnosis_of(
            name,
            PLANTED[fault][0],
            None if fault in (NONE, LINK) else LATE,
            TOOLS[tool],
            lambda: [unpack(file, Path(folder)) for file in packed],
            median(costs_ms) if costs_ms else None,
        )
