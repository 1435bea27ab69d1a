"""The attention backends of model.py, measured one by one. Called by profiling.verbs.attention.

Each measurement becomes a row, the same in table, JSON and page.
"""

import re
import warnings

import torch
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from cli.errors import one_line
from configs.attention import pinned_kernel
from model import attention_in_force
from profiling.capture import dynamo
from profiling.hardware import peak_bytes_per_s, peak_flops_per_s
from profiling.kernel_names import fused_attention
from profiling.lab.attention_work import Call, Case, errors, flops, minimal_bytes, reference
from profiling.lab.device import GBPS, TFLOPS, device_name, in_unit, rate
from profiling.lab.footprint import (
    Launched,
    begin_memory,
    beyond_host,
    kernels_of_calls,
    operators_of,
    out_of_memory,
    peak_memory,
)
from profiling.lab.timer import Timing, empty_launch, measure
from profiling.measurements import (
    BACKENDS,
    COMPILE,
    Attempt,
    AttentionResults,
    LaunchCount,
    Measurement,
    Status,
)
from training.attention import CPU_OPERATORS

REFERENCE_TOKENS = 4096  # heads x tokens that are compared with float64
OTHER_KERNELS = r"not used because|runtime disabled"
MATRICES = 6  # of seq x seq elements that an unfused backend holds at once, about


def results_of(cases: list[Case], tokens: int | None, max_s: float) -> AttentionResults:
    """All cases, which differ in backend and shape alone. `tokens`: of a call, for the record."""
    rows = measured_in_turn(cases, max_s)
    case, device = cases[0], cases[0].device
    name, cuda = device_name(device), device.type == "cuda"
    return AttentionResults(
        device=name,
        torch=str(torch.__version__),
        dtype=case.dtype,
        dropout=case.dropout,
        heads=case.shape.heads,
        head_dim=case.shape.head_dim,
        tokens=tokens,
        backward=case.backward,
        peak_tflops=in_unit(TFLOPS, peak_flops_per_s(name, case.dtype)),
        peak_gbps=in_unit(GBPS, peak_bytes_per_s(name)),
        empty_launch_ms=empty_launch(device).median_ms if cuda else None,
        l2_flushed=cuda,
        rows=rows,
    )


def measured_in_turn(cases: list[Case], max_s: float) -> list[Attempt]:
    """Says on stderr which is under way and how long the rest may take.

    One line that is written over on a terminal, a line for each case elsewhere; not by a thread of
    rich's, which would run while something is timed.
    """
    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}", markup=False), TimeRemainingColumn()
    rows: list[Attempt] = []
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("", total=len(cases))
        for number, case in enumerate(cases):
            sizes = " x ".join(map(str, vars(case.shape).values()))
            line = f"{number + 1}/{len(cases)}  {case.backend}, {sizes}"
            progress.update(task, completed=number, description=line, refresh=True)
            if not console.is_terminal:
                console.print(progress.get_renderable())
            rows += measured(case, max_s)
    return rows


def measured(case: Case, max_s: float) -> list[Attempt]:
    """A row for each direction; of a backend that cannot, one that says why."""
    dynamo.forget()  # each shape compiles for itself, as a model of that shape would
    begin_memory(case.device)
    if reason := impossible(case):
        return [failed(case, "refused", reason)]
    if reason := beyond_host(needed_bytes(case)):
        return [failed(case, "out_of_memory", reason)]
    warned: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True, action="always") as warned:
            call = Call(case)
            results = first_run(call)
        return [*measurements(call, results, max_s)]
    except (RuntimeError, ValueError) as error:  # PyTorch has both, and subclasses of its own
        if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
            return [failed(case, "out_of_memory", out_of_memory(str(error), case.device))]
        said = [str(warning.message) for warning in warned]
        return [failed(case, "refused", refusal(case, said, str(error)))]


def impossible(case: Case) -> str | None:
    """What model.py's configuration refuses as well."""
    backend = BACKENDS[case.backend]
    if not backend.dropout and case.dropout > 0:
        return f"{backend.meaning} has no dropout"
    if backend.cuda_only and case.device.type != "cuda":
        return f"exists on CUDA only, this is a {case.device.type.upper()}"
    return None


def needed_bytes(case: Case) -> int:
    """Of the host's memory, about; 0 where that is no matter."""
    if case.device.type == "cuda" or BACKENDS[case.backend].fused:
        return 0
    shape, element_bytes = case.shape, getattr(torch, case.dtype).itemsize
    return MATRICES * shape.batch * shape.heads * shape.seq**2 * element_bytes


def refusal(case: Case, said: list[str], error: str) -> str:
    """PyTorch warns of each kernel's reason, of the others' that they are off, and then raises."""
    reasons = [line.split(" (Triggered")[0] for line in said]
    reasons = [line for line in reasons if not re.search(OTHER_KERNELS, line)]
    if pinned_kernel(case.backend) is None or not reasons:
        reasons = [error.split("\n\n")[0]]
    return one_line("; ".join(dict.fromkeys(reasons)))[:400]


def failed(case: Case, status: Status, reason: str) -> Attempt:
    """One row for both directions: `measured` cannot have one without the other."""
    return attempt(case, " + ".join(case.directions), status, reason)


def attempt(case: Case, direction: str, status: Status, reason: str | None) -> Attempt:
    asked = vars(case.shape) | {"dtype": case.dtype, "dropout": case.dropout}
    return Attempt(case.backend, direction, **asked, status=status, reason=reason)


def first_run(call: Call) -> list[Tensor]:
    """The output and, where asked for, the gradients: of the slice that is compared."""
    heads = max(1, min(call.inputs[0].size(1), REFERENCE_TOKENS // call.inputs[0].size(2)))
    results = [call.forward()[:1, :heads].detach().clone()]
    if call.case.backward:
        results += [grad[:1, :heads].clone() for grad in call.backward()]
    call.out = None
    return results


def exact_results(call: Call, heads: int) -> list[Tensor]:
    q, k, v = (tensor.detach()[:1, :heads] for tensor in call.inputs)
    return reference(q, k, v, None if call.out_grad is None else call.out_grad[:1, :heads])


def measurements(call: Call, results: list[Tensor], max_s: float) -> list[Measurement]:
    """`results`: of the first run, which compiled what is compiled."""
    case = call.case
    fused_calls = dynamo.fused_attentions()
    exact = exact_results(call, results[0].size(1)) if case.dropout == 0 else None
    peaks = peak_memory(call)
    launched = kernels_of_calls(call) if case.device.type == "cuda" else operators_of(call)
    rows = []
    for direction in case.directions:
        part = slice(0, 1) if direction == "forward" else slice(1, None)
        prepare = call.forward if direction == "backward" else None
        timing = measure(call.passes[direction], case.device, prepare=prepare, max_s=max_s)
        call.out = None
        error = errors(results[part], exact[part]) if exact else (None, None)
        finite = all(bool(result.isfinite().all()) for result in results[part])
        ran = what_ran(case, launched[direction][0])
        said = note(case, ran, fused_calls) if finite else "THE RESULT IS NOT FINITE"
        rows.append(
            measurement(case, direction, timing, peaks[direction], error, launched[direction], said)
        )
    return rows


def measurement(
    case: Case,
    direction: str,
    timing: Timing,
    peak_memory_bytes: int | None,
    error: tuple[float | None, float | None],
    launched: Launched,
    note: str | None,
) -> Measurement:
    """With the rates, against the data sheet's peaks; None where these are not known."""
    work = flops(case.shape, direction)
    traffic = minimal_bytes(case.shape, direction, getattr(torch, case.dtype).itemsize)
    name = device_name(case.device)
    arithmetic = rate("arithmetic", TFLOPS, timing, work, peak_flops_per_s(name, case.dtype))
    memory = rate("memory", GBPS, timing, traffic, peak_bytes_per_s(name))
    of_peak, of_bandwidth = arithmetic.percent_of_nominal, memory.percent_of_nominal
    return Measurement(
        **vars(attempt(case, direction, "ok", None)),
        **vars(timing),
        flops=work,
        bytes=traffic,
        flops_per_byte=work / traffic,
        tflops=arithmetic.measured,
        percent_of_peak=of_peak,
        gbps=memory.measured,
        percent_of_bandwidth=of_bandwidth,
        percent_of_roof=max(of_peak, of_bandwidth) if of_peak and of_bandwidth else None,
        peak_memory_bytes=peak_memory_bytes,
        max_abs_error=error[0],
        relative_error=error[1],
        kernels=launched[0],
        kernels_missing=launched[1],
        ran=what_ran(case, launched[0]),
        note=note,
    )


def what_ran(case: Case, kernels: list[LaunchCount] | None) -> str | None:
    """The fused kernels' backend, `unfused`, or None: the kernels are not known."""
    if kernels is None:
        return None
    names = [kernel.name for kernel in kernels]
    if case.device.type == "cuda":
        return "+".join(fused_attention(names)) or "unfused"
    parts = {part: backend for part, backend in CPU_OPERATORS.items() if backend != "math"}
    found = {backend for part, backend in parts.items() if any(part in name for name in names)}
    return "+".join(found) or "unfused"


def note(case: Case, ran: str | None, fused_calls: int) -> str | None:
    """Where something else ran than the name of the backend says."""
    device = case.device.type
    inside = attention_in_force(case.backend, device, case.dropout)
    if inside != case.backend:
        return f"with dropout the {inside} kernel computes it on a {device.upper()}"
    if case.backend == COMPILE.name and fused_calls:
        return "torch.compile replaced it by a fused call"
    if case.backend == "flex" and device != "cuda":
        return "not compiled: PyTorch's own slow form of it"
    expected = case.backend if BACKENDS[case.backend].fused else "unfused"
    return None if ran in (None, expected) else f"{ran} ran, not {expected}"
