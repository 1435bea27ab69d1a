"""`python -m profiling doctor`: what profiling needs of this machine, line by line, with cures."""

import argparse
import glob
import importlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from profiling.tools import nsys_tool
from profiling.verbs.run import refuse

HELP = """\
Checks what profiling needs of this machine: nsys, ncu, permissions, CUPTI, driver, torch, NVML,
W&B, disk. Nothing is changed.

usage: python -m profiling doctor [--json]

  ok        works
  note      cannot be had here and need not (all that wants a GPU, without one)
  warning   part of a capture will be missing: counters, samples, space
  error     captures will fail

exit code: 0 with nothing above a note, 1 with a warning, 2 with an error

examples
  python -m profiling doctor
  python -m profiling doctor --json | jq '.checks[] | select(.severity != "ok")'
"""

SEVERITIES = ("ok", "note", "warning", "error")
EXIT_CODES = {"ok": 0, "note": 0, "warning": 1, "error": 2}
STYLES = {"ok": "green", "note": "dim", "warning": "yellow", "error": "bold red"}

PROC = Path("/proc")
NCU_PLACES = (
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/cuda*/bin/ncu",
    "/usr/local/cuda*/nsight-compute*/ncu",
)
SCARCE_BYTES, FULL_BYTES = 5e9, 5e8  # a long capture with GPU metrics takes gigabytes on its way
NO_GPU = "not applicable: no GPU"


@dataclass(frozen=True)
class Check:
    name: str
    severity: str
    finding: str
    cure: str = ""


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = refuse
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args(argv).json
    found = list(checks(has_gpu()))
    worst = max((check.severity for check in found), key=SEVERITIES.index)
    if as_json:
        print(json.dumps({"worst": worst, "checks": [asdict(check) for check in found]}, indent=2))
    elif sys.stdout.isatty():
        print_table(found)
    else:
        print_lines(found)
    return EXIT_CODES[worst]


def has_gpu() -> bool:
    return bool(glob.glob("/dev/nvidia[0-9]*")) or Path("/dev/dxg").exists()  # the latter: WSL


def checks(gpu: bool) -> Iterator[Check]:
    yield from nsys(gpu)
    yield ncu(gpu)
    yield perf_events()
    yield counters(gpu)
    yield driver(gpu)
    yield from torch_build(gpu)
    yield from nvml(gpu)
    yield nvtx()
    yield wandb()
    yield disk(Path.cwd())
    yield compiler()


def nsys(gpu: bool) -> Iterator[Check]:
    """The one that `profiling run` takes, its importer, and the others."""
    found = nsys_tool.installed()
    if not found:
        finding, _, cure = nsys_tool.NOT_FOUND.partition("; ")
        yield Check("nsys", "error" if gpu else "note", finding, cure)
        return
    path, version = found[0]
    others = "".join(f"; also {v} at {p}" for p, v in found[1:])
    yield Check("nsys", "ok", f"{version} at {path}{others}")
    if problem := nsys_tool.importer_problem(path):
        finding, _, cure = problem.rpartition("; ")
        yield Check("nsys importer", "error" if gpu else "warning", finding, cure)
    elif program := nsys_tool.importer(path):
        yield Check("nsys importer", "ok", str(program))
    else:
        finding = "no QdstrmImporter beside it: reports may stay .qdstrm files"
        yield Check("nsys importer", "note", finding, "import them where Nsight Systems is whole")


def ncu(gpu: bool) -> Check:
    paths = [shutil.which("ncu"), *(path for place in NCU_PLACES for path in glob.glob(place))]
    for path in dict.fromkeys(filter(None, paths)):
        if match := re.search(r"20\d\d(\.\d+)+", nsys_tool.run([path, "--version"])):
            return Check("ncu", "ok", f"{match[0]} at {path}")
    cure = "install Nsight Compute, for single kernels (package nsight-compute)"
    return Check("ncu", "warning" if gpu else "note", "not found", cure)


def perf_events() -> Check:
    """Above 2 the kernel gives a user no CPU samples, which preset full wants."""
    name = "perf_event_paranoid"
    try:
        level = int((PROC / "sys/kernel/perf_event_paranoid").read_text())
    except (OSError, ValueError):
        return Check(name, "note", "not readable: CPU samples (--preset full) may be missing")
    if level <= 2 or os.geteuid() == 0:
        return Check(name, "ok", str(level))
    finding = f"{level}: no CPU samples in --preset full"
    return Check(name, "note", finding, "sudo sysctl kernel.perf_event_paranoid=2")


def counters(gpu: bool) -> Check:
    """Whether nsys and ncu may read the GPU's performance counters."""
    name = "GPU counters"
    if not gpu:
        return Check(name, "note", NO_GPU)
    try:
        parameters = (PROC / "driver/nvidia/params").read_text()
    except OSError:
        return Check(name, "note", "/proc/driver/nvidia/params is not readable: try and see")
    if not re.search(r"^RmProfilingAdminOnly: 1", parameters, re.M):
        return Check(name, "ok", "for every user (RmProfilingAdminOnly: 0)")
    if os.geteuid() == 0:
        return Check(name, "ok", "for the administrator, which you are (a container may not count)")
    return Check(
        name,
        "warning",
        "for the administrator only (RmProfilingAdminOnly: 1): no --preset metrics, no ncu",
        "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, and reboot",
    )


def driver(gpu: bool) -> Check:
    try:
        text = (PROC / "driver/nvidia/version").read_text()
        return Check("driver", "ok", re.search(r"\d{3,}\.\d+(\.\d+)?", text)[0])
    except (OSError, TypeError):
        return Check("driver", "note", "no version in /proc/driver/nvidia" if gpu else NO_GPU)


def torch_build(gpu: bool) -> Iterator[Check]:
    """torch against the driver, and CUPTI, through which torch.profiler and nsys see kernels."""
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
    finding = f"{torch.__version__}, built for {build}"
    if torch.cuda.is_available():
        finding += f", on {torch.cuda.get_device_name()}"
        yield Check("torch", "ok", finding)
    elif not gpu:
        yield Check("torch", "note", f"{finding}; trains on the CPU here")
    elif torch.version.cuda:
        cure = "a newer driver, or a torch for this driver's CUDA (pytorch.org/get-started)"
        yield Check("torch", "error", f"{finding}, but finds no usable GPU", cure)
    else:
        cure = "pip install a CUDA build of torch (pytorch.org/get-started)"
        yield Check("torch", "error", f"{finding}: it cannot use the GPU", cure)

    activities = {activity.name for activity in torch.profiler.supported_activities()}
    if "CUDA" in activities and torch.cuda.is_available():
        yield Check("CUPTI", "ok", "torch.profiler records kernels")
    elif torch.cuda.is_available():
        cure = "pip install a torch with CUPTI: the official builds have it"
        yield Check("CUPTI", "warning", "torch.profiler records no kernels", cure)
    else:
        yield Check("CUPTI", "note", "torch cannot use the GPU" if gpu else NO_GPU)


def nvml(gpu: bool) -> Iterator[Check]:
    """Utilisation, power and clocks; and GPM, Hopper's counters without a profiler."""
    try:
        pynvml = importlib.import_module("pynvml")
    except ImportError:
        finding = "nvidia-ml-py is not installed: no power, clocks, utilisation"
        yield Check("NVML", "warning" if gpu else "note", finding, "pip install nvidia-ml-py")
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield Check("NVML", "warning" if gpu else "note", f"{error}" if gpu else NO_GPU)
        return
    try:
        count = pynvml.nvmlDeviceGetCount()
        yield Check(
            "NVML", "ok", f"driver {text(pynvml.nvmlSystemGetDriverVersion())}, {count} GPU"
        )
        for index in range(count):
            yield gpm(pynvml, index)
    finally:
        pynvml.nvmlShutdown()


def gpm(pynvml, index: int) -> Check:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    name = f"NVML GPM, GPU {index}"
    device = text(pynvml.nvmlDeviceGetName(handle))
    try:
        if pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            return Check(name, "ok", f"{device}: tensor and memory activity while training")
    except (pynvml.NVMLError, AttributeError):
        pass
    return Check(name, "note", f"{device} has none (Hopper and later have)")


def text(value: str | bytes) -> str:
    """Older versions of nvidia-ml-py answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value


def nvtx() -> Check:
    try:
        importlib.import_module("nvtx")
    except ImportError as error:
        return Check("nvtx", "error", f"{error}: no ranges in captures", "pip install nvtx")
    if os.environ.get("NVTX_DISABLE"):
        finding = f"NVTX_DISABLE={os.environ['NVTX_DISABLE']} (any value disables): no ranges"
        return Check("nvtx", "error", finding, "unset NVTX_DISABLE")
    return Check("nvtx", "ok", "importable")


def wandb() -> Check:
    """Whether runs go to the server; never the key itself."""
    from configs.training import WandbConfig
    from training.wandb_mirror import check_wandb

    try:
        mode = check_wandb(WandbConfig())
    except ValueError as error:
        return Check("W&B", "warning", str(error))
    if mode == "online":
        return Check("W&B", "ok", "an API key is present: runs are online")
    return Check("W&B", "note", f"{mode}: metrics.jsonl has everything", "wandb login, if wanted")


def disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    severity = "error" if free < FULL_BYTES else "warning" if free < SCARCE_BYTES else "ok"
    cure = "" if severity == "ok" else "set out_dir and TMPDIR to a larger disk"
    return Check("disk", severity, f"{free / 1e9:.1f} GB free in {folder}", cure)


def compiler() -> Check:
    """torch.compile builds its C++ (CPU) or its launchers (GPU, through Triton) with it."""
    name = "C++ compiler"
    for program in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if path := shutil.which(program):
            return Check(name, "ok", path)
    return Check(name, "warning", "none: compile=true fails", "apt-get install g++")


def print_lines(found: list[Check]) -> None:
    for check in found:
        print(f"{check.severity:8} {check.name}: {check.finding}")
        if check.cure:
            print(f"{'':8} cure: {check.cure}")


def print_table(found: list[Check]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("", "check", "found", box=box.SIMPLE)
    for check in found:
        told = Text(check.finding)
        if check.cure:
            told.append(f"\ncure: {check.cure}", style="cyan")
        table.add_row(Text(check.severity, style=STYLES[check.severity]), check.name, told)
    Console().print(table)
