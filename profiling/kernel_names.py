"""What the name of a CUDA kernel tells. Imports no torch: trainer and analysis both read it."""

import re

from configs.attention import BACKENDS

# a part of the kernel's name -> the attention backend that launches it
ATTENTION_KERNELS = {part: each.name for each in BACKENDS.values() for part in each.kernels}


def fused_attention(names: list[str]) -> dict[str, list[str]]:
    """The fused attention kernels among `names`, by backend; empty for slow and math."""
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        backend = next((each for part, each in ATTENTION_KERNELS.items() if part in name), None)
        if backend:
            found.setdefault(backend, []).append(name)
    return found


def short_name(name: str) -> str:
    """namespace::function of a mangled C++ name, without template arguments; others as they are.

    Itanium ABI: _Z5nameI... is one identifier with its length, _ZN2ns4nameI...E several.
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
    """Of a kernel's demangled name the function alone, as ncu matches it."""
    plain = re.sub(r"^std::enable_if<.*?>::type ", "", short_name(name))  # what it returns
    plain = plain.replace("<unnamed>::", "").replace("(anonymous namespace)::", "")
    return re.split(r"[<(]", plain)[0].split("::")[-1].split(" ")[-1]
