"""The attention backends of model.py, measured one by one. Called by attention_command.

What is timed is `model.attend` itself, on tensors laid out as the model's: views of one projection.
Each measurement becomes a row: a plain dict, the same in table, JSON and page.
"""

import re
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.utils import counters

from cli.errors import one_line
from configs.attention import TABLE, pinned_kernel
from model import attend, attention_in_force
from profiling.hardware import peak_bytes_per_s, peak_flops_per_s
from profiling.kernel_names import fused_attention
from profiling.lab import memory
from profiling.lab.arguments import device_name
from profiling.lab.attention_work import Shape, errors, flops, minimal_bytes, reference
from profiling.lab.launched import kernels_of_calls, operators_of
from profiling.lab.timer import Timing, measure
from training.attention import CPU_OPERATORS

BACKENDS = (*(each.name for each in TABLE), "compile")  # compile: torch.compile of slow
FUSED = tuple(each.name for each in TABLE if each.fused)
CUDA_ONLY = tuple(each.name for each in TABLE if each.cuda_only)
REFERENCE_TOKENS = 4096  # heads x tokens that are compared with float64
OTHER_KERNELS = r"not used because|runtime disabled"
MATERIALISING = (*(name for name in BACKENDS if name not in FUSED),)
MATRICES = 6  # of seq x seq elements that these hold at once, about
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    backend: str
    shape: Shape
    dtype: str
    dropout: float
    backward: bool  # measure it too; forward then saves what it needs
    device: torch.device


class Call:
    """One case, set up: `forward` and `backward` are what is timed."""

    def __init__(self, case: Case):
        shape = case.shape
        sizes = (shape.batch, shape.seq, shape.heads, shape.head_dim)
        width = shape.heads * shape.head_dim
        options = {"device": case.device, "dtype": getattr(torch, case.dtype)}
        torch.manual_seed(0)
        projected = torch.randn(shape.batch, shape.seq, 3 * width, **options)  # c_attn's output
        self.inputs = [
            part.view(sizes).transpose(1, 2).requires_grad_(case.backward)  # (B, H, T, D)
            for part in projected.split(width, dim=2)
        ]
        self.out_grad = torch.randn(sizes, **options).transpose(1, 2) if case.backward else None
        self.attention = "slow" if case.backend == "compile" else case.backend
        self.function = attend
        if case.backend == "compile":
            self.function = torch.compile(attend, dynamic=False)
        self.mask = None
        if self.attention == "slow":
            ones = torch.ones(shape.seq, shape.seq, dtype=torch.bool, device=case.device)
            self.mask = ones.tril_()
        self.dropout, self.grad = case.dropout, case.backward
        self.out: Tensor | None = None

    def forward(self) -> None:
        self.out = None  # with it goes what it saved
        with torch.set_grad_enabled(self.grad):
            self.out = self.function(*self.inputs, self.attention, self.dropout, self.mask)

    def backward(self) -> tuple[Tensor, ...]:
        out, self.out = self.out, None
        return torch.autograd.grad(out, self.inputs, self.out_grad)


def measured(case: Case, max_s: float) -> list[Row]:
    """A row for each direction; of a backend that cannot, one that says why."""
    torch._dynamo.reset()  # each shape compiles for itself, as a model of that shape would
    counters.clear()
    memory.start(case.device)
    said: list[str] = []
    try:
        if reason := impossible(case):
            return [failed(case, "refused", reason)]
        if reason := beyond_memory(case):
            return [failed(case, "out_of_memory", reason)]
        with warnings.catch_warnings(record=True) as reasons:
            warnings.simplefilter("always")
            try:
                call = Call(case)
                results = first_run(call)
            finally:
                said = [str(warning.message) for warning in reasons]
        return rows_of(case, call, results, max_s)
    except (RuntimeError, ValueError) as error:  # PyTorch has both, and subclasses of its own
        status, reason = "refused", refusal(case, said, str(error))
        if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
            status, reason = "out_of_memory", memory.said(str(error), case.device)
    finally:
        call = results = None  # what they hold makes room for the next
        memory.release(case.device)
    return [failed(case, status, reason)]


def impossible(case: Case) -> str | None:
    """What model.py's configuration refuses as well."""
    if case.backend == "flex" and case.dropout > 0:
        return "FlexAttention has no dropout"
    if case.backend in CUDA_ONLY and case.device.type != "cuda":
        return f"exists on CUDA only, this is a {case.device.type.upper()}"
    return None


def beyond_memory(case: Case) -> str | None:
    """Of a CPU: why this will not fit."""
    if case.device.type == "cuda" or case.backend not in MATERIALISING:
        return None
    shape = case.shape
    matrix = shape.batch * shape.heads * shape.seq**2 * getattr(torch, case.dtype).itemsize
    return memory.beyond_host(MATRICES * matrix)


def refusal(case: Case, said: list[str], error: str) -> str:
    """PyTorch warns of each kernel's reason, of the others' that they are off, and then raises."""
    reasons = [line.split(" (Triggered")[0] for line in said]
    reasons = [line for line in reasons if not re.search(OTHER_KERNELS, line)]
    if pinned_kernel(case.backend) is None or not reasons:
        reasons = [error.split("\n\n")[0]]
    return one_line("; ".join(dict.fromkeys(reasons)))[:400]


def first_run(call: Call) -> list[Tensor]:
    """The output and, where asked for, the gradients: of the slice that is compared."""
    heads = max(1, min(call.inputs[0].size(1), REFERENCE_TOKENS // call.inputs[0].size(2)))
    call.forward()
    results = [call.out[:1, :heads].detach().clone()]
    if call.grad:
        results += [grad[:1, :heads].clone() for grad in call.backward()]
    call.out = None
    return results


def rows_of(case: Case, call: Call, results: list[Tensor], max_s: float) -> list[Row]:
    fused_slow = counters["inductor"]["fuse_attention"]  # counted while the first run compiled
    exact = exact_results(call, results) if case.dropout == 0 else None
    peaks = memory.peaks(call, case.device)
    launched = kernels_of_calls(call) if case.device.type == "cuda" else operators_of(call)
    rows = []
    for direction in directions(case):
        part = slice(0, 1) if direction == "forward" else slice(1, None)
        row = head(case, direction)
        row |= {"status": "ok", "reason": None}
        row |= timed(case, call, direction, max_s)
        row["peak_memory_bytes"] = peaks[direction]
        found = errors(results[part], exact[part]) if exact else (None, None)
        row["max_abs_error"], row["relative_error"] = found
        row["kernels"], row["kernels_missing"] = launched[direction]
        row["ran"] = what_ran(case, row["kernels"])
        finite = all(result.isfinite().all() for result in results[part])
        row["note"] = note(case, row["ran"], fused_slow) if finite else "THE RESULT IS NOT FINITE"
        rows.append(row)
    return rows


def exact_results(call: Call, results: list[Tensor]) -> list[Tensor]:
    heads = results[0].size(1)
    part = [tensor.detach()[:1, :heads] for tensor in call.inputs]
    return reference(*part, call.out_grad[:1, :heads] if call.grad else None)


def directions(case: Case) -> list[str]:
    return ["forward", "backward"] if case.backward else ["forward"]


def head(case: Case, direction: str) -> Row:
    return {
        "backend": case.backend,
        "direction": direction,
        **asdict(case.shape),
        "dtype": case.dtype,
        "dropout": case.dropout,
    }


def failed(case: Case, status: str, reason: str) -> Row:
    """One row for both directions: `measured` cannot have one without the other."""
    return head(case, " + ".join(directions(case))) | {"status": status, "reason": reason}


def timed(case: Case, call: Call, direction: str, max_s: float) -> Row:
    if direction == "forward":
        timing = measure(call.forward, case.device, max_s=max_s)
        call.out = None
    else:
        timing = measure(call.backward, case.device, prepare=call.forward, max_s=max_s)
    return time_figures(timing) | rates(case, direction, timing.median_ms)


def time_figures(timing: Timing) -> Row:
    return {
        "median_ms": timing.median_ms,
        "quartiles_ms": list(timing.quartiles_ms),
        "ci95_ms": list(timing.ci95_ms),
        "samples": len(timing.samples_ms),
        "launch_ms": timing.launch_ms,
        "stable": timing.stable,
        "precise": timing.precise,
    }


def rates(case: Case, direction: str, median_ms: float) -> Row:
    """Against the data sheet's peaks; None where they are not known."""
    work = flops(case.shape, direction)
    traffic = minimal_bytes(case.shape, direction, getattr(torch, case.dtype).itemsize)
    name = device_name(case.device)
    peak_flops, peak_bytes = peak_flops_per_s(name, case.dtype), peak_bytes_per_s(name)
    flops_per_s, bytes_per_s = work / median_ms * 1e3, traffic / median_ms * 1e3
    shares = [
        100 * rate / peak if peak else None
        for rate, peak in ((flops_per_s, peak_flops), (bytes_per_s, peak_bytes))
    ]
    return {
        "flops": work,
        "bytes": traffic,
        "flops_per_byte": work / traffic,
        "tflops": flops_per_s / 1e12,
        "percent_of_peak": shares[0],
        "gbps": bytes_per_s / 1e9,
        "percent_of_bandwidth": shares[1],
        # of the roof above it: the nearer of the two limits
        "percent_of_roof": max(shares) if None not in shares else None,
    }


def what_ran(case: Case, kernels: list[dict] | None) -> str | None:
    """The fused kernels' backend, `unfused`, or None: the kernels are not known."""
    if kernels is None:
        return None
    names = [kernel["name"] for kernel in kernels]
    if case.device.type == "cuda":
        return "+".join(fused_attention(names)) or "unfused"
    parts = {part: backend for part, backend in CPU_OPERATORS.items() if backend != "math"}
    found = {backend for part, backend in parts.items() if any(part in name for name in names)}
    return "+".join(found) or "unfused"


def note(case: Case, ran: str | None, fused_slow: int) -> str | None:
    """Where something else ran than the name of the backend says."""
    device = case.device.type
    inside = attention_in_force(case.backend, device, case.dropout)
    if inside != case.backend:
        return f"with dropout the {inside} kernel computes it on a {device.upper()}"
    if case.backend == "compile" and fused_slow:
        return "torch.compile replaced it by a fused call"
    if case.backend == "flex" and device != "cuda":
        return "not compiled: PyTorch's own slow form of it"
    expected = case.backend if case.backend in FUSED else "unfused"
    return None if ran in (None, expected) else f"{ran} ran, not {expected}"
