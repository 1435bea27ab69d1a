"""Shortens a kernel's demangled name so that one can read it; the whole name is kept beside it.

Called by the modules that make documents, charts and traces.
"""

import re
from collections.abc import Sequence
from functools import cache

from profiling.report.document import Cell
from profiling.report.text import shorten
from profiling.shared.kernel_names import short_name

# words in the template arguments of an elementwise or reduce kernel that say what it computes
OPERATION = re.compile(r"\b\w*(?:[Ff]unctor|_kernel_cuda|KernelImpl|_kernel\b|kernel_impl)\w*")
# parts of such a word that say only that it is a kernel: masked_fill_kernel, CUDAFunctor_add
KERNEL_WORDS = re.compile(r"(_kernel(_cuda|_impl)?|(CUDA)?KernelImpl|Functor)$|^CUDAFunctor_")
SHELLS = {"BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor"}  # wrap the functor that matters
IMPLEMENTATION = re.compile(r"^gpu_kernel_impl|^func_wrapper")
SCALARS = re.compile(
    r"\b(float|double|BFloat16|__nv_bfloat16|bfloat16_t|Half|__half|half_t|float8\w*)\b"
)
LAMBDA = re.compile(r"\[lambda\(([^()]+)\)")
CUTLASS = re.compile(r"\bcutlass\d*_\w+")
UNNAMED = re.compile(r"<unnamed>::|\(anonymous namespace\)::")
NAMESPACES = re.compile(r"\b\w+::")
MOST_LETTERS = 64  # of a label where nothing else limits it


def kernel_label(name: str, width: int = MOST_LETTERS) -> str:
    """The kernel's label, cut to `width` characters."""
    return shorten(whole_label(name), width)


@cache
def whole_label(name: str) -> str:
    """The label in full: function<type>, or function · operation(types)."""
    if name.startswith("_Z"):
        return short_name(name)
    plain = UNNAMED.sub("", name)
    head = re.match(r"[^<(]+", plain)
    function = head[0].split("::")[-1].split(" ")[-1] if head else ""
    if head is None or not function or head[0] == plain:  # nvjet_..., [CUDA memcpy HtoD]
        return name
    template = template_arguments(plain[head.end() :])
    if match := CUTLASS.search(template):  # function is Kernel, Kernel2 or device_kernel
        return match[0]
    operation = operation_of(template)
    if operation:
        types = LAMBDA.findall(template)
        suffix = f"({NAMESPACES.sub('', types[0])})" if types else scalars(template)
        plain = KERNEL_WORDS.sub("", operation) or operation
        return f"{function.removesuffix('_kernel')} · {plain}{suffix}"
    return function + scalars(template)


def kernel_cell(name: str, links: Sequence[tuple[str, str]] = ()) -> Cell:
    """A table cell with the kernel's label, and the whole name behind it."""
    return Cell(whole_label(name), name, links, most=MOST_LETTERS)


def template_arguments(rest: str) -> str:
    """The text between the first < and its >; '' where `rest` does not begin with <."""
    if not rest.startswith("<"):
        return ""
    depth = 0
    for place, character in enumerate(rest):
        depth += (character == "<") - (character == ">")
        if depth == 0:
            return rest[1:place]
    return rest[1:]


def operation_of(template: str) -> str | None:
    words = [word for word in OPERATION.findall(template) if not IMPLEMENTATION.match(word)]
    inner = [word for word in words if word not in SHELLS]
    return next(iter(inner or words), None)


def scalars(template: str) -> str:
    types = list(dict.fromkeys(SCALARS.findall(template)))
    return f"<{', '.join(types)}>" if types else ""
