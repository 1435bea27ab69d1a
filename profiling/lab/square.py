"""One operation in six ways, checked and timed beside a copy. Called by profiling.verbs.square."""

import os
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from cli.errors import one_line
from profiling.lab.device import GBPS, copy_timing, device_name, in_unit
from profiling.lab.footprint import quiet_stderr
from profiling.lab.timer import empty_launch, measure
from profiling.recording import dynamo
from profiling.shared.hardware import peak_bytes_per_s
from profiling.shared.measurements import SquareResults, TimedVariant, Timing, Variant

VARIANTS = ("torch.square(a)", "a * a", "a ** 2", "torch.compile", "Triton", "CUDA C++")
EAGER: dict[str, Callable[[Tensor], Tensor]] = {
    "torch.square(a)": torch.square,
    "a * a": lambda a: a * a,
    "a ** 2": lambda a: a**2,
}
CHECKED_ROWS = 256  # checked at a time: the float64 reference of all would need much memory
WIDEST = 16_384
WRONG = "WRONG"
SMALL_ROWS = 4  # for Triton's interpreter


def empty_results(dtype: str, device: torch.device) -> SquareResults:
    """Results without rows yet: `measure_variants` gives them size by size."""
    name, cuda = device_name(device), device.type == "cuda"
    return SquareResults(
        device=name,
        torch=str(torch.__version__),
        dtype=dtype,
        peak_gbps=in_unit(GBPS, peak_bytes_per_s(name)),
        empty_launch_ms=empty_launch(device).median_ms if cuda else None,
        l2_flushed=cuda,
        rows=[],
    )


def matrix(mebibytes: int, dtype: str, device: torch.device) -> Tensor:
    """Random matrix, `mebibytes` in size, about as wide as high but with at most WIDEST columns."""
    elements = mebibytes * 2**20 // getattr(torch, dtype).itemsize
    columns = WIDEST
    while columns**2 > elements:
        columns //= 2
    torch.manual_seed(0)
    return torch.randn(elements // columns, columns, device=device, dtype=getattr(torch, dtype))


def measure_variants(a: Tensor, max_s: float, say: Callable[[str], None]) -> list[Variant]:
    """Measure a row for the copy, which the others are compared with, and one for each variant.

    `say` is called with what is measured next; `max_s` bounds one measurement, in seconds.
    """
    size = f"{a.nbytes // 2**20} MiB"
    say(f"b.copy_(a), {size}")
    copy = copy_timing(a, max_s)
    rows: list[Variant] = [timed_variant("b.copy_(a)", a, copy, copy, None)]
    for name in VARIANTS:
        say(f"{name}, {size}")
        try:
            rows.append(measure_variant(name, a, copy, max_s))
        except (RuntimeError, ValueError) as error:  # a compiler or a device is missing
            rows.append(Variant(name, a.nbytes, None, None, one_line(error)[:300]))
    return rows


def measure_variant(name: str, a: Tensor, copy: Timing, max_s: float) -> TimedVariant:
    """Check and time one variant.

    Raises ValueError if it cannot be timed here, or gives wrong results.
    """
    function = variant(name, a.device)
    if name == "Triton" and a.device.type == "cpu":
        raise ValueError(f"{check(function, a[:SMALL_ROWS])}; interpreted, and therefore not timed")
    result = check(function, a)
    timing = measure(partial(function, a), a.device, max_s=max_s)
    return timed_variant(name, a, timing, copy, result)


def variant(name: str, device: torch.device) -> Callable[[Tensor], Tensor]:
    """The function of a variant. Raises ValueError saying what is missing for it here."""
    if name in EAGER:
        return EAGER[name]
    if name == "torch.compile":
        dynamo.forget()
        return torch.compile(lambda a: a * a, dynamic=False)
    if name == "CUDA C++":
        from profiling.lab.square_cuda import cuda_square

        return cuda_square()
    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError("needs a CUDA GPU; TRITON_INTERPRET=1 checks it on a CPU")
    try:
        from profiling.lab.square_triton import triton_square
    except ImportError as error:
        raise ValueError(f"needs triton: {error}") from error
    return triton_square


def check(function: Callable[[Tensor], Tensor], a: Tensor) -> str:
    """Compare the function's result with float64.

    Returns `exact` if each element is the square rounded once, else how far off the worst is.
    Raises ValueError if that is more than a rounding.
    """
    result = function(a)
    if (result.shape, result.dtype, result.device) != (a.shape, a.dtype, a.device):
        raise ValueError(f"{WRONG}: gave {tuple(result.shape)} {result.dtype} on {result.device}")
    worst = torch.zeros((), dtype=torch.float64, device=a.device)
    for start in range(0, a.size(0), CHECKED_ROWS):
        exact = a[start : start + CHECKED_ROWS].double().square()
        part = result[start : start + CHECKED_ROWS]
        if not torch.equal(part, exact.to(a.dtype)):
            off = (part.double() - exact).abs() / exact.clamp_min(torch.finfo(a.dtype).tiny)
            worst = torch.maximum(worst, off.max())  # keeps a NaN, as Python's max does not
    if not worst <= torch.finfo(a.dtype).eps:
        raise ValueError(f"{WRONG}: off by {worst:.2g} of the value")
    return f"within {worst:.1g}" if worst > 0 else "exact"


def timed_variant(
    name: str, a: Tensor, timing: Timing, copy: Timing, result: str | None
) -> TimedVariant:
    """A timed variant's row; every variant reads and writes each element once, as the copy does."""
    return TimedVariant(
        name=name,
        bytes=a.nbytes,
        median_ms=timing.median_ms,
        result=result,
        missing=None,
        quartiles_ms=timing.quartiles_ms,
        ci95_ms=timing.ci95_ms,
        samples=timing.samples,
        launch_ms=timing.launch_ms,
        gbps=2 * a.nbytes / timing.median_ms / 1e6,
        percent_of_copy=100 * copy.median_ms / timing.median_ms,
    )


def profiler_table(name: str, a: Tensor) -> str:
    """torch.profiler's table of one call, or what the variant lacks here."""
    cuda = a.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    try:
        function = variant(name, a.device)
        function(a)
        with quiet_stderr(), profile(activities=activities) as profiler:
            function(a)
            if cuda:
                torch.cuda.synchronize(a.device)
    except (RuntimeError, ValueError) as error:
        return one_line(error)[:300]
    order = "self_device_time_total" if cuda else "self_cpu_time_total"
    table: str = profiler.key_averages().table(sort_by=order, row_limit=8, max_name_column_width=50)
    return table
