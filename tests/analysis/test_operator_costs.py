"""FLOPs and bytes of an operator: by hand, and by PyTorch's own formulas."""

import math

import pytest
import torch
from torch.utils.flop_counter import flop_registry

from profiling.analysis.gpu_work.operator_costs import ATTENTION, FORMULAS, cost_of
from profiling.timeline.operator_inputs import SHAPED
from profiling.timeline.trace import Inputs

HALF, FLOAT = "c10::BFloat16", "float"
CONVOLUTION = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
STANDING = ["", "", "", "[0, 0]", *CONVOLUTION[4:]]


def inputs(operator: str, *dims: list[int], values=(), kind=HALF) -> Inputs:
    length = max(len(dims), len(values))
    padded = [*dims, *[[]] * (length - len(dims))]
    types = [kind if each else "Scalar" for each in padded]
    return Inputs(f"aten::{operator}", padded, types, list(values))


@pytest.mark.parametrize(
    ("called", "flops", "elements"),
    [
        (inputs("mm", [5, 7], [7, 3]), 2 * 5 * 7 * 3, 35 + 21 + 15),
        (inputs("bmm", [4, 5, 7], [4, 7, 3]), 4 * 210, 4 * 71),
        (inputs("matmul", [2, 4, 5, 7], [7, 3]), 8 * 210, 8 * 35 + 21 + 8 * 15),
        (inputs("matmul", [7], [7, 3]), 42, 7 + 21 + 3),
        (inputs("matmul", [5, 7], [7]), 70, 35 + 7 + 5),
        (inputs("matmul", [4, 1, 5, 7], [6, 7, 3]), 24 * 210, 4 * 35 + 6 * 21 + 24 * 15),
        (inputs("addmm", [3], [5, 7], [7, 3]), 210 + 15, 3 + 71),
        (inputs("baddbmm", [4, 5, 3], [4, 5, 7], [4, 7, 3]), 840 + 60, 60 + 4 * 71),
        (inputs("linear", [2, 5, 7], [3, 7], [3]), 420 + 30, 70 + 21 + 3 + 30),
        (inputs("linear", [2, 5, 7], [3, 7]), 420, 70 + 21 + 30),
    ],
)
def test_products_by_hand(called, flops, elements):
    found = cost_of(called)
    assert (found.flops, found.bytes, found.dtype) == (flops, 2 * elements, "bfloat16")


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", [(16,), (16, 9), (8, 9, 10)])
def test_convolution_is_what_it_makes_and_pytorch_counts(sizes, transposed, groups):
    nd = len(sizes)
    x, kernel = [2, 8, *sizes], [3, 2, 1][:nd]
    weight = [8, 6 // groups, *kernel] if transposed else [6, 8 // groups, *kernel]
    stride, padding, dilation, more = [2] * nd, [1] * nd, [1] * nd, [1 if transposed else 0] * nd
    arguments = (stride, padding, dilation, transposed, more, groups)
    with torch.device("meta"):
        tensors = torch.empty(x), torch.empty(weight), torch.empty(6)
        out = list(torch.ops.aten.convolution(*tensors, *arguments).shape)
    values = ["", "", "", *map(str, arguments)]
    found = cost_of(inputs("convolution", x, weight, [6], values=values, kind=FLOAT))
    counted = flop_registry[torch.ops.aten.convolution](x, weight, None, *arguments, out_val=out)
    moved = sum(map(math.prod, (x, weight, out))) + 6
    assert (found.flops, found.bytes) == (counted + math.prod(out), 4 * moved)
    values = ["", "", "", "[6]", *map(str, arguments), "[True, True, False]"]
    backward = cost_of(inputs("convolution_backward", out, x, weight, values=values, kind=FLOAT))
    assert backward.flops == 2 * counted and backward.bytes == 2 * 4 * (moved - 6)
    assert backward.shapes == [x, weight]
    values[-1] = "[False, True, True]"
    half = cost_of(inputs("convolution_backward", out, x, weight, values=values, kind=FLOAT))
    assert half.flops == counted + math.prod(out) and half.bytes == backward.bytes / 2


@pytest.mark.parametrize("operator", ATTENTION)
def test_attention_counts_the_pairs_that_the_mask_leaves(operator):
    first, causal = ATTENTION[operator]
    q, k, v = [2, 8, 6, 16], [2, 4, 10, 16], [2, 4, 10, 32]
    out = [2, 8, 6, 32]
    dims = [[]] * first + [q, k, v]
    values = [""] * (causal + 1)
    whole = cost_of(inputs(operator.removeprefix("aten::"), *dims, values=values))
    read = sum(map(math.prod, (q, k, v)))
    if operator.endswith("backward"):
        assert whole.flops == 2 * 16 * 60 * (3 * 16 + 2 * 32)
        assert whole.bytes == 2 * (2 * read + 2 * math.prod(out))
    else:
        assert whole.flops == 2 * 16 * 60 * (16 + 32)
        assert whole.bytes == 2 * (read + math.prod(out))
    values[causal] = "True"
    masked = cost_of(inputs(operator.removeprefix("aten::"), *dims, values=values))
    assert masked.flops * 60 == whole.flops * 18 and masked.bytes == whole.bytes


@pytest.mark.parametrize("operator", ATTENTION)
def test_arguments_of_attention_stand_where_pytorch_has_them(operator):
    schema = getattr(torch.ops.aten, operator.removeprefix("aten::")).default._schema
    names = [argument.name for argument in schema.arguments]
    assert ATTENTION[operator] == (names.index("query"), names.index("is_causal"))


def test_all_operators_whose_inputs_are_kept_have_a_formula():
    assert FORMULAS.keys() == SHAPED


@pytest.mark.parametrize(
    "called",
    [
        inputs("mm", [5, 7], [6, 3]),
        inputs("mm", [5, 7]),
        inputs("mm", [], []),
        inputs("mm", [0, 7], [7, 3]),
        inputs("mm", [5, 7], [7, 3], kind="c10::complex<float>"),
        inputs("mm", [1 << 40, 1 << 40], [1 << 40, 1 << 40]),
        inputs("convolution", [2, 8, 9, 9], [4, 8, 3, 3], [4]),
        inputs("convolution", [2, 8, 9, 9], [4, 8, 3, 3], values=[*CONVOLUTION[:3], "", "[x]"]),
        inputs("convolution", [2, 8, 1, 1], [4, 8, 9, 9], values=CONVOLUTION),
        inputs("convolution", [2, 8, 9, 9], [4, 8, 3, 3], values=STANDING),
        inputs("_scaled_dot_product_flash_attention", [2, 8, 6, 16]),
    ],
)
def test_inputs_that_do_not_tell_have_no_cost(called):
    assert cost_of(called) is None
