"""A launch of our kernels as an operator of PyTorch: to torch.compile one opaque call.

torch.library.custom_op makes the same, but its operators import Dynamo when they are first called,
for seconds, also in a run that compiles nothing.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch._ops import OpOverload
from torch.library import Library, infer_schema

P = ParamSpec("P")
R = TypeVar("R")

NAMESPACE = "profiling_nanogpt"
LIBRARY = Library(NAMESPACE, "DEF")


def operator(function: Callable[P, R]) -> "OpOverload[P, R]":
    """Takes and leaves new tensors: it changes none of its arguments and returns none of them.

    The schema are its annotations. Under autograd or torch.compile it needs register_autograd and
    register_fake of torch.library, too.
    """
    name = function.__name__
    schema = infer_schema(function, mutates_args=())
    LIBRARY.define(name + schema, tags=torch.Tag.pt2_compliant_tag)
    LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    made: OpOverload[P, R] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return made
