"""A launch of our kernels as an operator of PyTorch, which torch.compile sees as one opaque call.

torch.library.custom_op makes the same, but its operators import Dynamo when they are first called,
which takes seconds, also in a run that compiles nothing.
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
    """Decorator that makes a function an operator; its annotations are the operator's schema.

    The function may neither change its arguments nor return them: it returns new tensors. Under
    autograd or torch.compile it needs register_autograd and register_fake of torch.library, too.
    """
    name = function.__name__
    schema = infer_schema(function, mutates_args=())
    LIBRARY.define(name + schema, tags=torch.Tag.pt2_compliant_tag)
    LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    overload: OpOverload[P, R] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return overload
