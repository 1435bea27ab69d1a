"""Command line of a program under Nsight Compute, and reasons why it left no report.

Called by profiling.verbs.ncu.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from profiling.tools.nsight import Program

# (what ncu prints, why there is no report, how to go on)
CAUSES = (
    (
        r"ERR_NVGPUCTRPERM",
        "the driver reserves performance counters for the administrator (ERR_NVGPUCTRPERM)",
        "run as root (a container: with --cap-add=SYS_ADMIN), or load the driver with "
        "NVreg_RestrictProfilingToAdminUsers=0",
    ),
    (
        r"MULTIPLE_SUBSCRIBERS|river resource was unavailable|already (being )?profiled|"
        r"[Aa]nother (\w+ )?(profiler|tool)",
        "another profiler uses the counters of the GPU",
        "end the other profiler: nsys, torch.profiler, or dcgm (`dcgmi profile --pause`)",
    ),
    (
        r"unrecogni[sz]ed option|invalid value|option .* is ambiguous",
        "ncu rejected an option, named above",
        "--dry-run prints the command",
    ),
)
NO_KERNEL = r"No kernels were profiled"
AVAILABLE = re.compile(r"^\d+\. (.+)$", re.M)  # below ncu's line "Available Kernels:"


@dataclass(frozen=True)
class Selection:
    """The kernels to profile, and how."""

    kernel: str | None  # a regular expression for the function's name
    range: str  # the trainer's range to look in, or "none" for kernels wherever launched
    skip: int
    count: int
    set: str
    clock_control: str


def check_program(program: list[str], range_name: str) -> None:
    """Raise ValueError for a program that could only end without a profiled kernel."""
    if "NSYS_PROFILING_SESSION_ID" in os.environ:
        raise ValueError(
            "ncu: nsys is attached to this shell, and only one profiler can be; start ncu "
            "without nsys"
        )
    has_ranges = any(word.lstrip("-") == "profile=nsys" for word in program)
    if range_name != "none" and not has_ranges:
        raise ValueError(
            f"--range {range_name}: this project's train.py alone pushes such ranges, and only "
            "with profile=nsys; add profile=nsys profile.start=10 profile.steps=1 to its command, "
            "or give --range none for kernels of a program of your own"
        )


def command(ncu: Program, chosen: Selection, report: Path, program: list[str]) -> list[str]:
    words = [ncu.path, "--force-overwrite", "--export", str(report), "--set", chosen.set]
    words += ["--clock-control", chosen.clock_control, "--graph-profiling", "node"]
    if chosen.range != "none":
        # DOMAIN@NAME/ is a push/pop range; without the slash it would be a start/end range
        words += ["--nvtx", "--nvtx-include", f"nanogpt@{chosen.range}/"]
        words += ["--profile-from-start", "off"]
    if chosen.kernel:
        words += ["--kernel-name", f"regex:{chosen.kernel}"]
    words += ["--launch-skip", str(chosen.skip), "--launch-count", str(chosen.count)]
    return [*words, "--kill", "yes", *program]


def explain(output: str, chosen: Selection) -> tuple[str, str]:
    """(why, how to go on) for a program that left no report; `output` is the program's."""
    for pattern, why, cure in CAUSES:
        if re.search(pattern, output):
            return why, cure
    if not re.search(NO_KERNEL, output):
        return "the program or ncu failed", "its last lines are above"
    wanted = f"in the range {chosen.range}" if chosen.range != "none" else "in the program"
    wanted += f" with a name that matches {chosen.kernel}" if chosen.kernel else ""
    wanted += f" after the first {chosen.skip}" if chosen.skip else ""
    available = AVAILABLE.findall(output.split("Available Kernels:")[-1])
    why = f"no kernel ran {wanted}"
    if available:
        return why, f"these kernels ran: {', '.join(available)}"
    return why, (
        "check that the window was opened (profile.start below max_iters), or use --range none for "
        "all kernels"
    )
