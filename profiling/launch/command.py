"""The command line of a profiled run, in the spelling of the installed nsys.

Options of a preset that the version lacks are left out, with a note to the user.
"""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from profiling.tools import nsys_tool
from profiling.tools.nsys_tool import Nsys

if TYPE_CHECKING:
    from configs.profiling import ProfileConfig

RANK_PROGRAM = Path(__file__).resolve().parent / "rank.py"
METRICS_HZ = 10_000
PROFILE_NSYS = "profile=nsys"

# CPU sampling is on by default, and multiplies the report's size by a thousand
LIGHT = {"trace": "cuda,nvtx", "sample": "none", "cpuctxsw": "none", "cuda-graph-trace": "node"}
FULL = LIGHT | {"trace": "cuda,nvtx,osrt,cublas,cudnn"}
FULL |= {"sample": "process-tree", "cpuctxsw": "process-tree", "python-sampling": "true"}
# a backtrace of every launch; nsys needs its sampling for the frames of C below those of Python
STACKS = {"sample": "process-tree", "cudabacktrace": "kernel:0", "python-backtrace": "cuda"}
PRESETS = {
    "light": LIGHT,
    "full": FULL,
    "metrics": LIGHT,  # plus GPU metrics, whose options each version spells its own way
    "memory": LIGHT | {"cuda-memory-usage": "true"},
}


def whole_process_prefix(nsys: Nsys, report: Path) -> list[str]:
    """Words to put before a program's, to capture it with preset light from its start to its
    end."""
    options = [f"--{name}={value}" for name, value in LIGHT.items() if nsys.takes(name)]
    return [nsys.path, "profile", *options, "--force-overwrite=true", "-o", str(report)]


def nsys_options(
    nsys: Nsys,
    preset: str,
    windows: int,
    metric_set: str | None,
    per_rank: bool,
    extra: list[str],
    whole: bool = False,
    stack: bool = False,
) -> tuple[list[str], list[str]]:
    """(options of `nsys profile`, a line about each that this version lacks).

    `extra` are the user's own options: they come last, as they stand, and replace the preset's.
    `whole`: nsys records from the start to the end, not the windows that the program opens.
    `stack`: with the Python stack of each launch.
    """
    wanted = dict(PRESETS[preset])
    if preset == "metrics":
        wanted |= metric_options(nsys, per_rank)
    if metric_set:
        wanted["gpu-metrics-set"] = nsys.metric_set(metric_set)
    if not whole:
        wanted["capture-range"] = "cudaProfilerApi"
        wanted["capture-range-end"] = range_end(nsys, windows)
        wanted["wait"] = "primary"  # a compiler's worker may outlive the program and never end
    wanted["discard-environment"] = "true"
    wanted["force-overwrite"] = "true"  # an interrupted run may have left a report in our folder
    notes = []
    if stack and nsys.takes("python-backtrace"):
        wanted |= STACKS
    elif stack:
        notes.append(f"nsys {nsys.version} has no --python-backtrace: no lines of the program")
    if windows > 1 and wanted.get("capture-range-end") == "stop":
        notes.append(f"nsys {nsys.version} records one window: the first of {windows}")
    own = option_names(nsys, extra)
    wanted = {name: value for name, value in wanted.items() if name not in own}
    for name in [name for name in wanted if not nsys.takes(name)]:
        notes.append(f"nsys {nsys.version} has no --{name}: left out{EFFECTS.get(name, '')}")
        del wanted[name]
    if "trace" in wanted:
        words = wanted["trace"].split(",")
        lacking = [word for word in words if not nsys.takes("trace", word)]
        wanted["trace"] = ",".join(word for word in words if word not in lacking)
        notes += [f"nsys {nsys.version} does not trace {word}: left out" for word in lacking]
    return [*(f"--{name}={value}" for name, value in wanted.items()), *extra], notes


EFFECTS = {
    "cuda-graph-trace": "; a CUDA graph appears as one block",
    "discard-environment": "; the report contains the environment (without the secrets)",
    "gpu-metrics-devices": "; no GPU metrics",
    "capture-range-end": "; training ends with the window",
}


def metric_options(nsys: Nsys, per_rank: bool) -> dict[str, str]:
    """Options for metrics of the GPUs that training sees; the metric set is nsys's choice.

    `per_rank`: {gpu} stands for the GPU of the rank, which profiling.launch.rank fills in.
    """
    devices = "gpu-metrics-devices"
    if not nsys.takes(devices) and nsys.takes("gpu-metrics-device"):
        devices = "gpu-metrics-device"
    which = "cuda-visible" if nsys.takes(devices, "cuda-visible") else "all"
    return {devices: "{gpu}" if per_rank else which, "gpu-metrics-frequency": str(METRICS_HZ)}


def range_end(nsys: Nsys, windows: int) -> str:
    """Value of --capture-range-end: what nsys does at cudaProfilerStop. By default it would end the
    program."""
    if windows > 1 and "repeat" in nsys.options.get("capture-range-end", ""):
        return f"repeat:{windows}"
    return "stop"


def option_names(nsys: Nsys, words: list[str]) -> list[str]:
    """Long names of the options among the words."""
    names = []
    for word in words:
        if word.startswith("--"):
            names.append(word[2:].split("=")[0])
        elif word.startswith("-"):
            names.append(nsys.letters.get(word[1:2], word[1:2]))
    return names


def chosen_ranks(
    words: list[str],
    profile: "ProfileConfig",
    asked: list[int] | Literal["all"] | None,
    processes: int | None,
) -> list[int] | None:
    """The ranks to record, those of --ranks (`asked`) or of profile.ranks; None without torchrun.

    `processes` is --nproc-per-node. Raises ValueError if the two differ, or name ranks that are not
    started.
    """
    if processes is None:
        if asked is not None:
            raise ValueError("--ranks: needs --nproc-per-node, which starts several ranks")
        return None
    configured = profile.captured_ranks(processes)
    if asked == "all":
        asked = list(range(processes))
    typed_key = any(word.removeprefix("--").startswith("profile.ranks=") for word in words)
    if typed_key and asked not in (None, configured):
        raise ValueError("--ranks: differs from profile.ranks; give only one of the two")
    ranks = configured if asked is None else asked
    if not ranks or ranks[0] < 0 or ranks[-1] >= processes:
        started = f"--nproc-per-node {processes} starts ranks 0 to {processes - 1}"
        raise ValueError(f"--ranks {spell(ranks)}: {started}")
    return ranks


def training_command(trainer: list[str], words: list[str], ranks: list[int] | None) -> list[str]:
    """Command line of the trainer with the user's words, profile=nsys and, under torchrun, the
    chosen ranks.

    `trainer` are python's arguments, usually train.py.
    """
    keys = [word.removeprefix("--").split("=")[0] for word in words]
    added = [] if "profile" in keys else [PROFILE_NSYS]
    if ranks is not None and "profile.ranks" not in keys:
        added.append(f"profile.ranks=[{spell(ranks)}]")
    return [sys.executable, "-u", *trainer, *words, *added]


def whole_command(
    nsys: Nsys,
    options: list[str],
    folder: Path,
    program: list[str],
    processes: int | None,
    ranks: list[int] | None,
) -> list[str]:
    """Command line of nsys with the program or, with `ranks`, of torchrun with an nsys in each of
    these ranks."""
    name = str(folder / "nsys").replace("%", "%%")  # nsys expands %q{NAME}, %p, %h
    if ranks is None:
        return [nsys.path, "profile", *options, "-o", name, *program]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += [f"--nproc_per_node={processes}", str(RANK_PROGRAM), spell(ranks)]
    inner = [nsys.path, "profile", *options, "-o", f"{name}-rank%q{{RANK}}"]
    return [*torchrun, *inner, "--", *program]


def environment_notes(nsys: Nsys, removed: list[str]) -> list[str]:
    """Notes to print before the start, about variables that the run does not get and about nsys.

    `removed` are the names of these variables.
    """
    notes = []
    if removed:
        notes.append(
            f"not passed to the run, so that the report does not contain them: {', '.join(removed)}"
        )
    if "WANDB_API_KEY" in removed:
        notes.append("W&B records offline unless `wandb login` has stored a key in the home folder")
    if problem := nsys_tool.importer_problem(nsys.path):
        notes.append(f"warning: the report will stay a .qdstrm file: {problem}")
    return notes


def shell_command(words: list[str], removed: list[str]) -> str:
    """The command as one types it in a shell, with `env -u` for each removed variable."""
    without = [word for name in removed for word in ("-u", name)]
    return shlex.join(["env", *without, *words] if removed else words)


def spell(ranks: list[int]) -> str:
    return ",".join(map(str, ranks))
