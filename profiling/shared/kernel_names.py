"""Readers of CUDA kernels' names. Imports no torch: trainer and analysis both use it."""

import re

from configs.backends import BACKENDS

# a part of the kernel's name -> the attention backend that launches it
ATTENTION_KERNELS = {
    part: backend.name for backend in BACKENDS.values() for part in backend.kernels
}

LAYOUT = re.compile(r"nchw_?to_?nhwc|nhwc_?to_?nchw", re.I)  # transposes between layouts of images
# products and element-wise work in float64; scalars that a kernel takes as double do not count
FLOAT64 = re.compile(
    r"d884|dgemm|dgemv|f64f64|_f64_|gemv\w*<(\w+, )*double|__float64|"
    r"elementwise_kernel<(?!.*(float|Half|BFloat16)).*\bdouble\b"
)


def fused_attention(names: list[str]) -> dict[str, list[str]]:
    """The fused attention kernels among `names`, by backend; empty for slow and math."""
    kernels: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        matches = (backend for part, backend in ATTENTION_KERNELS.items() if part in name)
        if backend := next(matches, None):
            kernels.setdefault(backend, []).append(name)
    return kernels


def short_name(name: str) -> str:
    """Demangle a C++ name to namespace::function, without template arguments; other names are
    returned as they are.

    In the Itanium ABI _Z5nameI... is one identifier with its length, _ZN2ns4nameI...E several.
    """
    if not name.startswith("_Z"):
        return name
    rest = name[3:] if name.startswith("_ZN") else name[2:]
    parts = []
    while match := re.match(r"\d+", rest):
        end = match.end() + int(match.group())
        parts.append(rest[match.end() : end])
        rest = rest[end:]
    return "::".join(parts) or name


def function_name(name: str) -> str:
    """Function name alone, out of a kernel's demangled name, as ncu matches it."""
    plain = re.sub(r"^std::enable_if<.*?>::type ", "", short_name(name))  # drops the return type
    plain = plain.replace("<unnamed>::", "").replace("(anonymous namespace)::", "")
    return re.split(r"[<(]", plain)[0].split("::")[-1].split(" ")[-1]
