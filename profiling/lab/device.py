"""The lab's device: choosing it, and measuring its rates beside the data sheet's."""

import os
import re
from collections.abc import Callable

import pynvml
import torch

from profiling.lab.timer import empty_launch, measure
from profiling.recording.nvml import handle_of
from profiling.shared.hardware import peak_bytes_per_s, peak_flops_per_s
from profiling.shared.measurements import DeviceResults, Rate, Ridge, Timing
from profiling.shared.units import counted
from training.machine.device import resolve_device

COPY_BYTES = {"cuda": 2**30, "cpu": 2**28}  # each way; far beyond any cache
# a CPU without units for float16 takes seconds for a product, and the trainer refuses it there
DTYPES = {"cuda": ("float32", "bfloat16", "float16"), "cpu": ("float32", "bfloat16")}
MATRIX = {"cuda": 8192, "cpu": 1024}
TFLOPS, GBPS = "TFLOP/s", "GB/s"
PER_S = {TFLOPS: 1e12, GBPS: 1e9}  # FLOP or byte a second
FLOAT32_SLOWER = 2  # factor by which the matrix is smaller: without matrix units it takes longer


def lab_device(word: str) -> torch.device:
    """The device that --device names; `auto` is the GPU if there is one.

    Raises ValueError for a device that does not exist here.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", word):
        raise ValueError(f"--device {word}: must be auto, cpu, cuda or cuda:N")
    if word == "auto" and not torch.cuda.is_available():
        word = "cpu"
    device = resolve_device(word)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {counted(torch.get_num_threads(), 'thread')}"


def measure_device(device: torch.device, max_s: float, say: Callable[[str], None]) -> DeviceResults:
    """Measure rates beside their nominal peaks, the empty launch, and ridge points.

    The result also has the driver's facts. `say` is called with what is measured next; `max_s`
    bounds one measurement, in seconds.
    """
    name, cuda = device_name(device), device.type == "cuda"
    known = torch.cuda.get_device_properties(device) if cuda else None
    empty = empty_launch(device) if cuda else None
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    sm_clock_mhz, memory_clock_mhz = clocks(device) if cuda else (None, None)
    say("copy of memory")
    moved = COPY_BYTES[device.type]
    copy = copy_timing(torch.ones(moved // 4, device=device), max_s)
    bandwidth = rate("copy of memory", GBPS, copy, 2 * moved, peak_bytes_per_s(name))
    products = {}
    for dtype in DTYPES[device.type]:
        what, nominal = f"matrix product, {dtype}", peak_flops_per_s(name, dtype)
        say(what)
        products[dtype] = rate(what, TFLOPS, *product_timing(device, dtype, max_s), nominal)
    return DeviceResults(
        torch=str(torch.__version__),
        device=name,
        capability=f"{known.major}.{known.minor}" if known else None,
        multiprocessors=known.multi_processor_count if known else None,
        l2_bytes=known.L2_cache_size if known else None,
        memory_bytes=known.total_memory if known else host_bytes,
        sm_clock_mhz=sm_clock_mhz,
        memory_clock_mhz=memory_clock_mhz,
        bandwidth=bandwidth,
        products=products,
        empty_launch_ms=empty.median_ms if empty else None,
        empty_launch_host_ms=empty.launch_ms if empty else None,
        ridge_flops_per_byte={
            dtype: ridge(product, bandwidth) for dtype, product in products.items()
        },
    )


def clocks(device: torch.device) -> tuple[int | None, int | None]:
    """Highest clocks of multiprocessors and memory in MHz, from NVML; None for both without it."""
    try:
        pynvml.nvmlInit()
        handle = handle_of(str(torch.cuda.get_device_properties(device).uuid))
        kinds = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
        sm, memory = (pynvml.nvmlDeviceGetMaxClockInfo(handle, kind) for kind in kinds)
        return sm, memory
    except (AttributeError, pynvml.NVMLError):
        return None, None


def copy_timing(source: torch.Tensor, max_s: float) -> Timing:
    """Timing of `b.copy_(a)`, which reads and writes each byte."""
    target = torch.empty_like(source)
    return measure(lambda: target.copy_(source), source.device, max_s=max_s)


def product_timing(device: torch.device, dtype: str, max_s: float) -> tuple[Timing, int]:
    """(timing of a square matrix product of random numbers, its FLOPs); float32 is without TF32."""
    size = MATRIX[device.type] // (FLOAT32_SLOWER if dtype == "float32" else 1)
    # zeros would toggle fewer bits, take less power and so keep a higher clock
    a, b = torch.randn(2, size, size, device=device, dtype=getattr(torch, dtype))
    out = torch.empty_like(a)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        timing = measure(lambda: torch.mm(a, b, out=out), device, max_s=max_s)
    finally:
        torch.set_float32_matmul_precision(before)
    return timing, 2 * size**3


def rate(what: str, unit: str, timing: Timing, amount: float, nominal: float | None) -> Rate:
    """Rate of a timed call in `unit`. `amount` are FLOPs or bytes of a call, `nominal` is the peak
    of them per second."""
    per_s = amount / timing.median_ms * 1e3
    spread = (timing.ci95_ms[1] - timing.ci95_ms[0]) / 2 / timing.median_ms
    return Rate(
        what,
        unit,
        measured=per_s / PER_S[unit],
        uncertainty_percent=100 * spread,
        nominal=in_unit(unit, nominal),
        percent_of_nominal=100 * per_s / nominal if nominal else None,
    )


def in_unit(unit: str, per_s: float | None) -> float | None:
    return per_s / PER_S[unit] if per_s else None


def ridge(product: Rate, bandwidth: Rate) -> Ridge:
    nominal = None
    if product.nominal and bandwidth.nominal:
        nominal = product.nominal * 1e3 / bandwidth.nominal
    return Ridge(product.measured * 1e3 / bandwidth.measured, nominal)
