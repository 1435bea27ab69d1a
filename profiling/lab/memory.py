"""Memory of a measured call: its peak, and what to say when it runs out. Called by attention."""

import gc
import re
from pathlib import Path

import torch

from profiling.lab.attention_work import Call

MEMINFO = Path("/proc/meminfo")


def start(device: torch.device) -> None:
    """So that what `said` says is of what follows."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peaks(call: Call) -> dict[str, int | None]:
    """By direction, bytes above the inputs at the worst moment; None where nobody counts them.

    Those of backward include what forward kept for it.
    """
    device = call.case.device
    if device.type != "cuda":
        return dict.fromkeys(call.passes)
    found: dict[str, int | None] = {}
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    for direction, run in call.passes.items():
        torch.cuda.reset_peak_memory_stats(device)
        run()
        found[direction] = torch.cuda.max_memory_allocated(device) - before
    return found


def beyond_host(needed_bytes: float) -> str | None:
    """Linux ends a process that takes too much of the host's memory: this is asked beforehand.

    None: it fits, or the system does not tell how much there is.
    """
    if not MEMINFO.exists():
        return None
    kibibytes = re.search(r"MemAvailable:\s+(\d+)", MEMINFO.read_text("utf-8"))
    if kibibytes is None or needed_bytes < int(kibibytes.group(1)) * 2**10:
        return None
    needed, free = needed_bytes / 2**30, int(kibibytes.group(1)) / 2**20
    return f"out of memory: needs about {needed:.0f} GiB, {free:.0f} are free (not tried)"


def said(error: str, device: torch.device) -> str:
    """How much was held, and the piece that did not fit."""
    held = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    asked = re.search(r"allocate ([\d.]+ [KMG]iB)", error)
    more = f", {asked.group(1)} more did not fit" if asked else ""
    return f"out of memory at {held / 2**30:.1f} GiB{more}"


def release(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
