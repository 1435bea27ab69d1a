"""The device of the lab: which, and what it can do beside its data sheet. Called by its verbs."""

import os
import re

import pynvml
import torch

from profiling.hardware import peak_bytes_per_s, peak_flops_per_s
from profiling.lab.timer import Timing, empty_launch, measure
from profiling.report.lab.records import DeviceResults, Rate, Ridge
from training.device import resolve_device

COPY_BYTES = {"cuda": 2**30, "cpu": 2**28}  # each way; far beyond any cache
# a CPU without units for float16 takes seconds for a product, and the trainer refuses it there
DTYPES = {"cuda": ("float32", "bfloat16", "float16"), "cpu": ("float32", "bfloat16")}
MATRIX = {"cuda": 8192, "cpu": 1024}
FLOAT32_SLOWER = 2  # a smaller matrix by this factor: without matrix units it takes so much longer


def lab_device(word: str) -> torch.device:
    """`auto` is the GPU where there is one. Raises ValueError for what is not to be had."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", word):
        raise ValueError(f"--device {word}: auto, cpu, cuda or cuda:N")
    if word == "auto" and not torch.cuda.is_available():
        word = "cpu"
    device = resolve_device(word)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def measured(device: torch.device, max_s: float) -> DeviceResults:
    """Rates with their nominal peaks, the empty launch, the ridge points, the driver's facts."""
    name, cuda = device_name(device), device.type == "cuda"
    known = torch.cuda.get_device_properties(device) if cuda else None
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    sm_clock_mhz, memory_clock_mhz = clocks(device) if cuda else (None, None)
    copy, moved = copy_timing(device, max_s)
    nominal_bytes_per_s = peak_bytes_per_s(name)
    bandwidth = rate("copy of memory", "GB/s", copy, moved / 1e9, nominal_bytes_per_s, 1e9)
    products = {}
    for dtype in DTYPES[device.type]:
        timing, work = product_timing(device, dtype, max_s)
        nominal, what = peak_flops_per_s(name, dtype), f"matrix product, {dtype}"
        products[dtype] = rate(what, "TFLOP/s", timing, work / 1e12, nominal, 1e12)
    empty = empty_launch(device) if cuda else None
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
            dtype: Ridge(
                ridge(product.measured, bandwidth.measured),
                ridge(product.nominal, bandwidth.nominal),
            )
            for dtype, product in products.items()
        },
    )


def clocks(device: torch.device) -> tuple[int | None, int | None]:
    """The highest clocks of multiprocessors and memory in MHz, by NVML."""
    try:
        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
        sm, memory = (
            pynvml.nvmlDeviceGetMaxClockInfo(handle, clock)
            for clock in (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)
        )
        return sm, memory
    except (AttributeError, pynvml.NVMLError):
        return None, None


def copy_timing(device: torch.device, max_s: float) -> tuple[Timing, int]:
    """Of `b.copy_(a)`, and the bytes it moves: each is read and written."""
    source = torch.ones(COPY_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    timing = measure(lambda: target.copy_(source), device, max_s=max_s)
    return timing, 2 * source.numel() * source.element_size()


def product_timing(device: torch.device, dtype: str, max_s: float) -> tuple[Timing, int]:
    """Of a square matrix product of random numbers, and its FLOPs. Float32 without TF32."""
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


def rate(
    what: str, unit: str, timing: Timing, amount: float, nominal: float | None, scale: float
) -> Rate:
    """`amount` is in units of a call; `nominal` in FLOP/s or byte/s."""
    value = amount / timing.median_ms * 1e3
    spread = (timing.ci95_ms[1] - timing.ci95_ms[0]) / 2 / timing.median_ms
    return Rate(
        what,
        unit,
        measured=value,
        uncertainty_percent=100 * spread,
        nominal=nominal / scale if nominal else None,
        percent_of_nominal=100 * value * scale / nominal if nominal else None,
    )


def ridge(tflops: float | None, gbps: float | None) -> float | None:
    return tflops * 1e3 / gbps if tflops and gbps else None
