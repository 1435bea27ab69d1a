"""Count the FLOPs and the least bytes of one call of an operator, from its inputs.

Called by profiling.analysis.gpu_time.operators.

FLOPs: a product of M x K and K x N is 2 M N K; a bias adds one for each element of the output.
- convolution: 2 * outputs * (inputs that an output sees); backward the same for the gradient of
  the input, for that of the weight, or both, as its output mask says
- attention: 2 products over the scores, 4 * pairs * width; backward 5, since it makes the scores
  again. A causal mask leaves the pairs whose key is not behind the query; softmax is not counted

Bytes: each tensor that is read or written counts once, as if nothing stayed in the cache.
Convolution's backward is two operations: each reads the gradient.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from profiling.timeline.trace import Inputs

# type of the elements -> (name, bytes of one)
ELEMENTS = {
    "double": ("float64", 8),
    "float": ("float32", 4),
    "c10::BFloat16": ("bfloat16", 2),
    "c10::Half": ("float16", 2),
}
MOST = 1 << 63  # no real call reaches it: the sizes are wrong
# indices of attention's arguments: (q, which k and v follow; whether it is causal)
ATTENTION = {
    "aten::scaled_dot_product_attention": (0, 5),
    "aten::_scaled_dot_product_flash_attention": (0, 4),
    "aten::_scaled_dot_product_efficient_attention": (0, 6),
    "aten::_scaled_dot_product_cudnn_attention": (0, 6),
    "aten::_scaled_dot_product_flash_attention_backward": (1, 11),
    "aten::_scaled_dot_product_efficient_attention_backward": (1, 11),
    "aten::_scaled_dot_product_cudnn_attention_backward": (1, 14),
}


@dataclass(frozen=True)
class Cost:
    """The cost of one call."""

    shapes: list[list[int]]  # shapes of the tensors that name the row of this call
    dtype: str  # type of their elements
    flops: int
    bytes: int


def cost_of(inputs: Inputs) -> Cost | None:
    """The cost of a call, or None where its inputs have an unknown number or type."""
    try:
        estimate = FORMULAS[inputs.operator](inputs)
    except (ArithmeticError, LookupError, ValueError):
        return None
    return estimate if 0 < estimate.flops < MOST and 0 < estimate.bytes < MOST else None


def product(inputs: Inputs) -> Cost:
    """Cost of mm, bmm and matmul; leading sizes of one are broadcast, as matmul does.

    Raises ValueError for shapes that do not multiply.
    """
    a, b = inputs.dims[0], inputs.dims[1]
    rows, columns = a[:-1][-1:], b[-1:] if len(b) > 1 else []
    if a[-1] != b[-2 if len(b) > 1 else 0]:
        raise ValueError("no product")
    out = [*broadcast(a[:-2], b[:-2]), *rows, *columns]
    return cost(inputs, [0, 1], out, 2 * math.prod(out) * a[-1])


def added_product(inputs: Inputs) -> Cost:
    """Cost of addmm and baddbmm; raises ValueError for shapes that do not multiply."""
    c, a, b = inputs.dims[:3]
    if a[-1] != b[-2]:
        raise ValueError("no product")
    out = [*a[:-1], b[-1]]
    elements = math.prod(out)
    return cost(inputs, [1, 2], out, 2 * elements * a[-1] + elements, size(inputs, 0) if c else 0)


def linear(inputs: Inputs) -> Cost:
    x, weight, *bias = inputs.dims
    if x[-1] != weight[-1]:
        raise ValueError("no product")
    out = [*x[:-1], *weight[:-1]]
    added = bool(bias and bias[0])
    flops = math.prod(out) * (2 * x[-1] + added)
    return cost(inputs, [0, 1], out, flops, size(inputs, 2) if added else 0)


def convolution(inputs: Inputs) -> Cost:
    x, weight, bias = inputs.dims[:3]
    stride, padding, dilation, output_padding = (
        parse_integers(inputs.values[i]) for i in (3, 4, 5, 7)
    )
    transposed, groups = inputs.values[6] == "True", int(inputs.values[8])
    axes = range(len(x) - 2)
    reach = [dilation[i % len(dilation)] * (weight[i + 2] - 1) for i in axes]
    step, edge = ([given[i % len(given)] for i in axes] for given in (stride, padding))
    more = [output_padding[i % len(output_padding)] for i in axes]
    if transposed:
        channels = weight[1] * groups
        sizes = [(x[i + 2] - 1) * step[i] - 2 * edge[i] + reach[i] + more[i] + 1 for i in axes]
    else:
        channels = weight[0]
        sizes = [(x[i + 2] + 2 * edge[i] - reach[i] - 1) // step[i] + 1 for i in axes]
    if min(sizes) < 1:
        raise ValueError("no convolution")
    out = [x[0], channels, *sizes]
    multiplied = math.prod(x if transposed else out) * math.prod(weight[1:])
    flops = 2 * multiplied + (math.prod(out) if bias else 0)
    return cost(inputs, [0, 1], out, flops, size(inputs, 2) if bias else 0)


def convolution_backward(inputs: Inputs) -> Cost:
    grad, x, weight = inputs.dims[:3]
    transposed = inputs.values[7] == "True"
    wanted = [word.strip() == "True" for word in inputs.values[10].strip("[]").split(",")]
    multiplied = math.prod(x if transposed else grad) * math.prod(weight[1:])
    flops = 2 * multiplied * sum(wanted[:2]) + math.prod(grad) * wanted[2]
    # both read the gradient; one reads the weight and writes as much as x, the other vice versa
    moved = sum(wanted[:2]) * sum(size(inputs, i) for i in (0, 1, 2))
    return Cost([x, weight], element(inputs, 1)[0], flops, moved)


def attention(inputs: Inputs) -> Cost:
    first, causal = ATTENTION[inputs.operator]
    q, k, v = inputs.dims[first : first + 3]
    queries, keys = q[-2], k[-2]
    pairs = queries * keys
    if inputs.values[causal] == "True":
        seen = min(queries, keys)
        pairs = seen * seen // 2 + (queries - seen) * keys
    heads = math.prod(q[:-2])
    out = [*q[:-1], v[-1]]
    tensors = [first, first + 1, first + 2]
    if not inputs.operator.endswith("_backward"):
        return cost(inputs, tensors, out, 2 * heads * pairs * (q[-1] + v[-1]))
    flops = 2 * heads * pairs * (3 * q[-1] + 2 * v[-1])
    # reads the gradient, too; writes as much as q, k, v
    more = sum(size(inputs, i) for i in tensors) + math.prod(out) * element(inputs, first)[1]
    return cost(inputs, tensors, out, flops, more)


def cost(inputs: Inputs, named: list[int], out: list[int], flops: int, more_bytes: int = 0) -> Cost:
    """Cost of an operator that reads its arguments `named` and writes an output of shape `out`.

    `more_bytes` are moved besides these.
    """
    dtype, element_bytes = element(inputs, named[0])
    moved = sum(size(inputs, i) for i in named) + math.prod(out) * element_bytes + more_bytes
    return Cost([inputs.dims[i] for i in named], dtype, flops, moved)


def size(inputs: Inputs, argument: int) -> int:
    """Size of an argument in bytes."""
    return math.prod(inputs.dims[argument]) * element(inputs, argument)[1]


def element(inputs: Inputs, argument: int) -> tuple[str, int]:
    return ELEMENTS[inputs.types[argument]]


def parse_integers(value: str) -> list[int]:
    """The numbers in a text such as '[1, 2]'."""
    return [int(word) for word in value.strip("[]").split(",")]


def broadcast(one: list[int], other: list[int]) -> list[int]:
    length = max(len(one), len(other))
    padded = ([1] * (length - len(each)) + each for each in (one, other))
    return [max(pair) for pair in zip(*padded, strict=True)]


FORMULAS: dict[str, Callable[[Inputs], Cost]] = {
    "aten::mm": product,
    "aten::bmm": product,
    "aten::matmul": product,
    "aten::addmm": added_product,
    "aten::baddbmm": added_product,
    "aten::linear": linear,
    "aten::convolution": convolution,
    "aten::convolution_backward": convolution_backward,
    **dict.fromkeys(ATTENTION, attention),
}
