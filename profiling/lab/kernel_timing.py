"""Our own kernels beside eager PyTorch and torch.compile. Called by profiling.verbs.kernels."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from cli.errors import one_line
from profiling.lab.attention_work import errors
from profiling.lab.device import GBPS, device_name, in_unit
from profiling.lab.kernel_work import Function, Operation, Sizes, operations
from profiling.lab.timer import empty_launch, measure
from profiling.recording import dynamo
from profiling.shared.hardware import peak_bytes_per_s
from profiling.shared.measurements import KernelResults, KernelTiming

WAYS = ("eager", "compile", "fused")
CHECKED_TOKENS = 1024  # tokens that are compared with float64, all at once


class Call:
    """One operation in one way: `forward` and `backward` are timed."""

    def __init__(self, operation: Operation, function: Function):
        self.function = function
        self.inputs = [
            tensor.detach().requires_grad_(tensor.is_floating_point())
            for tensor in operation.inputs
        ]
        self.leaves = [tensor for tensor in self.inputs if tensor.requires_grad]
        outputs = self.forward()
        generator = torch.Generator(outputs[0].device).manual_seed(1)
        self.gradients = [
            torch.randn(out.shape, generator=generator, device=out.device, dtype=out.dtype)
            for out in outputs
        ]

    def forward(self) -> tuple[Tensor, ...]:
        self.outputs = self.function(*self.inputs)
        return self.outputs

    def backward(self) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.outputs, self.leaves, self.gradients)


def measure_rows(
    sizes: Sizes, dtype: str, device: torch.device, max_s: float, say: Callable[[str], None]
) -> Iterator[KernelTiming]:
    """Measure a row for each operation, way and direction.

    `say` is called with what is measured next; `max_s` bounds one measurement, in seconds.
    """
    few = replace(sizes, tokens=min(sizes.tokens, CHECKED_TOKENS))
    kind = getattr(torch, dtype)
    small = operations(few, kind, device)
    for operation, checked in zip(operations(sizes, kind, device), small, strict=True):
        for way in WAYS:
            say(f"{operation.name}, {way}")
            try:
                yield from measure_way(operation, checked, way, sizes.dropout, max_s)
            except (RuntimeError, ValueError, ImportError) as error:
                yield KernelTiming(operation.name, way, "both", missing=one_line(error)[:300])


def measure_way(
    operation: Operation, checked: Operation, way: str, dropout: float, max_s: float
) -> Iterator[KernelTiming]:
    """Measure both directions of an operation in one way.

    `checked` is the same operation with few tokens, which is compared with float64 if there is no
    dropout. Raises whatever the way raises, and ValueError if it does not exist here.
    """
    device = operation.inputs[0].device
    if way == "fused" and device.type != "cuda":
        raise ValueError("runs only on CUDA")
    function = function_of(operation, way)
    error = None if dropout > 0 else relative_error(checked, function_of(checked, way))
    call = Call(operation, function)
    passes = {"forward": (call.forward, None), "backward": (call.backward, call.forward)}
    bytes_of = {"forward": operation.forward_bytes, "backward": operation.backward_bytes}
    for direction, (work, prepare) in passes.items():
        timing = measure(work, device, prepare=prepare, max_s=max_s)
        moved = bytes_of[direction]
        yield KernelTiming(
            operation.name,
            way,
            direction,
            median_ms=timing.median_ms,
            ci95_ms=timing.ci95_ms,
            samples=timing.samples,
            bytes=moved,
            gbps=moved / timing.median_ms / 1e6,
            relative_error=error,
        )


def function_of(operation: Operation, way: str) -> Function:
    if way == "fused":
        return operation.ours
    if way == "eager":
        return operation.plain
    dynamo.forget()  # each shape compiles for itself
    return torch.compile(operation.plain, dynamic=False)


def relative_error(operation: Operation, function: Function) -> float | None:
    """Largest relative error of outputs and gradients against float64, or None if not finite."""
    call = Call(operation, function)
    wide = [x.double() if x.is_floating_point() else x for x in operation.inputs]
    exact = Call(replace(operation, inputs=wide), operation.plain)
    exact.gradients = [gradient.double() for gradient in call.gradients]
    results = [out.detach() for out in call.outputs] + list(call.backward())
    exact_results = [out.detach() for out in exact.outputs] + list(exact.backward())
    return errors(results, exact_results)[1]


def empty_results(sizes: Sizes, dtype: str, device: torch.device) -> KernelResults:
    """Results without rows yet: `measure_rows` gives them one after the other."""
    name, cuda = device_name(device), device.type == "cuda"
    return KernelResults(
        device=name,
        torch=str(torch.__version__),
        dtype=dtype,
        tokens=sizes.tokens,
        width=sizes.width,
        vocabulary=sizes.vocabulary,
        dropout=sizes.dropout,
        peak_gbps=in_unit(GBPS, peak_bytes_per_s(name)),
        empty_launch_ms=empty_launch(device).median_ms if cuda else None,
        l2_flushed=cuda,
        rows=[],
    )
