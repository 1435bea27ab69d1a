"""Measurements of model.py's attention backends, one by one. Called by profiling.verbs.attention.

Each measurement becomes a row, the same in table, JSON and page.
"""

import re
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from cli.errors import one_line
from configs.backends import pinned_kernel
from model import attention_in_force
from profiling.lab.attention_work import Call, Case, errors, flops, minimal_bytes, reference
from profiling.lab.device import GBPS, TFLOPS, device_name, in_unit, rate
from profiling.lab.footprint import (
    Launched,
    begin_memory,
    host_memory_shortage,
    kernels_of_calls,
    operators_of,
    out_of_memory,
    peak_memory,
)
from profiling.lab.timer import empty_launch, measure
from profiling.recording import dynamo
from profiling.shared.hardware import peak_bytes_per_s, peak_flops_per_s
from profiling.shared.kernel_names import fused_attention
from profiling.shared.measurements import (
    BACKENDS,
    COMPILE,
    Attempt,
    AttentionResults,
    LaunchCount,
    Measurement,
    Status,
    Timing,
)
from training.step.attention_proof import CPU_OPERATORS

REFERENCE_TOKENS = 4096  # heads x tokens that are compared with a float64 reference
OTHER_KERNELS = r"not used because|runtime disabled"
MATRICES = 6  # seq x seq matrices that an unfused backend holds at once, about


def results_of(
    cases: list[Case], tokens: int | None, max_s: float, say: Callable[[str], None]
) -> AttentionResults:
    """Measure all cases, which differ only in backend and shape.

    `tokens` is the number in a call, for the record. `max_s` bounds one measurement, in seconds.
    `say` is called with each case before it is measured.
    """
    rows: list[Attempt] = []
    for case in cases:
        say(f"{case.backend}, {' x '.join(map(str, vars(case.shape).values()))}")
        rows += measure_case(case, max_s)
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


def measure_case(case: Case, max_s: float) -> list[Attempt]:
    """Measure a case: a row for each direction, or a single one saying why the backend cannot."""
    dynamo.forget()  # each shape compiles for itself, as a model of that shape would
    begin_memory(case.device)
    if reason := why_impossible(case):
        return [failed_attempt(case, "refused", reason)]
    if reason := host_memory_shortage(needed_host_bytes(case)):
        return [failed_attempt(case, "out_of_memory", reason)]
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True, action="always") as caught:
            call = Call(case)
            results = first_run(call)
        return [*measurements(call, results, max_s)]
    except (RuntimeError, ValueError) as error:  # PyTorch has both, and subclasses of its own
        if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
            return [failed_attempt(case, "out_of_memory", out_of_memory(str(error), case.device))]
        messages = [str(warning.message) for warning in caught]
        return [failed_attempt(case, "refused", refusal(case, messages, str(error)))]


def why_impossible(case: Case) -> str | None:
    """Why the backend cannot compute the case, or None. model.py's configuration refuses the
    same."""
    backend = BACKENDS[case.backend]
    if not backend.dropout and case.dropout > 0:
        return f"{backend.meaning} has no dropout"
    if backend.cuda_only and case.device.type != "cuda":
        return f"runs only on CUDA, and this device is a {case.device.type.upper()}"
    return None


def needed_host_bytes(case: Case) -> int:
    """Approximate bytes of host memory that the case needs; 0 on a GPU and for fused backends."""
    if case.device.type == "cuda" or BACKENDS[case.backend].fused:
        return 0
    element_bytes: int = getattr(torch, case.dtype).itemsize
    return MATRICES * case.shape.batch * case.shape.heads * case.shape.seq**2 * element_bytes


def refusal(case: Case, messages: list[str], error: str) -> str:
    """Why PyTorch refused the case, on one line of up to 400 characters.

    PyTorch warns with the reason of each kernel, and that the other kernels are off; then it raises
    `error`. `messages` are those warnings.
    """
    reasons = [line.split(" (Triggered")[0] for line in messages]
    reasons = [line for line in reasons if not re.search(OTHER_KERNELS, line)]
    if pinned_kernel(case.backend) is None or not reasons:
        reasons = [error.split("\n\n")[0]]
    return one_line("; ".join(dict.fromkeys(reasons)))[:400]


def failed_attempt(case: Case, status: Status, reason: str) -> Attempt:
    """One row for both directions: `measure_case` cannot have one without the other."""
    return attempt(case, " + ".join(case.directions), status, reason)


def attempt(case: Case, direction: str, status: Status, reason: str | None) -> Attempt:
    asked = vars(case.shape) | {"dtype": case.dtype, "dropout": case.dropout}
    return Attempt(case.backend, direction, **asked, status=status, reason=reason)


def first_run(call: Call) -> list[Tensor]:
    """Output of the first run and, if asked for, the gradients, cut to the slice that is
    compared."""
    heads = max(1, min(call.inputs[0].size(1), REFERENCE_TOKENS // call.inputs[0].size(2)))
    results = [call.forward()[:1, :heads].detach().clone()]
    if call.case.backward:
        results += [grad[:1, :heads].clone() for grad in call.backward()]
    call.out = None
    return results


def exact_results(call: Call, heads: int) -> list[Tensor]:
    """The float64 reference for what `first_run` returns."""
    q, k, v = (tensor.detach()[:1, :heads] for tensor in call.inputs)
    return reference(q, k, v, None if call.out_grad is None else call.out_grad[:1, :heads])


def measurements(call: Call, results: list[Tensor], max_s: float) -> list[Measurement]:
    """A row for each direction. `results` are those of the first run, which also compiled."""
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
        text = note(case, ran, fused_calls) if finite else "THE RESULT IS NOT FINITE"
        rows.append(
            measurement(case, direction, timing, peaks[direction], error, launched[direction], text)
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
    """A measurement's row, with rates and their shares of the data sheet's peaks; a share is None
    if the peak is unknown."""
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
    """Backend of the fused kernels that ran, or `unfused`; None if the kernels are not known."""
    if kernels is None:
        return None
    names = [kernel.name for kernel in kernels]
    if case.device.type == "cuda":
        return "+".join(fused_attention(names)) or "unfused"
    parts = {part: backend for part, backend in CPU_OPERATORS.items() if backend != "math"}
    backends = {backend for part, backend in parts.items() if any(part in name for name in names)}
    return "+".join(backends) or "unfused"


def note(case: Case, ran: str | None, fused_calls: int) -> str | None:
    """A note for a row whose backend was not what ran, or None."""
    device = case.device.type
    inside = attention_in_force(case.backend, device, case.dropout)
    if inside != case.backend:
        return f"with dropout, the {inside} kernel computes this on a {device.upper()}"
    if case.backend == COMPILE.name and fused_calls:
        return "torch.compile replaced this backend by a fused call"
    if case.backend == "flex" and device != "cuda":
        return "not compiled: PyTorch's own slow implementation ran"
    expected = case.backend if BACKENDS[case.backend].fused else "unfused"
    return None if ran in (None, expected) else f"{ran} ran instead of {expected}"
