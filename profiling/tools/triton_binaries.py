"""What ptxas made of inductor's Triton kernels: registers, spills, shared memory, PTX.

Called by the verb compiled in the process that ran the kernels: registers are known only once
the driver has loaded a kernel.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Binary:
    """Of the variant that inductor chose; None what this PyTorch does not tell."""

    registers: int | None  # a thread's
    spills: int | None  # 32-bit words that a thread keeps in local memory for want of registers
    shared_bytes: int | None  # a block's
    config: str | None  # block sizes, warps, stages
    ptx: str | None


def triton_binaries(cache: Path) -> dict[tuple[str, str], Binary]:
    """(file of the output code, kernel) -> its binary. `cache` holds what Triton compiled."""
    from torch._inductor.codecache import PyCodeCache

    return {
        (module.__file__, name): binary_of(value.launchers[0], name, cache)
        for module in getattr(PyCodeCache, "modules", [])
        for name, value in vars(module).items()
        if getattr(value, "launchers", None)
    }


def binary_of(launcher: Any, name: str, cache: Path) -> Binary:
    folder = getattr(launcher, "cache_hash", None)
    found = sorted(cache.rglob(f"{folder}/{name}.ptx")) if folder else []
    config = getattr(launcher, "config", None)
    return Binary(
        getattr(launcher, "n_regs", None),
        getattr(launcher, "n_spills", None),
        getattr(launcher, "shared", None),
        None if config is None else str(config),
        found[0].read_text(encoding="utf-8") if found else None,
    )
