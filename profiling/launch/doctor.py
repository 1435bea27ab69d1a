"""Checks of what profiling needs on this machine, each with a cure if something is amiss."""

import glob
import importlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from cli.extras import READING, TRAINING, WANDB, Part
from profiling.tools import nsight, nsys_tool, py_spy

SEVERITIES = ("ok", "note", "warning", "error")
PROC = Path("/proc")
SCARCE_BYTES, FULL_BYTES = 5e9, 5e8  # a long capture with GPU metrics takes gigabytes on its way
NO_GPU = "not applicable: no GPU"
READS_OWN = 1  # Yama lets a process be read by one that it names, as our hook names `run`


@dataclass(frozen=True)
class Check:
    name: str
    severity: str  # of SEVERITIES
    finding: str
    cure: str = ""


@dataclass(frozen=True)
class Tool:
    """A way to profile, and the checks that must pass for it to work."""

    name: str
    checks: tuple[str, ...]
    needs_gpu: bool = True


TOOLS = (
    Tool("torch.profiler", ("torch", "CUPTI"), needs_gpu=False),
    Tool("memory", ("torch",)),
    Tool("nsys", ("nsys", "nsys importer", "nvtx", "torch")),
    Tool("GPU counters", ("nsys", "GPU counters")),
    Tool("ncu", ("ncu", "GPU counters", "torch")),
    Tool("power and clocks", ("NVML",)),
)


def summary(results: list[Check], gpu: bool) -> str:
    """The last line, such as 'can profile: torch.profiler; cannot: nsys, ncu (no GPU here)'."""
    amiss = [check.name for check in results if check.severity in ("warning", "error")]
    can: list[str] = []
    cannot: dict[str, list[str]] = {}  # the reason -> the tools
    for tool in TOOLS:
        missing = [name for name in tool.checks if name in amiss]
        if tool.needs_gpu and not gpu:
            cannot.setdefault("no GPU here", []).append(tool.name)
        elif missing:
            cannot.setdefault(f"see {missing[0]} above", []).append(tool.name)
        else:
            can.append(tool.name)
    parts = [f"can profile: {', '.join(can) or 'nothing'}"]
    if cannot:
        groups = [f"{', '.join(tools)} ({why})" for why, tools in cannot.items()]
        parts.append(f"cannot: {', '.join(groups)}")
    return "; ".join(parts)


def not_applicable(results: list[Check]) -> Check | None:
    """One row for all checks that do not apply without a GPU, or None if there are none."""
    names = [check.name for check in results if check.finding == NO_GPU]
    return Check(", ".join(names), "note", NO_GPU) if names else None


def has_gpu() -> bool:
    return bool(glob.glob("/dev/nvidia[0-9]*")) or Path("/dev/dxg").exists()  # the latter: WSL


def checks(gpu: bool) -> Iterator[Check]:
    yield packages("reads captures", READING)
    yield packages("trains", TRAINING)
    yield packages("shows in W&B", WANDB)
    yield from nsys(gpu)
    yield ncu(gpu)
    yield stack_samples()
    yield perf_events()
    yield counters(gpu)
    yield driver(gpu)
    yield from torch_build(gpu)
    yield from nvml(gpu)
    yield nvtx()
    yield wandb()
    yield disk(Path.cwd())
    yield compiler()


def packages(name: str, part: Part) -> Check:
    """Versions of the packages that a part of this project needs, or the names of those missing."""
    versions, missing = [], []
    for package in part.modules.values():
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        return Check(name, "note", f"not installed: {', '.join(missing)}", part.cure)
    return Check(name, "ok", ", ".join(versions))


def nsys(gpu: bool) -> Iterator[Check]:
    """Check for nsys: the one that `profiling run` takes, any others, and its importer."""
    programs = nsight.installed_programs("nsys")
    yield tool("nsys", programs, "error" if gpu else "note")
    if not programs:
        return
    path = programs[0].path
    if problem := nsys_tool.importer_problem(path):
        finding, _, cure = problem.rpartition("; ")
        yield Check("nsys importer", "error" if gpu else "warning", finding, cure)
    elif program := nsys_tool.importer(path):
        yield Check("nsys importer", "ok", str(program))
    else:
        finding = "no QdstrmImporter next to nsys: reports may stay .qdstrm files"
        yield Check(
            "nsys importer",
            "note",
            finding,
            "import them on a machine with a complete Nsight Systems",
        )


def ncu(gpu: bool) -> Check:
    return tool("ncu", nsight.installed_programs("ncu"), "warning" if gpu else "note")


def tool(name: str, programs: list[nsight.Program], severity: str) -> Check:
    """Check that a tool is installed; `severity` is that of the check if it is not."""
    if programs:
        return Check(name, "ok", "; also ".join(f"{p.version} at {p.path}" for p in programs))
    finding, _, cure = nsight.NOT_FOUND[name].partition("; ")
    return Check(name, severity, finding, cure)


def perf_events() -> Check:
    """Check perf_event_paranoid: above 2 the kernel gives a user no CPU samples, which preset full
    wants."""
    name = "perf_event_paranoid"
    try:
        level = int((PROC / "sys/kernel" / name).read_text())
    except (OSError, ValueError):
        return Check(name, "note", "not readable: CPU samples (--preset full) may be missing")
    if level <= 2 or os.geteuid() == 0:
        return Check(name, "ok", str(level))
    finding = f"{level}: no CPU samples in --preset full"
    return Check(name, "note", finding, "sudo sysctl kernel.perf_event_paranoid=2")


def counters(gpu: bool) -> Check:
    """Check whether nsys and ncu may read the GPU's performance counters."""
    name = "GPU counters"
    if not gpu:
        return Check(name, "note", NO_GPU)
    try:
        parameters = (PROC / "driver/nvidia/params").read_text()
    except OSError:
        return Check(
            name, "note", "unknown, because /proc/driver/nvidia/params is not readable: try it"
        )
    if not re.search(r"^RmProfilingAdminOnly: 1", parameters, re.M):
        return Check(name, "ok", "available to every user (RmProfilingAdminOnly: 0)")
    if os.geteuid() == 0:
        return Check(
            name,
            "ok",
            "available to the administrator, and you are one (this may not be true in a container)",
        )
    return Check(
        name,
        "warning",
        "available only to the administrator (RmProfilingAdminOnly: 1): no --preset metrics, no "
        "ncu",
        "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, and reboot",
    )


def driver(gpu: bool) -> Check:
    with suppress(OSError):
        text = (PROC / "driver/nvidia/version").read_text()
        if version := re.search(r"\d{3,}\.\d+(\.\d+)?", text):
            return Check("driver", "ok", version[0])
    return Check("driver", "note", "no version in /proc/driver/nvidia" if gpu else NO_GPU)


def torch_build(gpu: bool) -> Iterator[Check]:
    """Check torch against the driver, and CUPTI, through which torch.profiler and nsys see
    kernels."""
    try:
        import torch
    except ModuleNotFoundError:
        finding = "not installed here; a program that is captured brings its own"
        yield Check("torch", "note", finding, TRAINING.cure)
        return

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
    finding = f"{torch.__version__}, built for {build}"
    if torch.cuda.is_available():
        finding += f", on {torch.cuda.get_device_name()}"
        yield Check("torch", "ok", finding)
    elif not gpu:
        yield Check("torch", "note", f"{finding}; training runs on the CPU here")
    elif torch.version.cuda:
        cure = (
            "install a newer driver, or a torch build for the CUDA version of this driver "
            "(pytorch.org/get-started)"
        )
        yield Check("torch", "error", f"{finding}, but torch finds no usable GPU", cure)
    else:
        cure = "pip install a CUDA build of torch (pytorch.org/get-started)"
        yield Check("torch", "error", f"{finding}: this build of torch cannot use the GPU", cure)

    if not torch.cuda.is_available():
        yield Check("CUPTI", "note", "torch cannot use the GPU" if gpu else NO_GPU)
    elif any(kind.name == "CUDA" for kind in torch.profiler.supported_activities()):
        yield Check("CUPTI", "ok", "torch.profiler records kernels")
    else:
        cure = "pip install a torch build with CUPTI, such as an official build"
        yield Check("CUPTI", "warning", "torch.profiler records no kernels", cure)


def nvml(gpu: bool) -> Iterator[Check]:
    """Check NVML (utilisation, power and clocks) and GPM (Hopper's counters without a profiler)."""
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
        count, version = pynvml.nvmlDeviceGetCount(), pynvml.nvmlSystemGetDriverVersion()
        yield Check("NVML", "ok", f"driver {version}, {count} GPU")
        for index in range(count):
            yield gpm(pynvml, index)
    finally:
        pynvml.nvmlShutdown()


def gpm(pynvml: ModuleType, index: int) -> Check:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    name = f"NVML GPM, GPU {index}"
    device = pynvml.nvmlDeviceGetName(handle)
    with suppress(pynvml.NVMLError):
        if pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            return Check(
                name, "ok", f"{device}: shows tensor core and memory activity during training"
            )
    return Check(name, "note", f"{device} does not support it (Hopper and later do)")


def nvtx() -> Check:
    try:
        importlib.import_module("nvtx")
    except ModuleNotFoundError:
        severity = "error" if find_spec("torch") else "note"
        return Check("nvtx", severity, "not installed: no ranges of our training", TRAINING.cure)
    except ImportError as error:
        return Check("nvtx", "error", f"{error}: no ranges in captures", "pip install nvtx")
    if os.environ.get("NVTX_DISABLE"):
        finding = f"NVTX_DISABLE={os.environ['NVTX_DISABLE']} (any value disables): no ranges"
        return Check("nvtx", "error", finding, "unset NVTX_DISABLE")
    return Check("nvtx", "ok", "importable")


def wandb() -> Check:
    """Check whether runs go to W&B's server; the key itself is never shown."""
    from configs.training import WandbConfig
    from training.metrics.wandb_settings import check_wandb

    if find_spec("wandb") is None:
        return Check("W&B", "note", "not installed: metrics.jsonl has all metrics", WANDB.cure)
    try:
        mode = check_wandb(WandbConfig())
    except ValueError as error:
        return Check("W&B", "warning", str(error))
    if mode == "online":
        return Check("W&B", "ok", "an API key is present: runs are online")
    return Check(
        "W&B",
        "note",
        f"{mode}: metrics.jsonl has all metrics",
        "run wandb login if you want to use W&B",
    )


def stack_samples() -> Check:
    """Check for py-spy, with which `run` names the function of a pause."""
    name = "py-spy"
    if (path := py_spy.find()) is None:
        cure = "pip install '.[stack]' on Linux; without it, run --stack names a pause's function"
        return Check(name, "note", "not found", cure)
    scope = PROC / "sys/kernel/yama/ptrace_scope"
    if os.geteuid() and scope.exists() and int(scope.read_text()) > READS_OWN:
        finding = f"{path} may not read programs: {scope} is above {READS_OWN}"
        return Check(name, "note", finding, f"sysctl kernel.yama.ptrace_scope={READS_OWN}, as root")
    return Check(name, "ok", path)


def disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    severity = "error" if free < FULL_BYTES else "warning" if free < SCARCE_BYTES else "ok"
    cure = "" if severity == "ok" else "set out_dir and TMPDIR to folders on a larger disk"
    return Check("disk", severity, f"{free / 1e9:.1f} GB free in {folder}", cure)


def compiler() -> Check:
    """Check for a C++ compiler: torch.compile builds its C++ (CPU) or its launchers (GPU, through
    Triton) with it."""
    name = "C++ compiler"
    for program in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if path := shutil.which(program):
            return Check(name, "ok", path)
    return Check(name, "warning", "none: compile=true fails", "apt-get install g++")
